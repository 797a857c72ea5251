"""Fallback cities: where the replicas of a city run while the city cannot run them.

Rules:
- Fallback is off unless a placement has ``fallbackCityCodes``. Each city of the placement is then
  decided separately: a failed city never changes what another city runs.
- A city has failed when fewer instances than its floor have been ready for
  ``fallbackAfterSeconds``, for a cause in the city. A bad image, missing data or exceeded quota
  would occur in every city, so they do not engage a fallback. Neither does a rollout.
- The first fallback city that the placement does not use yet takes over the replicas. Nothing is
  removed until the fallback is Available and has as many ready instances as the floor. If the city
  recovers before that, the fallback is removed. If the fallback fails too, the next one takes over
  in the same way.
- Replicas return only on request: the annotation ``returned-at`` of the workload contains the time.
  Then the city gets its replicas again, and the fallback is removed once they are Available.
- A suspended or stopped workload keeps its cities. The time for which its instances are stopped
  does not count as a failure of a city.
- The deployments record the assignment: the deployment of a fallback has an annotation with the
  city that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datum_compute.api import labels
from datum_compute.api.compute.deployment import REPLICAS_READY, WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE
from datum_compute.api.compute.workload import (
    PROGRESSING,
    FallbackPhase,
    Placement,
    PlacementFallback,
    Workload,
)
from datum_compute.api.conditions import FALSE, TRUE, Condition, Reason, find_condition
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import normalize_city
from datum_compute.planning.reasons import QUOTA_DENIED

DEFAULT_FLOOR = 1

# Causes that would occur in every city.
_WORKLOAD_CAUSES = frozenset(
    {
        *(Reason.IMAGE_UNAVAILABLE, Reason.INSTANCE_CRASHING, Reason.CONFIGURATION_ERROR),
        *(Reason.SOURCE_NOT_FOUND, Reason.SOURCE_UNAUTHORIZED, Reason.SOURCE_TOO_LARGE),
        *(Reason.SOURCE_NAME_TOO_LONG, Reason.SOURCE_NAME_RESERVED),
        *(Reason.REFERENCED_DATA_NOT_READY, Reason.RESOLVING),
        *QUOTA_DENIED,
        *(Reason.NETWORK_NOT_FOUND, Reason.AWAITING_PROPAGATION, Reason.REMOVING),
        Reason.REGISTRY_UNREACHABLE,
        *(Reason.PROJECT_SUSPENDED, Reason.STOPPED, Reason.STOPPING),
    }
)
_ROLLOUT_REASONS = (Reason.ROLLING_OUT, Reason.ROLLOUT_PAUSED)
# Causes that fail a city immediately, regardless of its ready instances.
_CITY_CAUSES = (Reason.CELL_UNREACHABLE, Reason.NO_MATCHING_LOCATION)


@dataclass(frozen=True, slots=True)
class CityAssignment:
    """The cities in which deployments run the replicas of one city of a placement.

    ``wanted`` may contain the city itself and fallback cities. ``status`` reports a fallback.
    ``due_s`` is the delay until the next decision if no event occurs.
    """

    city: str
    wanted: tuple[str, ...]
    status: PlacementFallback | None = None
    due_s: float | None = None


def assign_cities(
    workload: Workload,
    placement: Placement,
    deployments: Iterable[WorkloadDeployment],
    now: str,
    *,
    is_halted: bool = False,
) -> list[CityAssignment]:
    """Assign every city of the placement, given all deployments of the workload.

    If the workload ``is_halted``, its replicas stay in the cities where they are.
    """
    of_placement = [d for d in deployments if d.spec.placement_name == placement.name]
    active = {d.spec.city_code: d for d in of_placement if not d.is_terminating}
    used_cities = {d.spec.city_code for d in of_placement}
    assignments = []
    for city in map(normalize_city, placement.city_codes):
        decision = FallbackDecision(workload, placement, city, active, frozenset(used_cities), now)
        assignment = decision.keep() if is_halted else decision.assign()
        used_cities.update(assignment.wanted)
        assignments.append(assignment)
    return assignments


def fallback_for(deployment: WorkloadDeployment) -> str:
    """Return the city that the deployment replaces; empty if it is not a fallback."""
    return deployment.metadata.annotations.get(labels.FALLBACK_FOR, "")


def fallback_cities(placement: Placement) -> list[str]:
    return [normalize_city(city) for city in placement.fallback_city_codes]


@dataclass(frozen=True, slots=True)
class FallbackDecision:
    """The facts about one city of a placement, and the decision where its replicas run."""

    workload: Workload
    placement: Placement
    city: str
    # The deployments of the placement by city, without terminating ones.
    active: dict[str, WorkloadDeployment]
    # Cities that a fallback cannot use, because they have a deployment of the placement.
    used_cities: frozenset[str]
    now: str

    def keep(self) -> CityAssignment:
        """Return the present assignment, for a workload that is suspended or stopped."""
        fallbacks = self._fallbacks()
        is_used = self.city in self.active or not fallbacks
        cities = (*((self.city,) if is_used else ()), *(d.spec.city_code for d in fallbacks))
        known = (p for p in self.workload.status.placements if p.name == self.placement.name)
        recorded = (f for p in known for f in p.fallbacks if f.city_code == self.city)
        return CityAssignment(self.city, cities, next(recorded, None))

    def _fallbacks(self) -> list[WorkloadDeployment]:
        return sorted(
            (d for d in self.active.values() if fallback_for(d) == self.city),
            key=lambda deployment: (
                deployment.metadata.creation_timestamp or "",
                deployment.metadata.name,
            ),
        )

    def assign(self) -> CityAssignment:
        own = self.active.get(self.city)
        fallbacks = self._fallbacks()
        if not fallbacks:
            return self._assign_without_fallback(own)
        current = [d for d in fallbacks if self._is_current(d)]
        if own is not None and self._is_up(own):
            return CityAssignment(self.city, (self.city,))  # the city has recovered
        if not current:
            return self._assign_while_returning(fallbacks)
        if self._is_up(current[-1]):
            return self._assign_to_fallback(current[-1])
        return self._assign_while_engaging(own, fallbacks, current[-1])

    def _assign_without_fallback(self, own: WorkloadDeployment | None) -> CityAssignment:
        if own is None or not self.placement.fallback_city_codes:
            return CityAssignment(self.city, (self.city,))
        return self._engage_next_if_failed(own, (self.city,), None)

    def _assign_while_engaging(
        self,
        own: WorkloadDeployment | None,
        fallbacks: Sequence[WorkloadDeployment],
        newest: WorkloadDeployment,
    ) -> CityAssignment:
        """Keep all cities until the newest fallback is up. If it fails, add the next one."""
        kept = (*((self.city,) if own is not None else ()), *(d.spec.city_code for d in fallbacks))
        return self._engage_next_if_failed(newest, kept, newest)

    def _engage_next_if_failed(
        self,
        observed: WorkloadDeployment,
        kept: tuple[str, ...],
        fallback: WorkloadDeployment | None,
    ) -> CityAssignment:
        status = (
            self._fallback_status(fallback.spec.city_code, "Engaging", fallback)
            if fallback is not None
            else None
        )
        since = self._failing_since(observed)
        if since is None:
            return CityAssignment(self.city, kept, status)
        left_s = self.placement.fallback_after_seconds - _seconds_between(since, self.now)
        if left_s > 0:
            return CityAssignment(self.city, kept, status, left_s)
        unused = (c for c in fallback_cities(self.placement) if c not in self.used_cities)
        next_city = next(unused, None)
        if next_city is None:
            return CityAssignment(self.city, kept, self._fallback_status("", "Exhausted", observed))
        return CityAssignment(
            self.city, (*kept, next_city), self._fallback_status(next_city, "Engaging", None)
        )

    def _assign_to_fallback(self, fallback: WorkloadDeployment) -> CityAssignment:
        city = fallback.spec.city_code
        return CityAssignment(self.city, (city,), self._fallback_status(city, "Engaged", fallback))

    def _assign_while_returning(self, fallbacks: Sequence[WorkloadDeployment]) -> CityAssignment:
        cities = (self.city, *(d.spec.city_code for d in fallbacks))
        newest = fallbacks[-1]
        status = self._fallback_status(newest.spec.city_code, "Returning", newest)
        return CityAssignment(self.city, cities, status)

    def _is_current(self, fallback: WorkloadDeployment) -> bool:
        if fallback.spec.city_code not in fallback_cities(self.placement):
            return False
        returned = self.workload.metadata.annotations.get(labels.RETURNED_AT, "")
        created = fallback.metadata.creation_timestamp or ""
        return not returned or not created or _seconds_between(returned, created) > 0

    def _ready_floor(self) -> int:
        floors = {normalize_city(f.city_code): f.ready_replicas for f in self.placement.city_floors}
        return floors.get(self.city, DEFAULT_FLOOR)

    def _is_up(self, deployment: WorkloadDeployment) -> bool:
        status = deployment.status
        available = find_condition(status.conditions, AVAILABLE)
        return (
            available is not None
            and available.status == TRUE
            and status.ready_replicas >= self._ready_floor()
        )

    def _failing_since(self, deployment: WorkloadDeployment) -> str | None:
        conditions = deployment.status.conditions
        available = find_condition(conditions, AVAILABLE)
        if available is not None and available.reason in _CITY_CAUSES:
            return available.last_transition_time
        ready = find_condition(conditions, REPLICAS_READY)
        if deployment.status.ready_replicas >= self._ready_floor() or ready is None:
            return None
        if ready.status != FALSE or self._is_caused_by_workload(deployment, ready):
            return None
        return ready.last_transition_time

    def _is_caused_by_workload(self, deployment: WorkloadDeployment, ready: Condition) -> bool:
        progress = find_condition(deployment.status.conditions, PROGRESSING)
        if progress is not None and progress.reason in _ROLLOUT_REASONS:
            return True
        causes = {ready.reason, *(blocked.reason for blocked in deployment.status.blocked)}
        return not causes.isdisjoint(_WORKLOAD_CAUSES)

    def _fallback_status(
        self, fallback_city: str, phase: FallbackPhase, deployment: WorkloadDeployment | None
    ) -> PlacementFallback:
        since = deployment.metadata.creation_timestamp if deployment is not None else None
        return PlacementFallback(
            city_code=self.city,
            fallback_city_code=fallback_city,
            phase=phase,
            since=since or self.now,
        )


def _seconds_between(earlier: str, later: str) -> float:
    return parse_timestamp(later) - parse_timestamp(earlier)


# Messages of the FellBack condition, by phase.
_MESSAGES = {
    "Engaging": "{city} has failed; {to} takes over, and nothing is removed before it is available",
    "Engaged": "replicas of {city} run in {to} until they are moved back",
    "Returning": "replicas of {city} return; they also run in {to} until {city} is available",
    "Exhausted": "{city} has failed, and no fallback city is free",
}


def fallback_message(fallbacks: Sequence[PlacementFallback]) -> str:
    return "; ".join(
        _MESSAGES[f.phase].format(city=f.city_code, to=f.fallback_city_code) for f in fallbacks
    )
