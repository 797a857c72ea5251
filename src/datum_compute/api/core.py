"""Kinds of the Kubernetes core group: Namespace, ConfigMap, Secret, ServiceAccount,
Pod. And Lease.
"""

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
    doc,
    map_by,
    merge_patch_by,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, Selectable, TableColumn


class NamespaceSpec(ApiStruct, frozen=True, kw_only=True):
    finalizers: Annotated[
        list[str],
        doc(
            "Finalizers that must be removed before the namespace is removed. They "
            "can only be changed with the finalize subresource."
        ),
    ] = []


class NamespaceCondition(ApiStruct, frozen=True, kw_only=True):
    """Observed state of one aspect of the deletion of a namespace."""

    type: Annotated[str, doc("Type of the condition. A list contains each type once.")]
    status: Annotated[ConditionStatus, doc("Status of the condition.")]
    reason: Annotated[str, doc("One-word cause of the status in CamelCase, for programs.")] = ""
    message: Annotated[str, doc("Cause of the status in words, for people.")] = ""
    last_transition_time: Annotated[str, doc("Time when the status last changed (RFC 3339).")] = ""


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        str, doc("Active, or Terminating while the contents of a deleted namespace are deleted.")
    ] = "Active"
    conditions: Annotated[
        list[NamespaceCondition],
        map_by("type"),
        merge_patch_by("type"),
        doc("Why a deleted namespace still exists."),
    ] = []


class Namespace(ApiObject, frozen=True, kw_only=True):
    """A Namespace is a scope for the names of objects. When it is deleted, its contents are deleted
    first.
    """

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
        TableColumn("Status", ".status.phase"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- ConfigMap


class ConfigMap(ApiObject, frozen=True, kw_only=True):
    """A ConfigMap contains configuration data that is not confidential."""

    data: Annotated[
        dict[str, str], doc("Text values by key. A key contains letters, digits, '-', '_' and '.'.")
    ] = {}
    binary_data: Annotated[
        dict[str, Base64],
        doc("Binary values by key, encoded as base64. A key cannot be in data as well."),
    ] = {}
    immutable: Annotated[
        bool | None,
        doc(
            "Whether data and binaryData can no longer be changed. Once true, it "
            "cannot be changed back."
        ),
    ] = None


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
        TableColumn("Data", ".data,.binaryData", "count"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- Secret


OPAQUE = "Opaque"


class Secret(ApiObject, frozen=True, kw_only=True):
    """A Secret contains confidential data."""

    data: Annotated[
        dict[str, Base64],
        doc("Values by key, encoded as base64. A key contains letters, digits, '-', '_' and '.'."),
    ] = {}
    string_data: Annotated[
        dict[str, SecretText],
        doc("Text values by key. This field is write-only: the server moves the values into data."),
    ] = {}
    type: Annotated[
        str, doc("Type of the Secret, which decides which keys are required. It cannot be changed.")
    ] = OPAQUE
    immutable: Annotated[
        bool | None,
        doc("Whether data can no longer be changed. Once true, it cannot be changed back."),
    ] = None

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
        TableColumn("Type", ".type"),
        TableColumn("Data", ".data", "count"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- ServiceAccount


class ServiceAccount(ApiObject, frozen=True, kw_only=True):
    """A ServiceAccount is an identity for programs. They authenticate with its tokens."""

    secrets: Annotated[
        list[ObjectReference],
        merge_patch_by("name"),
        doc("Secrets that programs of this account can use."),
    ] = []
    image_pull_secrets: Annotated[
        list[LocalObjectReference], doc("Secrets with the credentials of image registries.")
    ] = []
    automount_service_account_token: Annotated[
        bool | None,
        doc("Whether a token of the account is mounted into pods. This platform does not use it."),
    ] = None


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
        TableColumn("Secrets", ".secrets", "count"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


DEFAULT_SERVICE_ACCOUNT = "default"
ROOT_CA_CONFIG_MAP = "kube-root-ca.crt"
# Resource and name of the objects that the server creates in each namespace.
NAMESPACE_DEFAULT_OBJECTS = (
    (SERVICE_ACCOUNT.storage, DEFAULT_SERVICE_ACCOUNT),
    (CONFIG_MAP.storage, ROOT_CA_CONFIG_MAP),
)


# --- Lease (coordination.k8s.io)


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    holder_identity: Annotated[str | None, doc("Identity of the current holder.")] = None
    lease_duration_seconds: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        doc("Seconds after renewTime for which the lease is valid."),
    ] = None
    acquire_time: Annotated[
        MicroTime | None, doc("Time when the current holder acquired the lease.")
    ] = None
    renew_time: Annotated[
        MicroTime | None, doc("Time when the current holder last renewed the lease.")
    ] = None
    lease_transitions: Annotated[
        Annotated[int, Meta(ge=0)] | None, doc("Number of changes of the holder.")
    ] = None
    strategy: Annotated[str | None, doc("Strategy of a coordinated leader election.")] = None
    preferred_holder: Annotated[
        str | None,
        doc("Candidate that should hold the lease instead, for a coordinated leader election."),
    ] = None


class Lease(ApiObject, frozen=True, kw_only=True):
    """A Lease is held by one client at a time and expires unless it is renewed. Leader election
    uses it.
    """

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
        TableColumn("Holder", ".spec.holderIdentity"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- Pod: the fields that the pods driver reads
# The embedded server does not serve pods. ``drivers/pods/pod_spec.py`` writes pods as plain JSON.


class ContainerStateWaiting(ApiStruct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiStruct, frozen=True, kw_only=True):
    started_at: str | None = None


class ContainerStateTerminated(ApiStruct, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """State of a container. At most one field is set."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


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
