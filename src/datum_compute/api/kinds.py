"""Every kind the platform serves, by hand; the house test fails on a forgotten line."""

from __future__ import annotations

from typing import Any

from datum_compute.api.allowancebucket import BUCKET
from datum_compute.api.apiextensions import DEFINITION
from datum_compute.api.cluster import CLUSTER
from datum_compute.api.clusterpropagationpolicy import CLUSTER_POLICY
from datum_compute.api.clusterresourcebinding import CLUSTER_BINDING
from datum_compute.api.clusterrolebinding import CLUSTER_ROLE_BINDING
from datum_compute.api.compute.deployment import DEPLOYMENT
from datum_compute.api.compute.instance import INSTANCE
from datum_compute.api.compute.instance_type import INSTANCE_TYPE
from datum_compute.api.compute.server import SERVER
from datum_compute.api.compute.workload import WORKLOAD
from datum_compute.api.compute.workload_revision import REVISION
from datum_compute.api.configmap import CONFIG_MAP
from datum_compute.api.core import NAMESPACE
from datum_compute.api.events import EVENT
from datum_compute.api.eventsv1 import EVENTS_V1
from datum_compute.api.ipallocation import IP_ALLOCATION
from datum_compute.api.karmada import POLICY
from datum_compute.api.lease import LEASE
from datum_compute.api.locationbinding import LOCATION_BINDING
from datum_compute.api.membership import JOIN_TOKEN
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.networkbinding import NETWORK_BINDING
from datum_compute.api.networkcontext import NETWORK_CONTEXT
from datum_compute.api.networking.location import LOCATION
from datum_compute.api.networking.network import NETWORK
from datum_compute.api.organization import ORGANIZATION
from datum_compute.api.quota import CLAIM
from datum_compute.api.rbac import CLUSTER_ROLE
from datum_compute.api.resourcebinding import BINDING
from datum_compute.api.resourcegrant import GRANT
from datum_compute.api.resourcemanager import PROJECT
from datum_compute.api.resourceregistration import REGISTRATION
from datum_compute.api.role import ROLE
from datum_compute.api.rolebinding import ROLE_BINDING
from datum_compute.api.secret import SECRET
from datum_compute.api.serviceaccount import SERVICE_ACCOUNT
from datum_compute.api.serviceconfiguration import SERVICE_CONFIGURATION
from datum_compute.api.serviceconsumer import CONSUMER
from datum_compute.api.serviceentitlement import ENTITLEMENT
from datum_compute.api.services import SERVICE
from datum_compute.api.subnet import SUBNET
from datum_compute.api.subnetclaim import SUBNET_CLAIM
from datum_compute.api.work import WORK

__all__ = [
    "BINDING",
    "BUCKET",
    "CLAIM",
    "CLUSTER",
    "CLUSTER_BINDING",
    "CLUSTER_POLICY",
    "CLUSTER_ROLE",
    "CLUSTER_ROLE_BINDING",
    "CONFIG_MAP",
    "CONSUMER",
    "CORE_KINDS",
    "DEFINITION",
    "DEPLOYMENT",
    "ENTITLEMENT",
    "EVENT",
    "EVENTS_V1",
    "GRANT",
    "INSTANCE",
    "INSTANCE_TYPE",
    "IP_ALLOCATION",
    "JOIN_TOKEN",
    "KINDS",
    "LEASE",
    "LOCATION",
    "LOCATION_BINDING",
    "NAMESPACE",
    "NETWORK",
    "NETWORK_BINDING",
    "NETWORK_CONTEXT",
    "ORGANIZATION",
    "POLICY",
    "PROJECT",
    "REGISTRATION",
    "REVISION",
    "ROLE",
    "ROLE_BINDING",
    "SECRET",
    "SERVER",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "SERVICE_CONFIGURATION",
    "SUBNET",
    "SUBNET_CLAIM",
    "WORK",
    "WORKLOAD",
    "kind_of",
]

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
