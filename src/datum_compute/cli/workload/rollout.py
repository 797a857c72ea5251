"""Whether a rollout is done, decided from what the project plane says. Pure.

Done means: the Workload's status speaks about the wanted generation, and for every placement and
city *of the spec* (not: of what happens to exist) there is a deployment whose status speaks about
its own generation and says updated = ready = available = replicas = desired. Anything less is not
done:

- an old status is no news about a new spec, however healthy it looks;
- a deployment that does not exist yet is waited for;
- replicas beyond the desired ones, or of the old template, are still to go;
- an instance that is ready and not available yet may be about to exit again.

Deployments of cities that the spec no longer names are shown as being removed, but do not hold up
the rollout: an unreachable cell must not keep a deploy from finishing elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE, READY, Instance
from datum_compute.api.compute.workload import PROGRESSING, Workload
from datum_compute.api.conditions import TRUE, Condition, Reason, find_condition
from datum_compute.api.labels import CITY_CODE, FALLBACK_FOR, PLACEMENT_NAME
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import normalize_city
from datum_compute.planning.rollout.slots import UNCHECKED_MIN_READY_S
from datum_compute.planning.rollout.stopping import grace_period_s
from datum_compute.planning.workload.templates import template_hash

# Reasons that only point at another object, which knows the cause.
POINTERS = frozenset(
    (
        "NoAvailablePlacements",
        "NoAvailableDeployments",
        "InstancesProvisioning",
        "QuotaNotGranted",
        "ReferencedDataNotReady",
        "PendingQuota",
        "SchedulingGatesPresent",
    )
)


class Phase(StrEnum):
    WAITING = "Waiting"
    UPDATING = "Updating"
    DONE = "Done"
    REMOVING = "Removing"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One share of a workload: a placement in a city."""

    placement: str
    city: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason and message of a condition, word for word; both empty when nothing is said."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PlaceProgress:
    place: Place
    phase: Phase
    ready: int = 0
    available: int = 0
    updated: int = 0
    replicas: int = 0
    desired: int = 0
    cause: Cause = Cause()


@dataclass(frozen=True, slots=True)
class Progress:
    """``observed``: the workload controller has seen the wanted generation."""

    observed: bool
    places: tuple[PlaceProgress, ...]
    removing: tuple[PlaceProgress, ...]
    workload_cause: Cause
    asleep: int = 0
    paused: bool = False  # nothing moves until it is resumed

    @property
    def done(self) -> bool:
        return self.observed and all(p.phase is Phase.DONE for p in self.places)

    @property
    def blocker(self) -> tuple[Place | None, Cause]:
        """Where it is stuck and why: a real cause before a pointer, the workload's own last."""
        stuck = [p for p in self.places if p.phase is not Phase.DONE]
        told = [p for p in stuck if p.cause.reason] or stuck
        if told:
            first = min(told, key=lambda p: (p.cause.reason in POINTERS, p.place))
            if first.cause.reason:
                return first.place, first.cause
        if self.workload_cause.reason:
            return None, self.workload_cause
        return (told[0].place, told[0].cause) if told else (None, Cause())


def assess_rollout(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    instances: Sequence[Instance],
    *,
    generation: int = 0,
) -> Progress:
    """Progress towards ``generation`` (or a later one that the workload has by now).

    The workload must have been read before the deployments, and those before the instances:
    then a deployment can be newer than the status that speaks of it, but never older.
    """
    wanted = max(generation, workload.metadata.generation)
    by_place = _by_place(deployments)
    expected = _expected(workload, by_place)
    return Progress(
        observed=workload.status.observed_generation >= wanted,
        places=tuple(_progress(p, by_place.get(p), instances, workload) for p in expected),
        removing=tuple(
            _counts(place, Phase.REMOVING, found, instances)
            for place, found in sorted(by_place.items())
            if place not in expected
        ),
        workload_cause=_not_true(workload.status.conditions, AVAILABLE),
        asleep=sum(is_asleep(instance) for instance in instances),
        paused=workload.spec.paused and _all_paused(deployments),
    )


def _expected(workload: Workload, by_place: Mapping[Place, WorkloadDeployment]) -> list[Place]:
    """The cities of the placements; in the place of one whose share has moved the one it runs in,
    and both while it moves."""
    elsewhere: dict[Place, list[Place]] = {}
    for place, found in by_place.items():
        city = found.metadata.annotations.get(FALLBACK_FOR)
        if city and not found.is_terminating:
            elsewhere.setdefault(Place(place.placement, city), []).append(place)
    expected: dict[Place, None] = {}
    for placement in workload.spec.placements:
        for city in placement.city_codes:
            own = Place(placement.name, normalize_city(city))
            moved = elsewhere.get(own, [])
            stays = own in by_place and not by_place[own].is_terminating
            expected |= dict.fromkeys(([own] if stays or not moved else []) + moved)
    return sorted(expected)


def _by_place(deployments: Iterable[WorkloadDeployment]) -> dict[Place, WorkloadDeployment]:
    """The deployment of each place; one that is going away only where there is no other."""
    found: dict[Place, WorkloadDeployment] = {}
    for deployment in sorted(deployments, key=lambda d: (d.is_terminating, d.metadata.name)):
        spec = deployment.spec
        found.setdefault(Place(spec.placement_name, normalize_city(spec.city_code)), deployment)
    return found


def _progress(
    place: Place,
    deployment: WorkloadDeployment | None,
    instances: Sequence[Instance],
    workload: Workload,
) -> PlaceProgress:
    if deployment is None:
        desired = next(
            p.scale_settings.min_replicas
            for p in workload.spec.placements
            if p.name == place.placement
        )
        return PlaceProgress(place, Phase.WAITING, desired=desired)
    if deployment.is_terminating:
        return _counts(place, Phase.WAITING, deployment, instances)
    found = _counts(place, Phase.UPDATING, deployment, instances)
    counts = {found.updated, found.ready, found.available, found.replicas}
    if _is_told(deployment) and counts == {found.desired}:
        return replace(found, phase=Phase.DONE, cause=Cause())
    return found


def _counts(
    place: Place, phase: Phase, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> PlaceProgress:
    status = deployment.status
    told = _is_told(deployment)
    desired = status.desired_replicas if told else 0
    return PlaceProgress(
        place=place,
        phase=phase,
        ready=status.ready_replicas,
        available=status.available_or_ready,
        updated=_updated(place, deployment, instances),
        replicas=status.replicas,
        # Zero is what a status says that was never written: nobody can want less than one.
        desired=desired or deployment.spec.scale_settings.min_replicas,
        cause=_cause(place, deployment, instances),
    )


def _updated(place: Place, deployment: WorkloadDeployment, instances: Sequence[Instance]) -> int:
    """Return how many instances have the current template.

    An old status counts those with the template of that time, which is the current one if only the
    scale has changed. Without a federation the status does not name its template.
    """
    status, current = deployment.status, template_hash(deployment.spec.template)
    reported = status.observed_source.template_hash
    if _is_told(deployment) or reported == current:
        return status.updated_replicas
    if reported:
        return 0
    here = (i for i in instances if place_of(i) == place)
    return sum(i.status.controller.observed_template_hash == current for i in here)


def _is_told(deployment: WorkloadDeployment) -> bool:
    """Whether the status speaks about the deployment as it is now."""
    return deployment.status.observed_generation >= deployment.metadata.generation


def is_asleep(instance: Instance) -> bool:
    """It serves all the same: the first connection wakes it."""
    said = find_condition(instance.status.conditions, AVAILABLE)
    return said is not None and said.reason == Reason.ASLEEP and not instance.is_terminating


def _all_paused(deployments: Sequence[WorkloadDeployment]) -> bool:
    """Whether each is done, or has all its instances and waits to be resumed."""
    return bool(deployments) and all(_is_settled(deployment) for deployment in deployments)


def _is_settled(deployment: WorkloadDeployment) -> bool:
    status = deployment.status
    said = find_condition(status.conditions, PROGRESSING)
    held = said is not None and said.reason in (Reason.ROLLOUT_PAUSED, Reason.ROLLOUT_COMPLETE)
    whole = status.replicas == status.ready_replicas == status.desired_replicas
    return held and whole and _is_told(deployment)


def is_overdue(deployment: WorkloadDeployment) -> bool:
    """Whether it says, of what it is now, that its rollout takes too long."""
    said = find_condition(deployment.status.conditions, PROGRESSING)
    overdue = said is not None and said.reason == Reason.PROGRESS_DEADLINE_EXCEEDED
    return overdue and _is_told(deployment)


def settling_s(deployments: Sequence[WorkloadDeployment]) -> float:
    """Return how long the ready instances need at most to become available."""
    settling = [
        UNCHECKED_MIN_READY_S if seconds is None else seconds
        for d in deployments
        if d.status.available_or_ready < d.status.ready_replicas
        for seconds in [d.spec.scale_settings.min_ready_seconds]
    ]
    return max(settling, default=0)


@dataclass(slots=True)
class StallTimer:
    """Measures how long a rollout has taken no step.

    The grace period of an instance that stops is no stall. It counts once for each instance, from
    when it was first seen stopping, because the clock of the platform may differ.
    """

    moved_s: float = 0.0
    is_waiting: bool = False  # for an instance to stop, within its grace period
    _counts: object = None
    _stopping_since_s: dict[str, float] = field(default_factory=dict)

    def record(self, counts: object, instances: Iterable[Instance], now_s: float) -> None:
        """Record what was observed now. ``counts`` changes with every step of the rollout."""
        if counts != self._counts:
            self._counts, self.moved_s = counts, now_s
        self.is_waiting = False
        for instance in filter(is_stopping, instances):
            since_s = self._stopping_since_s.setdefault(instance.metadata.uid, now_s)
            ends_s = since_s + grace_period_s(instance)
            self.is_waiting = self.is_waiting or now_s < ends_s
            self.moved_s = max(self.moved_s, min(now_s, ends_s))


def is_stopping(instance: Instance) -> bool:
    ready = find_condition(instance.status.conditions, READY)
    said = ready is not None and ready.reason == Reason.STOPPING
    return said or instance.is_terminating


def _cause(place: Place, deployment: WorkloadDeployment, instances: Sequence[Instance]) -> Cause:
    """Why the place is not ready: a cause before a pointer, an instance before its deployment."""
    here = sorted(
        (i for i in instances if place_of(i) == place), key=lambda instance: instance.metadata.name
    )
    candidates = [_not_true(i.status.conditions, READY) for i in here]
    conditions = deployment.status.conditions
    candidates += [_not_true(conditions, type_) for type_ in (AVAILABLE, PROGRESSING)]
    told = [cause for cause in candidates if cause.reason]
    return min(told, key=lambda cause: cause.reason in POINTERS, default=Cause())


def place_of(instance: Instance) -> Place:
    labels = instance.metadata.labels
    return Place(labels.get(PLACEMENT_NAME, ""), normalize_city(labels.get(CITY_CODE, "")))


def place_document(progress: PlaceProgress) -> JsonObject:
    return {
        "city": progress.place.city,
        "placement": progress.place.placement,
        "rollout": str(progress.phase),
        "ready": progress.ready,
        "available": progress.available,
        "updated": progress.updated,
        "replicas": progress.replicas,
        "desired": progress.desired,
        "reason": progress.cause.reason,
        "message": progress.cause.message,
    }


def _not_true(conditions: Iterable[Condition], type_: str) -> Cause:
    """What a condition says against being ready.

    Its observedGeneration is not asked: it comes from a cell, which counts its own generations.
    """
    found = find_condition(conditions, type_)
    if found is None or found.status == TRUE:
        return Cause()
    return Cause(found.reason, found.message)
