"""Workload: a template and the cities it should run in. Written by users in their project."""

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
    keyed,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo

PROGRESSING = "Progressing"  # the condition that tells of a rollout

CityCode = Annotated[str, Meta(pattern=CITY_CODE, max_length=32)]


# A number of instances, or a share of them such as 25%; never none, or no rollout could move.
MaxUnavailable = (
    Annotated[int, Meta(ge=1, le=1000)]
    | Annotated[str, Meta(pattern="^([1-9][0-9]?|100)%$", max_length=4)]
)


class ScaleSettings(ApiStruct, frozen=True, kw_only=True):
    """How many instances run, and in which order they come and go."""

    min_replicas: Annotated[int, Meta(ge=1, le=1000), doc("Instances in each city.")]
    instance_management_policy: Annotated[
        Literal["OrderedReady", "Parallel"],
        doc(
            "OrderedReady: one at a time, each when all before it are ready. Parallel: all at "
            "once; a rollout still keeps to maxUnavailable."
        ),
    ] = "OrderedReady"
    max_unavailable: Annotated[
        MaxUnavailable,
        doc(
            "How many instances of a city a rollout may have out of service at a time, as a number "
            "or as a percentage (rounded down, at least one)."
        ),
    ] = 1
    min_ready_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=86_400)] | None,
        doc(
            "How many seconds an instance must be ready before it counts as available; a rollout "
            "replaces the next instance only then. If omitted: 0 where a readinessProbe or a "
            "TCP port is checked or the instances are simulated, otherwise 5."
        ),
    ] = None
    progress_deadline_seconds: Annotated[
        int,
        Meta(ge=1, le=86_400),
        doc("A rollout without progress for so long is reported as ProgressDeadlineExceeded."),
    ] = 600


class CityFloor(ApiStruct, frozen=True, kw_only=True):
    """How little is too little in one city."""

    city_code: Annotated[CityCode, doc("One of the cityCodes of the placement.")]
    ready_replicas: Annotated[
        int,
        Meta(ge=1, le=1000),
        doc("With fewer ready instances than that, for a while, the city has failed."),
    ]


class Placement(ApiStruct, frozen=True, kw_only=True):
    """Cities that are scaled alike."""

    name: Annotated[DnsLabel, doc("Name of the placement, unique in the workload.")]
    city_codes: Annotated[
        list[CityCode],
        Meta(min_length=1, max_length=100),
        SET,
        doc("Codes of the cities to run in, such as DFW; stored in upper case."),
    ]
    scale_settings: ScaleSettings
    fallback_city_codes: Annotated[
        list[CityCode],
        Meta(max_length=100),
        doc(
            "Cities that take the share of one that has failed, the first that is free. None: "
            "nothing ever moves by itself."
        ),
    ] = []
    city_floors: Annotated[
        list[CityFloor],
        Meta(max_length=100),
        keyed("cityCode"),
        doc("When a city has failed; one that is not named when none of its instances is ready."),
    ] = []
    fallback_after_seconds: Annotated[
        int,
        Meta(ge=30, le=86_400),
        doc("For how long a city must have been below its floor."),
    ] = 120


class CityRestart(ApiStruct, frozen=True, kw_only=True):
    """A restart of the instances in one city."""

    city_code: Annotated[CityCode, doc("Code of the city.")]
    at: Annotated[ShortText, doc("When it was asked for; a new value replaces every instance.")]


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    template: InstanceTemplate
    placements: Annotated[
        list[Placement],
        MAP_BY_NAME,
        Meta(min_length=1, max_length=32),
        doc("Where it runs."),
    ]
    paused: Annotated[
        bool,
        doc("Hold a rollout where it is: nothing that runs is replaced. Scaling goes on."),
    ] = False
    restarts: Annotated[
        list[CityRestart],
        keyed("cityCode"),
        Meta(max_length=100),
        doc("Restarts of single cities, the last one of each."),
    ] = []


class BlockedReplicas(ApiStruct, frozen=True, kw_only=True):
    """Instances that are wanted and not ready, for one reason."""

    reason: Annotated[str, doc("The reason of their Ready condition.")]
    replicas: Annotated[int, doc("How many there are.")]
    message: Annotated[str, doc("What the first of them says about it.")] = ""


class ReplicaCounts(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Said in full, because none is not the same as not known."""

    replicas: Annotated[int, doc("Instances that exist.")] = 0
    current_replicas: Annotated[
        int, doc("Instances of the current template whose machine is set up.")
    ] = 0
    updated_replicas: Annotated[int, doc("Instances of the current template, ready or not.")] = 0
    desired_replicas: Annotated[int, doc("Instances that there should be.")] = 0
    ready_replicas: Annotated[int, doc("Instances that are ready.")] = 0
    available_replicas: Annotated[
        int | None,
        doc("Instances that have been ready for minReadySeconds."),
    ] = None
    blocked: Annotated[
        list[BlockedReplicas],
        keyed("reason"),
        doc("Instances that are wanted and not ready, counted by reason."),
    ] = []

    @property
    def available_or_ready(self) -> int:
        """``available_replicas``; a cell of an older release does not report it, and there every
        ready instance counts as available."""
        available = self.available_replicas
        return self.ready_replicas if available is None else available


FallbackPhase = Literal["Engaging", "Engaged", "Returning", "Exhausted"]


class PlacementFallback(ApiStruct, frozen=True, kw_only=True):
    """A city whose share runs, or is to run, in another."""

    city_code: Annotated[str, doc("The city, as the placement names it.")]
    fallback_city_code: Annotated[str, doc("The city that takes its share.")] = ""
    phase: Annotated[
        FallbackPhase,
        doc(
            "Engaging: the other is coming up, nothing is removed yet. Engaged: it has taken over. "
            "Returning: on the way back. Exhausted: no fallback city is free."
        ),
    ]
    since: Annotated[str, doc("Since when the other city has been at it (RFC 3339).")] = ""


class PlacementStatus(ReplicaCounts, frozen=True, kw_only=True):
    """One placement, over all its cities."""

    name: Annotated[str, doc("Name of the placement.")]
    conditions: Conditions = []
    fallbacks: Annotated[
        list[PlacementFallback],
        keyed("cityCode"),
        doc("Cities whose share runs, or is to run, elsewhere."),
    ] = []


class WorkloadStatus(ReplicaCounts, frozen=True, kw_only=True):
    conditions: Conditions = []
    deployments: Annotated[int, doc("Deployments, one for each placement and city.")] = 0
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0
    placements: Annotated[
        list[PlacementStatus], MAP_BY_NAME, doc("The same, placement by placement.")
    ] = []


class Workload(ApiObject, frozen=True, kw_only=True):
    """Workload: a template and the cities it should run in. Written by users in their project."""

    spec: WorkloadSpec
    status: WorkloadStatus = WorkloadStatus()


# How far a rollout has come, and what holds back most of what is not ready.
ROLLOUT_COLUMNS = (
    Column("Progressing", '.status.conditions[?(@.type=="Progressing")].reason', wide=True),
    Column("Blocked", ".status.blocked[0].reason", wide=True),
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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Available", '.status.conditions[?(@.type=="Available")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Available")].reason'),
        Column("Deployments", ".status.deployments", "integer"),
        Column("Replicas", ".status.replicas", "integer"),
        Column("Ready", ".status.readyReplicas", "integer"),
        Column("Desired", ".status.desiredReplicas", "integer"),
        Column("Up-to-date", ".status.updatedReplicas", "integer"),
        *ROLLOUT_COLUMNS,
    ),
)
