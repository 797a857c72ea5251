"""Progress of a rollout, computed from the objects of the project. Pure.

A rollout is done if the status of the Workload has observed the wanted generation and, for each
placement and city of the spec, a deployment exists whose status has observed its own generation and
reports updated = ready = available = replicas = desired. It is not done in these cases:

- a status of an earlier generation, even if it is healthy;
- a deployment that does not exist yet;
- replicas beyond the desired number, or with the old template;
- an instance that is ready but not yet available, because it may exit again;
- a city that the status of the Workload lists as waiting for its turn, failed or skipped;
- a rollback, which returns all cities to an earlier template.

Deployments in cities that the spec no longer names are listed as being removed. They do not delay
the rollout: an unreachable cell must not keep a deploy from finishing in other cities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE, READY, Instance
from datum_compute.api.compute.workload import PROGRESSING, Workload, WorkloadRollout
from datum_compute.api.conditions import TRUE, Condition, Reason, find_condition
from datum_compute.api.labels import CITY_CODE, FALLBACK_FOR, PLACEMENT_NAME
from datum_compute.api.planes import normalize_city
from datum_compute.cli.render.documents import PlaceDocument
from datum_compute.planning.rollout.slots import UNCHECKED_MIN_READY_S
from datum_compute.planning.rollout.stopping import grace_period_s
from datum_compute.planning.rollout.suspension import HALT_REASONS, halt_reason
from datum_compute.planning.workload.names import Place, place_of_deployment
from datum_compute.planning.workload.templates import template_hash

# Reasons that refer to another object, which has the cause.
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
    FAILED = "Failed"
    SKIPPED = "Skipped"
    REMOVING = "Removing"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"


# Phases that only the status of the Workload shows: the deployment of the city can look complete.
_CITY_PHASES = {"Waiting": Phase.WAITING, "Failed": Phase.FAILED, "Skipped": Phase.SKIPPED}


@dataclass(frozen=True, slots=True)
class RolloutCause:
    """Reason and message of a condition, unchanged; both are empty without a condition."""

    reason: str = ""
    message: str = ""
    since: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PlaceProgress:
    place: Place
    phase: Phase
    ready: int = 0
    covered: int = 0  # not ready, and a surge instance serves instead
    available: int = 0
    updated: int = 0
    replicas: int = 0
    desired: int = 0
    cause: RolloutCause = RolloutCause()


@dataclass(frozen=True, slots=True)
class Progress:
    """``observed``: the workload controller has observed the wanted generation."""

    observed: bool
    places: tuple[PlaceProgress, ...]
    removing: tuple[PlaceProgress, ...]
    workload_cause: RolloutCause
    asleep: int = 0
    paused: bool = False  # no instance is replaced until the rollout is resumed
    # Why the instances do not run: ProjectSuspended or Stopped. Empty if they should run.
    halted: str = ""
    restored_revision: int | None = None  # the revision that a rollback restored

    @property
    def done(self) -> bool:
        is_current = self.observed and self.restored_revision is None
        return is_current and all(p.phase is Phase.DONE for p in self.places)

    @property
    def failed_places(self) -> list[PlaceProgress]:
        return [progress for progress in self.places if progress.phase is Phase.FAILED]

    @property
    def blocker(self) -> tuple[Place | None, RolloutCause]:
        """The place and the cause that block the rollout.

        A cause is preferred to a pointer, and a place to the workload.
        """
        stuck = [p for p in self.places if p.phase is not Phase.DONE]
        candidates = [p for p in stuck if p.cause.reason] or stuck
        if candidates:
            first = min(
                candidates, key=lambda progress: (progress.cause.reason in POINTERS, progress.place)
            )
            if first.cause.reason:
                return first.place, first.cause
        if self.workload_cause.reason:
            return None, self.workload_cause
        return (candidates[0].place, candidates[0].cause) if candidates else (None, RolloutCause())


def assess_rollout(
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    instances: Sequence[Instance],
    *,
    generation: int = 0,
) -> Progress:
    """Return the progress towards ``generation``, or a later generation of the workload.

    The workload must be read before the deployments, and those before the instances. Then a
    deployment can be newer than the status that reports on it, but never older.
    """
    wanted = max(generation, workload.metadata.generation)
    by_place = _by_place(deployments)
    expected = _expected_places(workload, by_place)
    observed = workload.status.observed_generation >= wanted
    rollout = workload.status.rollout if observed else WorkloadRollout()
    found = (_progress(p, by_place.get(p), instances, workload) for p in expected)
    return Progress(
        observed=observed,
        places=tuple(_with_city_state(p, by_place.get(p.place), rollout) for p in found),
        removing=tuple(
            _progress_from_counts(place, Phase.REMOVING, found, instances)
            for place, found in sorted(by_place.items())
            if place not in expected
        ),
        workload_cause=_not_true(workload.status.conditions, AVAILABLE),
        asleep=sum(is_asleep(instance) for instance in instances),
        paused=workload.spec.paused and _all_paused(deployments),
        halted=_halt_reason(workload) if observed else "",
        restored_revision=rollout.running_revision,
    )


def _with_city_state(
    progress: PlaceProgress, deployment: WorkloadDeployment | None, rollout: WorkloadRollout
) -> PlaceProgress:
    """Return the progress with the state that the platform reports for the city.

    A fallback city has the state of the city that it replaces.
    """
    place = progress.place
    city = deployment.metadata.annotations.get(FALLBACK_FOR) if deployment is not None else None
    slot = (place.placement, city or place.city)
    found = next((c for c in rollout.cities if (c.placement, c.city) == slot), None)
    if found is None or found.state not in _CITY_PHASES or deployment is None:
        return progress
    is_outdated = found.template_hash != rollout.template_hash
    cause = RolloutCause(found.reason, found.message) if found.reason else progress.cause
    return replace(
        progress,
        phase=_CITY_PHASES[found.state],
        updated=0 if is_outdated else progress.updated,
        cause=cause,
    )


def _expected_places(
    workload: Workload, by_place: Mapping[Place, WorkloadDeployment]
) -> list[Place]:
    """Return the places of the spec.

    A fallback city replaces the city of the spec; while the instances move, both are expected.
    """
    fallback_places: dict[Place, list[Place]] = {}
    for place, found in by_place.items():
        city = found.metadata.annotations.get(FALLBACK_FOR)
        if city and not found.is_terminating:
            fallback_places.setdefault(Place(place.placement, city), []).append(place)
    expected: dict[Place, None] = {}
    for placement in workload.spec.placements:
        for city in placement.city_codes:
            own = Place(placement.name, normalize_city(city))
            moved = fallback_places.get(own, [])
            stays = own in by_place and not by_place[own].is_terminating
            expected |= dict.fromkeys(([own] if stays or not moved else []) + moved)
    return sorted(expected)


def _by_place(deployments: Iterable[WorkloadDeployment]) -> dict[Place, WorkloadDeployment]:
    """Return the deployment of each place; a terminating one only if there is no other."""
    found: dict[Place, WorkloadDeployment] = {}
    for deployment in sorted(
        deployments, key=lambda deployment: (deployment.is_terminating, deployment.metadata.name)
    ):
        found.setdefault(place_of_deployment(deployment), deployment)
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
        return _progress_from_counts(place, Phase.WAITING, deployment, instances)
    halted = halt_reason(deployment.spec)
    if halted is not None:
        phase = Phase.STOPPED if halted == Reason.STOPPED else Phase.SUSPENDED
        return _progress_from_counts(place, phase, deployment, instances)
    found = _progress_from_counts(place, Phase.UPDATING, deployment, instances)
    counts = {found.updated, found.ready, found.available, found.replicas}
    if _is_current(deployment) and counts == {found.desired}:
        return replace(found, phase=Phase.DONE, cause=RolloutCause())
    return found


def _progress_from_counts(
    place: Place, phase: Phase, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> PlaceProgress:
    status = deployment.status
    desired = status.desired_replicas if _is_current(deployment) else 0
    return PlaceProgress(
        place=place,
        phase=phase,
        ready=status.ready_replicas,
        covered=status.covered_replicas,
        available=status.available_or_ready,
        updated=_count_updated(place, deployment, instances),
        replicas=status.replicas,
        # Zero means that the status was never written: the minimum is one.
        desired=desired or deployment.spec.scale_settings.min_replicas,
        cause=_cause(place, deployment, instances),
    )


def _count_updated(
    place: Place, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> int:
    """Return how many instances have the current template.

    An old status counts those with the template of that time, which is the current one if only the
    scale has changed. Without a federation the status does not name its template.
    """
    status, current = deployment.status, template_hash(deployment.spec.template)
    reported = status.observed_source.template_hash
    if _is_current(deployment) or reported == current:
        return status.updated_replicas
    if reported:
        return 0
    instances_of_place = (i for i in instances if place_of(i) == place)
    return sum(i.status.controller.observed_template_hash == current for i in instances_of_place)


def _is_current(deployment: WorkloadDeployment) -> bool:
    """Return True if the status has observed the current generation."""
    return deployment.status.observed_generation >= deployment.metadata.generation


def is_asleep(instance: Instance) -> bool:
    """Return True if the instance sleeps. It is still available: a connection wakes it."""
    available = find_condition(instance.status.conditions, AVAILABLE)
    is_sleeping = available is not None and available.reason == Reason.ASLEEP
    return is_sleeping and not instance.is_terminating


def _halt_reason(workload: Workload) -> str:
    """Return why the workload is suspended or stopped, as its status reports it."""
    progressing = find_condition(workload.status.conditions, PROGRESSING)
    reason = progressing.reason if progressing is not None else ""
    return reason if reason in HALT_REASONS else ""


def _all_paused(deployments: Sequence[WorkloadDeployment]) -> bool:
    """Return True if each deployment is done, or is complete and waits to be resumed."""
    return bool(deployments) and all(_is_settled(deployment) for deployment in deployments)


def _is_settled(deployment: WorkloadDeployment) -> bool:
    status = deployment.status
    progressing = find_condition(status.conditions, PROGRESSING)
    reason = progressing.reason if progressing is not None else ""
    is_idle = reason in (Reason.ROLLOUT_PAUSED, Reason.ROLLOUT_COMPLETE)
    is_complete = status.replicas == status.ready_replicas == status.desired_replicas
    return is_idle and is_complete and _is_current(deployment)


def is_overdue(deployment: WorkloadDeployment) -> bool:
    """Return True if the rollout of the current generation exceeded its progress deadline."""
    progressing = find_condition(deployment.status.conditions, PROGRESSING)
    reason = progressing.reason if progressing is not None else ""
    return reason == Reason.PROGRESS_DEADLINE_EXCEEDED and _is_current(deployment)


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
    """Measures how long a rollout has made no progress.

    The grace period of an instance that stops is not a stall. It is measured once for each
    instance, from the first observation, because the clock of the platform may differ.
    """

    progressed_at_s: float = 0.0
    is_waiting: bool = False  # for an instance to stop, within its grace period
    _counts: object = None
    _stopping_since_s: dict[str, float] = field(default_factory=dict)

    def record(self, counts: object, instances: Iterable[Instance], now_s: float) -> None:
        """Record what was observed now. ``counts`` changes with every step of the rollout."""
        if counts != self._counts:
            self._counts, self.progressed_at_s = counts, now_s
        self.is_waiting = False
        for instance in filter(is_stopping, instances):
            since_s = self._stopping_since_s.setdefault(instance.metadata.uid, now_s)
            ends_s = since_s + grace_period_s(instance)
            self.is_waiting = self.is_waiting or now_s < ends_s
            self.progressed_at_s = max(self.progressed_at_s, min(now_s, ends_s))


@dataclass(slots=True)
class CrashTimer:
    """Measures how long each instance has been crashing, from the first observation."""

    _since_s: dict[str, float] = field(default_factory=dict)

    def record(self, instances: Iterable[Instance], now_s: float) -> None:
        names = [instance.metadata.name for instance in instances if is_crashing(instance)]
        self._since_s = {name: self._since_s.get(name, now_s) for name in names}

    def crashing_s(self, name: str, now_s: float) -> float:
        return now_s - self._since_s.get(name, now_s)


def is_crashing(instance: Instance) -> bool:
    """Return True from a crash until the restarted program has run for a while."""
    ready = find_condition(instance.status.conditions, READY)
    return ready is not None and ready.reason == Reason.INSTANCE_CRASHING


def is_stopping(instance: Instance) -> bool:
    ready = find_condition(instance.status.conditions, READY)
    return instance.is_terminating or (ready is not None and ready.reason == Reason.STOPPING)


def _cause(
    place: Place, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> RolloutCause:
    """Return why the place is not ready.

    A cause is preferred to a pointer, and an instance to its deployment.
    """
    instances_of_place = sorted(
        (i for i in instances if place_of(i) == place), key=lambda instance: instance.metadata.name
    )
    candidates = [_not_true(i.status.conditions, READY) for i in instances_of_place]
    conditions = deployment.status.conditions
    candidates += [_not_true(conditions, type_) for type_ in (AVAILABLE, PROGRESSING)]
    causes = [cause for cause in candidates if cause.reason]
    return min(causes, key=lambda cause: cause.reason in POINTERS, default=RolloutCause())


def place_of(instance: Instance) -> Place:
    labels = instance.metadata.labels
    return Place(labels.get(PLACEMENT_NAME, ""), normalize_city(labels.get(CITY_CODE, "")))


def place_document(progress: PlaceProgress) -> PlaceDocument:
    return PlaceDocument(
        city=progress.place.city,
        placement=progress.place.placement,
        rollout=str(progress.phase),
        ready=progress.ready,
        available=progress.available,
        updated=progress.updated,
        replicas=progress.replicas,
        desired=progress.desired,
        reason=progress.cause.reason,
        message=progress.cause.message,
    )


def _not_true(conditions: Iterable[Condition], type_: str) -> RolloutCause:
    """Return reason and message of a condition that is not True.

    Its observedGeneration is ignored: it is a generation of the copy on the cell.
    """
    found = find_condition(conditions, type_)
    if found is None or found.status == TRUE:
        return RolloutCause()
    return RolloutCause(found.reason, found.message, found.last_transition_time)
