"""Pod, as much of it as the pods driver reads. A neighbour's kind: only clients use it.

The embedded server does not serve pods, and this kind is on no list of ours. What a pod is made of
is written by ``drivers/pods/pod_spec.py`` as plain JSON.
"""

from __future__ import annotations

from msgspec import field

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, KindInfo


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
