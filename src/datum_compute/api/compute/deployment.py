"""WorkloadDeployment: the share of a Workload that one city runs.

Its scale subresource reads and writes the number of its placement. As with a Kubernetes ReplicaSet
the owner has the last word: scale a deployment that belongs to a Workload at the Workload.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import (
    ROLLOUT_COLUMNS,
    CityCode,
    ReplicaCounts,
    ScaleSettings,
)
from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    MAP_BY_NAME,
    IpFamily,
    NamespacedReference,
    ShortText,
    doc,
    immutable,
    keyed,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Scale, selectable_fields

REPLICAS_READY = "ReplicasReady"  # the condition type


class WorkloadRef(ApiStruct, frozen=True, kw_only=True):
    """The workload that this belongs to."""

    name: Annotated[str, doc("Name of the workload.")]
    uid: Annotated[str, doc("UID of the workload in its project.")]


class AttachedPrefix(ApiStruct, frozen=True, kw_only=True):
    """The addresses of one family that instances of the deployment can have."""

    family: Annotated[IpFamily, doc("Address family.")]
    prefix: Annotated[str, doc("Prefix of the network in the city, such as 10.128.16.0/20.")]
    gateway: Annotated[str, doc("Address of the gateway in it, which no instance gets.")]


class AttachmentProblem(ApiStruct, frozen=True, kw_only=True):
    """Why there is no prefix."""

    reason: Annotated[str, doc("The cause, one word for programs.")]
    message: Annotated[str, doc("The cause, for people.")] = ""


class NetworkAttachment(ApiStruct, frozen=True, kw_only=True):
    """The network as the cell needs to know it: where addresses come from, or why there are none.

    Written by the platform. Prefixes that were attached stay while the deployment lives.
    """

    network: Annotated[str, doc("Name of the network in the project.")]
    namespace: Annotated[str, doc("Namespace of the network in the project.")] = ""
    prefixes: Annotated[
        list[AttachedPrefix], keyed("family"), doc("Where addresses come from, primary first.")
    ] = []
    mtu: Annotated[int, doc("Largest packet of the network, in bytes.")] = 0
    problem: Annotated[AttachmentProblem | None, doc("Set while there is no prefix.")] = None
    location: Annotated[str, doc("Name of the project's location that the city is.")] = ""


class WorkloadDeploymentSpec(ApiStruct, frozen=True, kw_only=True):
    workload_ref: WorkloadRef
    placement_name: Annotated[str, doc("Name of the workload's placement.")]
    city_code: Annotated[
        CityCode,
        doc("Code of the city that it runs in."),
        immutable("create a deployment for the other city instead"),
    ]
    template: InstanceTemplate
    scale_settings: ScaleSettings
    paused: Annotated[bool, doc("Hold a rollout where it is: nothing that runs is replaced.")] = (
        False
    )
    network_attachment: Annotated[
        NetworkAttachment | None, doc("The network in the city, once that is decided.")
    ] = None


class ObservedSource(ApiStruct, frozen=True, kw_only=True):
    """Which generation of the project's deployment this status speaks about."""

    generation: Annotated[int, doc("Generation of the deployment in the project.")] = 0
    template_hash: Annotated[str, doc("Identity of its template.")] = ""


class Endpoint(ApiStruct, frozen=True, kw_only=True):
    """Where a named port is reached from the host of the cell."""

    name: Annotated[ShortText, doc("Name of the port.")]
    host: Annotated[ShortText, doc("Address that is listened on.")]
    port: Annotated[int, doc("Port that is listened on.")]
    url: Annotated[ShortText, doc("The same as a URL.")]


class LastKnown(ApiStruct, frozen=True, kw_only=True):
    """What a cell said before it fell silent."""

    as_of: Annotated[str, doc("Since when it has not answered (RFC 3339).")]
    ready_replicas: Annotated[int, doc("Instances that were ready then.")] = 0


class GrantedSlots(ApiStruct, frozen=True, kw_only=True):
    """Slots that have quota for an instance of a size."""

    size: Annotated[ShortText, doc("What each was granted, such as 1000m/2048Mi.")]
    ordinals: Annotated[str, doc("Their numbers, such as 0-3,7.")]


class WorkloadDeploymentStatus(ReplicaCounts, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0
    observed_source: ObservedSource = ObservedSource()
    selector: Annotated[str, doc("Labels of its instances, as a selector: for autoscalers.")] = ""
    location: Annotated[
        NamespacedReference | None, doc("The project's location that the city is, once known.")
    ] = None
    progressed_at: Annotated[str | None, doc("When the rollout last made progress (RFC 3339).")] = (
        None
    )
    progress_reached: Annotated[
        int | None,
        doc(
            "The furthest that the rollout has come: instances updated plus instances available"
            " minus instances to be removed. Only a higher value is progress. Unset when the"
            " rollout is complete."
        ),
    ] = None
    endpoints: Annotated[
        list[Endpoint],
        MAP_BY_NAME,
        doc("Where its ports are reached; connections are balanced over what is ready."),
    ] = []
    granted: Annotated[
        list[GrantedSlots],
        keyed("size"),
        doc("Which ordinals have quota, as the cell keeps it for when its project is away."),
    ] = []
    last_known: Annotated[
        LastKnown | None,
        doc("Set while the cell does not answer: the other counts are as old, and none is ready."),
    ] = None


class WorkloadDeployment(ApiObject, frozen=True, kw_only=True):
    """WorkloadDeployment: the share of a Workload that one city runs."""

    spec: WorkloadDeploymentSpec
    status: WorkloadDeploymentStatus = WorkloadDeploymentStatus()


DEPLOYMENT = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="WorkloadDeployment",
    plural="workloaddeployments",
    model=WorkloadDeployment,
    short_names=("wd",),
    categories=("all", "compute"),
    selectable=selectable_fields("spec.cityCode", "spec.placementName", "spec.workloadRef.name"),
    scale=Scale(".spec.scaleSettings.minReplicas", ".status.replicas", ".status.selector"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("City", ".spec.cityCode"),
        Column("Available", '.status.conditions[?(@.type=="Available")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        Column("Replicas", ".status.replicas", "integer"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Desired", ".status.desiredReplicas", "integer"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
        Column("Location Namespace", ".status.location.namespace", wide=True),
        Column("Location Name", ".status.location.name", wide=True),
        *ROLLOUT_COLUMNS,
    ),
)
