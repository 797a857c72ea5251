"""Instance: one running copy of a template, what users see. Its truth lives on the cell."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from datum_compute.api.codec import ApiStruct
from datum_compute.api.conditions import Conditions
from datum_compute.api.meta import ApiObject, Column, KindInfo

DnsLabel = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
# [host[:port]/]path[:tag][@digest], as registries understand it.
_HOST = (
    "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
_PATH = "[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_TAG = "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}"
_DIGEST = "[a-z0-9]+:[0-9a-fA-F]{32,}"
ImageReference = Annotated[
    str, Meta(pattern=f"^({_HOST}/)?{_PATH}(:{_TAG})?(@{_DIGEST})?$", max_length=1024)
]
MAP_BY_NAME = Meta(
    extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
)


class EnvVar(ApiStruct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1)]
    value: str = ""


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    name: DnsLabel
    port: Annotated[int, Meta(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP"] = "TCP"


class Container(ApiStruct, frozen=True, kw_only=True):
    """command replaces ENTRYPOINT, args replace CMD; without both the image decides."""

    name: DnsLabel
    image: ImageReference
    command: list[str] = []
    args: list[str] = []
    env: Annotated[list[EnvVar], MAP_BY_NAME] = []
    ports: Annotated[list[ContainerPort], MAP_BY_NAME] = []


class Sandbox(ApiStruct, frozen=True, kw_only=True):
    containers: Annotated[list[Container], MAP_BY_NAME, Meta(min_length=1)]


class RuntimeResources(ApiStruct, frozen=True, kw_only=True):
    instance_type: str = "datumcloud/d1-standard-2"


class Runtime(ApiStruct, frozen=True, kw_only=True):
    sandbox: Sandbox
    resources: RuntimeResources = RuntimeResources()


class TemplateSpec(ApiStruct, frozen=True, kw_only=True):
    runtime: Runtime


class TemplateMeta(ApiStruct, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class InstanceTemplate(ApiStruct, frozen=True, kw_only=True):
    spec: TemplateSpec
    metadata: TemplateMeta = TemplateMeta()


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    name: str


class InstanceControl(ApiStruct, frozen=True, kw_only=True):
    template_hash: str = ""
    scheduling_gates: Annotated[list[SchedulingGate], MAP_BY_NAME] = []


class InstanceSpec(ApiStruct, frozen=True, kw_only=True):
    runtime: Runtime
    controller: InstanceControl = InstanceControl()


class NetworkAssignments(ApiStruct, frozen=True, kw_only=True):
    network_ip: str = field(name="networkIP", default="")
    external_ip: str = field(name="externalIP", default="")


class NetworkInterfaceStatus(ApiStruct, frozen=True, kw_only=True):
    assignments: NetworkAssignments = NetworkAssignments()


class InstanceControlStatus(ApiStruct, frozen=True, kw_only=True):
    observed_template_hash: str = ""


class InstanceStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    network_interfaces: list[NetworkInterfaceStatus] = []
    controller: InstanceControlStatus = InstanceControlStatus()


class Instance(ApiObject, frozen=True, kw_only=True):
    spec: InstanceSpec
    status: InstanceStatus = InstanceStatus()


PROGRAMMED, AVAILABLE, READY = "Programmed", "Available", "Ready"

KIND = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="Instance",
    plural="instances",
    model=Instance,
    short_names=("inst",),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Network IP", ".status.networkInterfaces[0].assignments.networkIP"),
        Column("External IP", ".status.networkInterfaces[0].assignments.externalIP"),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
    ),
)
