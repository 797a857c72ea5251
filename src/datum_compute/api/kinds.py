"""Every kind the platform serves, by hand; the house test fails on a forgotten line."""

from __future__ import annotations

from typing import Any

from datum_compute.api import (
    cluster,
    clusterpropagationpolicy,
    clusterresourcebinding,
    clusterrole,
    clusterrolebinding,
    instance,
    namespace,
    propagationpolicy,
    resourcebinding,
    role,
    rolebinding,
    server,
    serviceaccount,
    work,
    workload,
    workloaddeployment,
)
from datum_compute.api.meta import KindInfo

NAMESPACE = namespace.KIND
SERVICE_ACCOUNT = serviceaccount.KIND
ROLE = role.KIND
CLUSTER_ROLE = clusterrole.KIND
ROLE_BINDING = rolebinding.KIND
CLUSTER_ROLE_BINDING = clusterrolebinding.KIND
WORKLOAD = workload.KIND
DEPLOYMENT = workloaddeployment.KIND
INSTANCE = instance.KIND
SERVER = server.KIND
CLUSTER = cluster.KIND
POLICY = propagationpolicy.KIND
CLUSTER_POLICY = clusterpropagationpolicy.KIND
BINDING = resourcebinding.KIND
CLUSTER_BINDING = clusterresourcebinding.KIND
WORK = work.KIND

KINDS: tuple[KindInfo[Any], ...] = (
    NAMESPACE,
    WORKLOAD,
    DEPLOYMENT,
    INSTANCE,
    SERVER,
    CLUSTER,
    POLICY,
    CLUSTER_POLICY,
    BINDING,
    CLUSTER_BINDING,
    WORK,
    SERVICE_ACCOUNT,
    ROLE,
    CLUSTER_ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE_BINDING,
)

_BY_GROUP_KIND = {(k.api_version, k.kind): k for k in KINDS}


def kind_of(api_version: str, kind: str) -> KindInfo[Any] | None:
    return _BY_GROUP_KIND.get((api_version, kind))
