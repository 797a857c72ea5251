"""Every kind the platform serves, by hand; the house test fails on a forgotten line."""

from __future__ import annotations

from typing import Any

from datum_compute.api import (
    allowancebucket,
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
    instancetype,
    ipallocation,
    jointoken,
    lease,
    location,
    locationbinding,
    namespace,
    network,
    networkbinding,
    networkcontext,
    organization,
    project,
    propagationpolicy,
    resourcebinding,
    resourceclaim,
    resourcegrant,
    resourceregistration,
    role,
    rolebinding,
    secret,
    server,
    service,
    serviceaccount,
    serviceconfiguration,
    serviceconsumer,
    serviceentitlement,
    subnet,
    subnetclaim,
    work,
    workload,
    workloaddeployment,
    workloadrevision,
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
INSTANCE_TYPE = instancetype.KIND
REVISION = workloadrevision.KIND
SERVER = server.KIND

NETWORK = network.KIND
NETWORK_BINDING = networkbinding.KIND
NETWORK_CONTEXT = networkcontext.KIND
SUBNET = subnet.KIND
SUBNET_CLAIM = subnetclaim.KIND
LOCATION = location.KIND
LOCATION_BINDING = locationbinding.KIND
IP_ALLOCATION = ipallocation.KIND

REGISTRATION = resourceregistration.KIND
GRANT = resourcegrant.KIND
CLAIM = resourceclaim.KIND
BUCKET = allowancebucket.KIND

SERVICE = service.KIND
SERVICE_CONFIGURATION = serviceconfiguration.KIND
ENTITLEMENT = serviceentitlement.KIND
CONSUMER = serviceconsumer.KIND

ORGANIZATION = organization.KIND
PROJECT = project.KIND

CLUSTER = cluster.KIND
JOIN_TOKEN = jointoken.KIND
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
    INSTANCE_TYPE,
    REVISION,
    SERVER,
    NETWORK,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
    SUBNET_CLAIM,
    LOCATION,
    LOCATION_BINDING,
    IP_ALLOCATION,
    REGISTRATION,
    GRANT,
    CLAIM,
    BUCKET,
    SERVICE,
    SERVICE_CONFIGURATION,
    ENTITLEMENT,
    CONSUMER,
    ORGANIZATION,
    PROJECT,
    CLUSTER,
    JOIN_TOKEN,
    POLICY,
    CLUSTER_POLICY,
    BINDING,
    CLUSTER_BINDING,
    WORK,
)

_BY_GROUP_KIND = {(k.api_version, k.kind): k for k in KINDS}


def kind_of(api_version: str, kind: str) -> KindInfo[Any] | None:
    return _BY_GROUP_KIND.get((api_version, kind))
