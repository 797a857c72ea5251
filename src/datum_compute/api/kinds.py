"""All kinds that the platform serves. A test fails if a kind is missing in the list."""

from __future__ import annotations

from typing import Annotated, Any

from datum_compute.api.apiextensions import DEFINITION
from datum_compute.api.compute.deployment import DEPLOYMENT
from datum_compute.api.compute.instance import INSTANCE
from datum_compute.api.compute.instance_type import INSTANCE_TYPE
from datum_compute.api.compute.server import SERVER
from datum_compute.api.compute.workload import WORKLOAD
from datum_compute.api.compute.workload_revision import REVISION
from datum_compute.api.core import CONFIG_MAP, LEASE, NAMESPACE, SECRET, SERVICE_ACCOUNT
from datum_compute.api.events import EVENT, EVENTS_V1
from datum_compute.api.karmada import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    POLICY,
    WORK,
)
from datum_compute.api.membership import JOIN_TOKEN
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.objects import ApiObject, KindInfo
from datum_compute.api.networking.location import LOCATION, LOCATION_BINDING
from datum_compute.api.networking.network import (
    IP_ALLOCATION,
    NETWORK,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
    SUBNET_CLAIM,
)
from datum_compute.api.quota import BUCKET, CLAIM, GRANT, REGISTRATION
from datum_compute.api.rbac import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from datum_compute.api.resourcemanager import ORGANIZATION, PROJECT
from datum_compute.api.services import CONSUMER, ENTITLEMENT, SERVICE, SERVICE_CONFIGURATION

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


# --- Kinds of Kubernetes that common clients list and that never exist on this platform
# Each is served as an empty read-only list: ``kubectl cluster-info`` lists Services and fails if
# the kind does not exist. A write is refused and a list gets a warning, both with
# ``KindInfo.unsupported_message``.


class CoreService(ApiObject, frozen=True, kw_only=True):
    """A Service of Kubernetes. This platform does not support Services."""

    spec: Annotated[dict[str, Any], doc("Not supported.")] = {}


CORE_SERVICE = KindInfo(
    group="",
    version="v1",
    kind="Service",
    plural="services",
    model=CoreService,
    has_status=False,
    built_in=True,
    unsupported_message=(
        "Kubernetes Services are not supported; the services of the catalog are "
        "services.services.miloapis.com"
    ),
)

UNSUPPORTED_KINDS: tuple[KindInfo[Any], ...] = (CORE_SERVICE,)
