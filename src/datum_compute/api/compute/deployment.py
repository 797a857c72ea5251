"""WorkloadDeployment: the instances of a Workload in one city.

The scale subresource reads and writes the replicas of its placement. The owner overwrites it, as
for a ReplicaSet of Kubernetes: scale the Workload instead.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import (
    ROLLOUT_COLUMNS,
    BlockedReplicas,
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
    map_by,
)
from datum_compute.api.meta.objects import (
    ApiObject,
    KindInfo,
    Scale,
    TableColumn,
    selectable_fields,
)

REPLICAS_READY = "ReplicasReady"  # the condition type


class WorkloadRef(ApiStruct, frozen=True, kw_only=True):
    """The Workload that owns this object."""

    name: Annotated[str, doc("Name of the Workload.")]
    uid: Annotated[str, doc("UID of the Workload in its project.")]


class AttachedPrefix(ApiStruct, frozen=True, kw_only=True):
    """Address range of one family from which instances of the deployment get their addresses."""

    family: Annotated[IpFamily, doc("Address family.")]
    prefix: Annotated[str, doc("Prefix of the network in the city, such as 10.128.16.0/20.")]
    gateway: Annotated[
        str, doc("Address of the gateway in the prefix. No instance gets this address.")
    ]


class AttachmentProblem(ApiStruct, frozen=True, kw_only=True):
    """Reason why the network has no prefix in the city."""

    reason: Annotated[str, doc("One-word cause in CamelCase, for programs.")]
    message: Annotated[str, doc("Cause in words, for people.")] = ""


class NetworkAttachment(ApiStruct, frozen=True, kw_only=True):
    """Network of the deployment in its city, written by the platform. A prefix that is listed here
    stays attached as long as the deployment exists.
    """

    network: Annotated[str, doc("Name of the Network in the project.")]
    namespace: Annotated[str, doc("Namespace of the Network in the project.")] = ""
    prefixes: Annotated[
        list[AttachedPrefix],
        map_by("family"),
        doc("Prefixes from which instances get addresses. The first is the primary one."),
    ] = []
    mtu: Annotated[int, doc("Largest packet of the network, in bytes.")] = 0
    problem: Annotated[
        AttachmentProblem | None, doc("Why there is no prefix. Unset as soon as there is one.")
    ] = None
    location: Annotated[
        str, doc("Name of the Location of the project that the city belongs to.")
    ] = ""


class WorkloadDeploymentSpec(ApiStruct, frozen=True, kw_only=True):
    workload_ref: Annotated[
        WorkloadRef, immutable("create a deployment for the other workload instead")
    ]
    placement_name: Annotated[str, doc("Name of the placement of the Workload.")]
    city_code: Annotated[
        CityCode,
        doc("Code of the city in which the instances run."),
        immutable("create a deployment for the other city instead"),
    ]
    template: InstanceTemplate
    scale_settings: ScaleSettings
    paused: Annotated[
        bool,
        doc("Whether the rollout is paused. No running instance is replaced while this is true."),
    ] = False
    suspended: Annotated[
        bool,
        doc(
            "Whether the instances are stopped because the project is suspended. Written by the "
            "platform."
        ),
    ] = False
    stopped: Annotated[
        bool, doc("Whether the instances are stopped because the workload is stopped.")
    ] = False
    network_attachment: Annotated[
        NetworkAttachment | None,
        doc(
            "Network of the deployment in its city. Unset until the platform has assigned a prefix."
        ),
    ] = None


class ObservedSource(ApiStruct, frozen=True, kw_only=True):
    """Version of the deployment in the project that this status describes."""

    generation: Annotated[int, doc("Generation of the deployment in the project.")] = 0
    template_hash: Annotated[str, doc("Hash of its template.")] = ""


class Endpoint(ApiStruct, frozen=True, kw_only=True):
    """Address at which a named port can be reached from the host of the cell."""

    name: Annotated[ShortText, doc("Name of the port.")]
    host: Annotated[ShortText, doc("Address of the listener.")]
    port: Annotated[int, doc("Port of the listener.")]
    url: Annotated[ShortText, doc("The same address as a URL.")]


class LastKnown(ApiStruct, frozen=True, kw_only=True):
    """State that a cell reported before it became unreachable."""

    as_of: Annotated[str, doc("Time since when the cell is unreachable (RFC 3339).")]
    ready_replicas: Annotated[int, doc("Number of instances that were ready at that time.")] = 0


class GrantedSlots(ApiStruct, frozen=True, kw_only=True):
    """Instance slots that have quota for one size."""

    size: Annotated[ShortText, doc("Granted resources of each slot, such as 1000m/2048Mi.")]
    ordinals: Annotated[str, doc("Ordinals of the slots, such as 0-3,7.")]


class SurgeSlots(ApiStruct, frozen=True, kw_only=True):
    """Surge instances of a rollout."""

    template_hash: Annotated[str, doc("Hash of the template that the rollout installs.")]
    ordinals: Annotated[str, doc("Ordinals of the surge instances, such as 3-4.")] = ""
    created: Annotated[
        str,
        doc("Ordinals of the surge instances that were created for the template, each once."),
    ] = ""
    blocked: Annotated[
        list[BlockedReplicas],
        map_by("reason"),
        doc("Surge instances that are not ready, grouped by reason."),
    ] = []


class WorkloadDeploymentStatus(ReplicaCounts, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0
    observed_source: ObservedSource = ObservedSource()
    selector: Annotated[str, doc("Label selector of the instances, for autoscalers.")] = ""
    location: Annotated[
        NamespacedReference | None,
        doc("Location of the project that the city belongs to. Unset until it is known."),
    ] = None
    progressed_at: Annotated[
        str | None, doc("Time when the rollout last made progress (RFC 3339).")
    ] = None
    resumed_at: Annotated[
        str | None,
        doc(
            "Time when the deployment last resumed after it was suspended or stopped (RFC 3339). "
            "Unset if it never did."
        ),
    ] = None
    progress_reached: Annotated[
        int | None,
        doc(
            "Highest progress of the current rollout: updated instances plus "
            "available instances minus instances that are still to be removed. Only "
            "a higher value counts as progress. Unset when the rollout is complete."
        ),
    ] = None
    endpoints: Annotated[
        list[Endpoint],
        MAP_BY_NAME,
        doc(
            "Addresses at which the ports can be reached. Connections are balanced "
            "over ready instances."
        ),
    ] = []
    granted: Annotated[
        list[GrantedSlots],
        map_by("size"),
        doc("Slots that have quota. The cell uses this list while its project is unreachable."),
    ] = []
    surge: Annotated[
        SurgeSlots | None,
        doc("Surge instances of the current rollout. Unset when the rollout is complete."),
    ] = None
    last_known: Annotated[
        LastKnown | None,
        doc(
            "Set while the cell is unreachable. The other counts are from that "
            "time, and no instance counts as ready."
        ),
    ] = None


class WorkloadDeployment(ApiObject, frozen=True, kw_only=True):
    """A WorkloadDeployment runs the instances of one Workload in one city. The Workload creates it
    and sets its number of replicas.
    """

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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("City", ".spec.cityCode"),
        TableColumn("Available", '.status.conditions[?(@.type=="Available")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        TableColumn("Replicas", ".status.replicas", "integer"),
        TableColumn("Ready", ".status.readyReplicas", "integer"),
        TableColumn("Desired", ".status.desiredReplicas", "integer"),
        TableColumn("Up-to-date", ".status.updatedReplicas", "integer"),
        TableColumn("Location Namespace", ".status.location.namespace", wide=True),
        TableColumn("Location Name", ".status.location.name", wide=True),
        *ROLLOUT_COLUMNS,
    ),
)
