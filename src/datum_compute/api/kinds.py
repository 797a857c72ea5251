"""Every kind the platform serves, by hand; the house test fails on a forgotten line."""

from __future__ import annotations

from typing import Any

from datum_compute.api import (
    cluster,
    clusterpropagationpolicy,
    clusterresourcebinding,
    clusterrole,
    clusterrolebinding,
    configmap,
    customresourcedefinition,
    event,
    eventsv1,
    instance,
    lease,
    namespace,
    propagationpolicy,
    resourcebinding,
    role,
    rolebinding,
    secret,
    server,
    serviceaccount,
    work,
    workload,
    workloaddeployment,
)
from datum_compute.api.meta import KindInfo

NAMESPACE = namespace.KIND
CONFIG_MAP = configmap.KIND
SECRET = secret.KIND
EVENT = event.KIND
EVENTS_V1 = eventsv1.KIND
SERVICE_ACCOUNT = serviceaccount.KIND
LEASE = lease.KIND
ROLE = role.KIND
CLUSTER_ROLE = clusterrole.KIND
ROLE_BINDING = rolebinding.KIND
CLUSTER_ROLE_BINDING = clusterrolebinding.KIND
DEFINITION = customresourcedefinition.KIND

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

CORE_KINDS: tuple[KindInfo[Any], ...] = (
    NAMESPACE,
    CONFIG_MAP,
    SECRET,
    EVENT,
    EVENTS_V1,
    SERVICE_ACCOUNT,
    LEASE,
    ROLE,
    CLUSTER_ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE_BINDING,
    DEFINITION,
)

KINDS: tuple[KindInfo[Any], ...] = (
    *CORE_KINDS,
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
)

_BY_GROUP_KIND = {(k.api_version, k.kind): k for k in KINDS}


def kind_of(api_version: str, kind: str) -> KindInfo[Any] | None:
    return _BY_GROUP_KIND.get((api_version, kind))
