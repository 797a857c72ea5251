"""Workload: a template and the cities in which its instances run. Users create it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    CITY_CODE,
    MAP_BY_NAME,
    SET,
    DnsLabel,
    ShortText,
    doc,
    map_by,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn

PROGRESSING = "Progressing"  # the condition type of rollouts

CityCode = Annotated[str, Meta(pattern=CITY_CODE, max_length=32)]


# Number or percentage of instances.
InstanceShare = (
    Annotated[int, Meta(ge=0, le=1000)]
    | Annotated[str, Meta(pattern="^([1-9]?[0-9]|100)%$", max_length=4)]
)


class ScaleSettings(ApiStruct, frozen=True, kw_only=True):
    """Number of instances, and the order in which they are created and replaced."""

    min_replicas: Annotated[int, Meta(ge=1, le=1000), doc("Number of instances in each city.")]
    instance_management_policy: Annotated[
        Literal["OrderedReady", "Parallel"],
        doc(
            "OrderedReady creates one instance at a time, when all instances before "
            "it are ready. Parallel creates all at once. A rollout respects "
            "maxUnavailable in both cases."
        ),
    ] = "OrderedReady"
    max_unavailable: Annotated[
        InstanceShare | None,
        doc(
            "Largest number of instances of a city that can be unavailable during a "
            "rollout, as a number or a percentage. A percentage is rounded down. It "
            "can be 0 if surge instances are allowed, and is at least 1 otherwise. "
            "Defaults to 0 if surge instances are allowed, and to 1 otherwise."
        ),
    ] = None
    max_surge: Annotated[
        InstanceShare | None,
        doc(
            "Largest number of instances of a city that exist during a rollout in "
            "addition to minReplicas, as a number or a percentage. A percentage is "
            "rounded up. 0 is for programs that must not run twice. Defaults to 1 if "
            "minReplicas is 1, and to 0 otherwise. A workload with scaleToZero has no "
            "surge instances."
        ),
    ] = None
    min_ready_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)] | None,
        doc(
            "Seconds for which an instance must be ready before it counts as "
            "available. A rollout replaces the next instance only then. Defaults to "
            "0 if the template has a readinessProbe or a TCP port, or if instances "
            "are simulated, and to 5 otherwise."
        ),
    ] = None
    progress_deadline_seconds: Annotated[
        int,
        Meta(ge=1, le=86_400),
        doc(
            "Seconds without progress after which a rollout is reported as "
            "ProgressDeadlineExceeded."
        ),
    ] = 600

    @property
    def unavailable_limit(self) -> int | str | None:
        """Return the value of maxUnavailable that is in effect; None for the computed default.

        0.1.0 stored its default, 1. Without maxSurge a stored 1 therefore means the same as no
        value, so that a rollout keeps the only instance of a city in service.
        """
        is_former_default = self.max_surge is None and self.max_unavailable == 1
        return None if is_former_default else self.max_unavailable


class CityFloor(ApiStruct, frozen=True, kw_only=True):
    """Number of ready instances below which a city has failed."""

    city_code: Annotated[CityCode, doc("A city of cityCodes of the placement.")]
    ready_replicas: Annotated[
        int,
        Meta(ge=1, le=1000),
        doc("The city has failed if fewer instances are ready for fallbackAfterSeconds."),
    ]


class Placement(ApiStruct, frozen=True, kw_only=True):
    """Cities that share the same scale settings."""

    name: Annotated[DnsLabel, doc("Name of the placement, unique in the workload.")]
    city_codes: Annotated[
        list[CityCode],
        Meta(min_length=1, max_length=100),
        SET,
        doc(
            "Codes of the cities in which instances run, such as DFW. They are "
            "stored in upper case."
        ),
    ]
    scale_settings: ScaleSettings
    fallback_city_codes: Annotated[
        list[CityCode],
        Meta(max_length=100),
        doc(
            "Cities that replace a failed city. The first unused city is chosen. If "
            "empty, instances never move to another city."
        ),
    ] = []
    city_floors: Annotated[
        list[CityFloor],
        Meta(max_length=100),
        map_by("cityCode"),
        doc(
            "When a city has failed. A city that is not listed has failed if none "
            "of its instances is ready."
        ),
    ] = []
    fallback_after_seconds: Annotated[
        int,
        Meta(ge=30, le=86_400),
        doc("Seconds for which a city must be below its floor before it has failed."),
    ] = 120


class CityRestart(ApiStruct, frozen=True, kw_only=True):
    """A restart of all instances in one city."""

    city_code: Annotated[CityCode, doc("Code of the city.")]
    at: Annotated[
        ShortText, doc("Time of the request. A new value replaces each instance of the city.")
    ]


class RolloutPolicy(ApiStruct, frozen=True, kw_only=True):
    """Order in which cities get a new template, and what happens if one fails."""

    city_order: Annotated[
        Literal["Parallel", "Sequential", "CanaryCity"] | None,
        doc(
            "Parallel updates all cities at once. Sequential updates one city after the "
            "other, in the order of placements and their cityCodes. CanaryCity updates one "
            "city first, then all others at once. Defaults to Sequential with two or more "
            "cities."
        ),
    ] = None
    canary_city: Annotated[
        CityCode | None,
        doc("City that CanaryCity updates first. Defaults to the first city."),
    ] = None
    on_failure: Annotated[
        Literal["Stop", "Rollback"],
        doc(
            "What happens if the rollout exceeds its progress deadline in a city. Stop keeps "
            "the template of the cities that wait. Rollback gives all cities the last "
            "template that every city completed, or that of the previous revision if there is "
            "none, and does not change this spec."
        ),
    ] = "Stop"


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    template: InstanceTemplate
    placements: Annotated[
        list[Placement],
        MAP_BY_NAME,
        Meta(min_length=1, max_length=32),
        doc("Cities in which the workload runs."),
    ]
    paused: Annotated[
        bool,
        doc(
            "Whether rollouts are paused. No running instance is replaced while "
            "this is true. Scaling continues."
        ),
    ] = False
    stopped: Annotated[
        bool,
        doc(
            "Whether the instances are stopped. They keep their names, addresses and quota, and "
            "start again when this is false. Changes of the spec take effect then."
        ),
    ] = False
    restarts: Annotated[
        list[CityRestart],
        map_by("cityCode"),
        Meta(max_length=100),
        doc("Last restart of each city."),
    ] = []
    rollout: Annotated[RolloutPolicy, doc("How a new template is rolled out to the cities.")] = (
        RolloutPolicy()
    )


class BlockedReplicas(ApiStruct, frozen=True, kw_only=True):
    """Desired instances that are not ready for the same reason."""

    reason: Annotated[str, doc("Reason of their Ready condition.")]
    replicas: Annotated[int, doc("Number of instances.")]
    message: Annotated[str, doc("Message of the first of these instances.")] = ""


class ReplicaCounts(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Numbers of instances. All counts are written, because 0 differs from unknown.

    Surge instances count in ``surge_replicas`` only.
    """

    replicas: Annotated[int, doc("Number of existing instances.")] = 0
    current_replicas: Annotated[
        int, doc("Number of instances of the current template whose machine is set up.")
    ] = 0
    updated_replicas: Annotated[
        int, doc("Number of instances of the current template, ready or not.")
    ] = 0
    desired_replicas: Annotated[int, doc("Desired number of instances.")] = 0
    ready_replicas: Annotated[int, doc("Number of ready instances.")] = 0
    available_replicas: Annotated[
        int | None,
        doc("Number of instances that have been ready for minReadySeconds."),
    ] = None
    surge_replicas: Annotated[
        int,
        doc(
            "Number of existing surge instances, which run in addition to the desired "
            "ones until a rollout is complete. No other count includes them."
        ),
    ] = 0
    covered_replicas: Annotated[
        int,
        doc(
            "Number of desired instances that are not ready while a ready surge instance "
            "serves in their place."
        ),
    ] = 0
    blocked: Annotated[
        list[BlockedReplicas],
        map_by("reason"),
        doc("Desired instances that are not ready, grouped by reason."),
    ] = []

    @property
    def available_or_ready(self) -> int:
        """Return ``available_replicas``, or ``ready_replicas`` if it is unset.

        Cells of older releases do not report available replicas.
        """
        available = self.available_replicas
        return self.ready_replicas if available is None else available


FallbackPhase = Literal["Engaging", "Engaged", "Returning", "Exhausted"]


class PlacementFallback(ApiStruct, frozen=True, kw_only=True):
    """A city whose instances run, or start, in another city."""

    city_code: Annotated[str, doc("The failed city, as in the placement.")]
    fallback_city_code: Annotated[str, doc("The city that replaces it.")] = ""
    phase: Annotated[
        FallbackPhase,
        doc(
            "Engaging means that instances start in the fallback city and none is "
            "removed yet. Engaged means that the fallback city has replaced the "
            "failed one. Returning means that instances move back. Exhausted means "
            "that no fallback city is available."
        ),
    ]
    since: Annotated[str, doc("Time since when the fallback city is used (RFC 3339).")] = ""


class PlacementStatus(ReplicaCounts, frozen=True, kw_only=True):
    """Status of a placement, over all its cities."""

    name: Annotated[str, doc("Name of the placement.")]
    conditions: Conditions = []
    fallbacks: Annotated[
        list[PlacementFallback],
        map_by("cityCode"),
        doc("Cities whose instances run, or start, in another city."),
    ] = []


CityRolloutState = Literal["Waiting", "RollingOut", "Done", "Failed", "Skipped"]


class CityRollout(ApiStruct, frozen=True, kw_only=True):
    """The rollout of the current template in one city of a placement."""

    placement: Annotated[str, doc("Name of the placement.")]
    city: Annotated[str, doc("Code of the city, as in the placement.")]
    state: Annotated[
        CityRolloutState,
        doc(
            "Waiting means that the city keeps its template until its turn. Skipped means "
            "that the city cannot be updated now, because its cell is unreachable or no cell "
            "accepts its deployment."
        ),
    ]
    reason: Annotated[str, doc("Reason of the state in CamelCase, if there is one.")] = ""
    message: Annotated[str, doc("Reason of the state in words.")] = ""
    template_hash: Annotated[
        str, doc("Hash of the template of the city, without restarts of the city.")
    ] = ""


class WorkloadRollout(ApiStruct, frozen=True, kw_only=True):
    """The rollout of the current template, city by city."""

    template_hash: Annotated[str, doc("Hash of the template that cities get.")] = ""
    cities: Annotated[
        list[CityRollout],
        map_by("placement", "city"),
        doc("State of each city, in the order of the rollout."),
    ] = []
    completed_template_hash: Annotated[
        str, doc("Hash of the last template that all cities completed, except skipped ones.")
    ] = ""
    failed_template_hash: Annotated[
        str, doc("Hash of the template that was rolled back. Empty unless it is the current one.")
    ] = ""
    failed_revision: Annotated[
        int | None, doc("Revision that was rolled back. Unset unless it is the current one.")
    ] = None
    running_revision: Annotated[
        int | None, doc("Revision whose template the cities run after a rollback.")
    ] = None


class WorkloadStatus(ReplicaCounts, frozen=True, kw_only=True):
    conditions: Conditions = []
    deployments: Annotated[
        int, doc("Number of WorkloadDeployments, one for each placement and city.")
    ] = 0
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0
    placements: Annotated[list[PlacementStatus], MAP_BY_NAME, doc("Status of each placement.")] = []
    rollout: Annotated[WorkloadRollout, doc("Rollout of the current template, city by city.")] = (
        WorkloadRollout()
    )


class Workload(ApiObject, frozen=True, kw_only=True):
    """A Workload runs instances of a template in one or more cities. Users create it in their
    project.
    """

    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()


# Columns with the progress of a rollout and the most frequent reason of instances that are not
# ready.
ROLLOUT_COLUMNS = (
    TableColumn("Progressing", '.status.conditions[?(@.type=="Progressing")].reason', wide=True),
    TableColumn("Blocked", ".status.blocked[0].reason", wide=True),
)

WORKLOAD = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="Workload",
    plural="workloads",
    model=Workload,
    short_names=("wl",),
    categories=("all", "compute"),
    scaled_by=(
        "every placement has a number of its own; use `datumctl compute scale`, or change "
        "spec.placements[].scaleSettings.minReplicas"
    ),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Available", '.status.conditions[?(@.type=="Available")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        TableColumn("Deployments", ".status.deployments", "integer"),
        TableColumn("Replicas", ".status.replicas", "integer"),
        TableColumn("Ready", ".status.readyReplicas", "integer"),
        TableColumn("Desired", ".status.desiredReplicas", "integer"),
        TableColumn("Up-to-date", ".status.updatedReplicas", "integer"),
        *ROLLOUT_COLUMNS,
    ),
)
