"""Namespace (core): a terminating one is emptied, then removed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from datum_compute.api.conditions import ConditionStatus
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    Base64,
    LocalObjectReference,
    MicroTime,
    ObjectReference,
    SecretText,
    keyed,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Selectable


class NamespaceSpec(ApiStruct, frozen=True, kw_only=True):
    finalizers: list[str] = []


class NamespaceCondition(ApiStruct, frozen=True, kw_only=True):
    """One thing that keeps a terminating namespace from going."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    phase: str = "Active"
    conditions: Annotated[list[NamespaceCondition], keyed("type")] = []


class Namespace(ApiObject, frozen=True, kw_only=True):
    """Namespace (core): a terminating one is emptied, then removed."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


NAMESPACE = KindInfo(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    model=Namespace,
    namespaced=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    selectable=(Selectable("status.phase", ".status.phase"),),
    short_names=("ns",),
    columns=(
        Column("Status", ".status.phase"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- ConfigMap (core): named texts and bytes that are no secret


class ConfigMap(ApiObject, frozen=True, kw_only=True):
    """ConfigMap (core): named texts and bytes that are no secret."""

    data: dict[str, str] = {}
    binary_data: dict[str, Base64] = {}
    immutable: bool | None = None


CONFIG_MAP = KindInfo(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    model=ConfigMap,
    has_status=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    short_names=("cm",),
    columns=(
        Column("Data", ".data,.binaryData", "count"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- Secret (core): named bytes that nothing but a read of the Secret itself may show


OPAQUE = "Opaque"


class Secret(ApiObject, frozen=True, kw_only=True):
    """Secret (core): named bytes that nothing but a read of the Secret itself may show."""

    data: dict[str, Base64] = {}
    string_data: dict[str, SecretText] = {}  # write-only: the server moves it into data
    type: str = OPAQUE
    immutable: bool | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


SECRET = KindInfo(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    model=Secret,
    has_status=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    selectable=(Selectable("type", ".type"),),
    columns=(
        Column("Type", ".type"),
        Column("Data", ".data", "count"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- ServiceAccount (core): a name that programs, not people, act under


class ServiceAccount(ApiObject, frozen=True, kw_only=True):
    """ServiceAccount (core): a name that programs, not people, act under."""

    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None


SERVICE_ACCOUNT = KindInfo(
    group="",
    version="v1",
    kind="ServiceAccount",
    plural="serviceaccounts",
    model=ServiceAccount,
    has_status=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    short_names=("sa",),
    columns=(
        Column("Secrets", ".secrets", "count"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)


DEFAULT_SERVICE_ACCOUNT = "default"
ROOT_CA_CONFIG_MAP = "kube-root-ca.crt"
# Resource and name of the objects that the server creates in each namespace.
NAMESPACE_DEFAULT_OBJECTS = (
    (SERVICE_ACCOUNT.storage, DEFAULT_SERVICE_ACCOUNT),
    (CONFIG_MAP.storage, ROOT_CA_CONFIG_MAP),
)


# --- Lease (coordination.k8s.io): who leads, and until when that holds unless it is renewed


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: Annotated[int, Meta(ge=1)] | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: Annotated[int, Meta(ge=0)] | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(ApiObject, frozen=True, kw_only=True):
    """Lease (coordination.k8s.io): who leads, and until when that holds unless it is renewed."""

    spec: LeaseSpec = LeaseSpec()


LEASE = KindInfo(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    model=Lease,
    has_status=False,
    built_in=True,
    put_creates=True,
    has_generation=False,
    columns=(
        Column("Holder", ".spec.holderIdentity"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- Pod, as much of it as the pods driver reads. A neighbour's kind: only clients use it
# The embedded server does not serve pods, and this kind is on no list of ours. What a pod is made
# of is written by ``drivers/pods/pod_spec.py`` as plain JSON.


class Waiting(ApiStruct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Running(ApiStruct, frozen=True, kw_only=True):
    started_at: str | None = None


class Terminated(ApiStruct, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """At most one of them."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    image_id: str = field(name="imageID", default="")


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodAddress(ApiStruct, frozen=True, kw_only=True):
    ip: str = ""


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] = []
    addresses: list[PodAddress] = field(name="podIPs", default_factory=list)
    container_statuses: list[ContainerStatus] = []


class PodResources(ApiStruct, frozen=True, kw_only=True):
    limits: dict[str, str] = {}


class PodPort(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class PodContainer(ApiStruct, frozen=True, kw_only=True):
    name: str
    image: str = ""
    ports: list[PodPort] = []
    resources: PodResources = PodResources()
    readiness_probe: dict[str, object] | None = None


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    node_name: str = ""
    containers: list[PodContainer] = []


class Pod(ApiObject, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


POD = KindInfo(group="", version="v1", kind="Pod", plural="pods", model=Pod, built_in=True)
