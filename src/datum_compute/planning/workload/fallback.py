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
from datum_compute.api.conditions import (
    FALSE,
    QUOTA_DENIED,
    TRUE,
    Condition,
    Reason,
    find_condition,
)
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import normalize_city

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
    }
)
_ROLLOUT_REASONS = (Reason.ROLLING_OUT, Reason.ROLLOUT_PAUSED)
# Causes that fail a city at once, regardless of its ready instances.
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
    workload: Workload, placement: Placement, deployments: Iterable[WorkloadDeployment], now: str
) -> list[CityAssignment]:
    """Assign every city of the placement, given all deployments of the workload."""
    own = [d for d in deployments if d.spec.placement_name == placement.name]
    live = {d.spec.city_code: d for d in own if not d.is_terminating}
    taken = {d.spec.city_code for d in own}
    assignments = []
    for city in map(normalize_city, placement.city_codes):
        decision = FallbackDecision(workload, placement, city, live, frozenset(taken), now)
        assignment = decision.assign()
        taken.update(assignment.wanted)
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
    live: dict[str, WorkloadDeployment]  # not terminating, of the placement, by city
    taken: frozenset[str]
    now: str

    def assign(self) -> CityAssignment:
        own = self.live.get(self.city)
        others = sorted(
            (d for d in self.live.values() if fallback_for(d) == self.city),
            key=lambda d: (d.metadata.creation_timestamp or "", d.metadata.name),
        )
        if not others:
            return self._assign_without_fallback(own)
        staying = [d for d in others if self._is_current(d)]
        if own is not None and self._is_up(own):
            return CityAssignment(self.city, (self.city,))  # it has recovered
        if not staying:
            return self._assign_while_returning(others)
        if self._is_up(staying[-1]):
            return self._assign_to_fallback(staying[-1])
        return self._assign_while_engaging(own, others, staying[-1])

    def _assign_without_fallback(self, own: WorkloadDeployment | None) -> CityAssignment:
        if own is None or not self.placement.fallback_city_codes:
            return CityAssignment(self.city, (self.city,))
        return self._engage_next_if_failed(own, (self.city,), None)

    def _assign_while_engaging(
        self,
        own: WorkloadDeployment | None,
        others: Sequence[WorkloadDeployment],
        newest: WorkloadDeployment,
    ) -> CityAssignment:
        """Keep all cities until the newest fallback is up. If it fails, add the next one."""
        kept = (*((self.city,) if own is not None else ()), *(d.spec.city_code for d in others))
        return self._engage_next_if_failed(newest, kept, newest)

    def _engage_next_if_failed(
        self, observed: WorkloadDeployment, kept: tuple[str, ...], to: WorkloadDeployment | None
    ) -> CityAssignment:
        status = (
            self._fallback_status(to.spec.city_code, "Engaging", to) if to is not None else None
        )
        since = self._failing_since(observed)
        if since is None:
            return CityAssignment(self.city, kept, status)
        left_s = self.placement.fallback_after_seconds - _between_s(since, self.now)
        if left_s > 0:
            return CityAssignment(self.city, kept, status, left_s)
        free = (c for c in fallback_cities(self.placement) if c not in self.taken)
        following = next(free, None)
        if following is None:
            return CityAssignment(self.city, kept, self._fallback_status("", "Exhausted", observed))
        return CityAssignment(
            self.city, (*kept, following), self._fallback_status(following, "Engaging", None)
        )

    def _assign_to_fallback(self, to: WorkloadDeployment) -> CityAssignment:
        return CityAssignment(
            self.city, (to.spec.city_code,), self._fallback_status(to.spec.city_code, "Engaged", to)
        )

    def _assign_while_returning(self, others: Sequence[WorkloadDeployment]) -> CityAssignment:
        cities = (self.city, *(d.spec.city_code for d in others))
        status = self._fallback_status(others[-1].spec.city_code, "Returning", others[-1])
        return CityAssignment(self.city, cities, status)

    def _is_current(self, fallback: WorkloadDeployment) -> bool:
        if fallback.spec.city_code not in fallback_cities(self.placement):
            return False
        returned = self.workload.metadata.annotations.get(labels.RETURNED_AT, "")
        created = fallback.metadata.creation_timestamp or ""
        return not returned or not created or _between_s(returned, created) > 0

    def _floor(self) -> int:
        named = {normalize_city(f.city_code): f.ready_replicas for f in self.placement.city_floors}
        return named.get(self.city, DEFAULT_FLOOR)

    def _is_up(self, deployment: WorkloadDeployment) -> bool:
        status = deployment.status
        available = find_condition(status.conditions, AVAILABLE)
        return (
            available is not None
            and available.status == TRUE
            and status.ready_replicas >= self._floor()
        )

    def _failing_since(self, deployment: WorkloadDeployment) -> str | None:
        conditions = deployment.status.conditions
        available = find_condition(conditions, AVAILABLE)
        if available is not None and available.reason in _CITY_CAUSES:
            return available.last_transition_time
        ready = find_condition(conditions, REPLICAS_READY)
        if deployment.status.ready_replicas >= self._floor() or ready is None:
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
        self, to: str, phase: FallbackPhase, deployment: WorkloadDeployment | None
    ) -> PlacementFallback:
        since = deployment.metadata.creation_timestamp if deployment is not None else None
        return PlacementFallback(
            city_code=self.city, fallback_city_code=to, phase=phase, since=since or self.now
        )


def _between_s(earlier: str, later: str) -> float:
    return parse_timestamp(later) - parse_timestamp(earlier)


# Messages of the FellBack condition, by phase.
_MESSAGES = {
    "Engaging": "{city} has failed; {to} takes over, and nothing is removed before it is available",
    "Engaged": "replicas of {city} run in {to} until they are moved back",
    "Returning": "{city} takes its replicas back from {to}, which stays until {city} is available",
    "Exhausted": "{city} has failed, and no fallback city is free",
}


def fallback_message(fallbacks: Sequence[PlacementFallback]) -> str:
    return "; ".join(
        _MESSAGES[f.phase].format(city=f.city_code, to=f.fallback_city_code) for f in fallbacks
    )
