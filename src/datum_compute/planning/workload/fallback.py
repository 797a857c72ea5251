"""Where the share of a city runs when the city cannot: fallback cities, one after the other.

Rules kept here:
- Off unless a placement names ``fallbackCityCodes``. Then each of its cities is looked at alone:
  one that fails never changes what another runs.
- A city has failed when fewer instances than its floor have been ready for so long as
  ``fallbackAfterSeconds`` says, for a reason that lies in the place. A bad image, missing data or a
  full quota follow the workload wherever it goes, so they move nothing; nor does a rollout.
- The first fallback city that nobody else of the placement uses takes the share. Until it is
  Available and above the floor nothing is removed; if the city recovers before that, the fallback
  goes. If the fallback fails too, the next one takes over in the same way.
- Nothing moves back by itself: the annotation ``returned-at`` of the workload says when to. Then
  the city gets its share again, and the fallback goes once that is Available.
What has moved is on record by the deployments themselves: a fallback names the city it stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, Condition, find_condition
from datum_compute.api.identity import normalized_city
from datum_compute.api.instance import AVAILABLE
from datum_compute.api.reasons import QUOTA_DENIED, Reason
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.api.workload import (
    PROGRESSING,
    FallbackPhase,
    Placement,
    PlacementFallback,
    Workload,
)
from datum_compute.api.workloaddeployment import REPLICAS_READY, WorkloadDeployment

FLOOR = 1

# Causes that go along wherever the workload goes.
_OF_THE_WORKLOAD = frozenset(
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
_OF_A_ROLLOUT = (Reason.ROLLING_OUT, Reason.ROLLOUT_PAUSED)
# Known of the place at once, whatever is counted there.
_OF_THE_PLACE = (Reason.CELL_UNREACHABLE, Reason.NO_MATCHING_LOCATION)


@dataclass(frozen=True, slots=True)
class Share:
    """One city of a placement: in which cities deployments are wanted for it, itself or others, and
    what to say of that. ``due_s`` is when to look again, should nothing else happen."""

    city: str
    wanted: tuple[str, ...]
    told: PlacementFallback | None = None
    due_s: float | None = None


def city_shares(
    workload: Workload, placement: Placement, deployments: Iterable[WorkloadDeployment], now: str
) -> list[Share]:
    """``deployments`` are those of the workload."""
    own = [d for d in deployments if d.spec.placement_name == placement.name]
    live = {d.spec.city_code: d for d in own if not d.is_terminating}
    taken = {d.spec.city_code for d in own}
    found = []
    for city in map(normalized_city, placement.city_codes):
        share = _Case(workload, placement, city, live, frozenset(taken), now).share()
        taken.update(share.wanted)
        found.append(share)
    return found


def stands_for(deployment: WorkloadDeployment) -> str:
    """The city whose share a fallback has taken; empty for any other deployment."""
    return deployment.metadata.annotations.get(labels.FALLBACK_FOR, "")


def fallback_cities(placement: Placement) -> list[str]:
    return [normalized_city(city) for city in placement.fallback_city_codes]


@dataclass(frozen=True, slots=True)
class _Case:
    workload: Workload
    placement: Placement
    city: str
    live: dict[str, WorkloadDeployment]  # of the placement, by city
    taken: frozenset[str]
    now: str

    def share(self) -> Share:
        own = self.live.get(self.city)
        others = sorted(
            (d for d in self.live.values() if stands_for(d) == self.city),
            key=lambda d: (d.metadata.creation_timestamp or "", d.metadata.name),
        )
        if not others:
            return self._alone(own)
        staying = [d for d in others if self._may_stay(d)]
        if own is not None and self._is_up(own):
            return Share(self.city, (self.city,))  # back, or never really gone
        if not staying:
            return self._returning(others)
        if self._is_up(staying[-1]):
            return self._moved(staying[-1])
        return self._moving(own, others, staying[-1])

    def _alone(self, own: WorkloadDeployment | None) -> Share:
        if own is None or not self.placement.fallback_city_codes:
            return Share(self.city, (self.city,))
        return self._unless_failed(own, (self.city,), None)

    def _moving(
        self,
        own: WorkloadDeployment | None,
        others: Sequence[WorkloadDeployment],
        newest: WorkloadDeployment,
    ) -> Share:
        """All stay until one of them is up; one that fails is followed by the next."""
        kept = (*((self.city,) if own is not None else ()), *(d.spec.city_code for d in others))
        return self._unless_failed(newest, kept, newest)

    def _unless_failed(
        self, looked_at: WorkloadDeployment, kept: tuple[str, ...], to: WorkloadDeployment | None
    ) -> Share:
        told = self._told(to.spec.city_code, "Engaging", to) if to is not None else None
        since = self._failing_since(looked_at)
        if since is None:
            return Share(self.city, kept, told)
        left_s = self.placement.fallback_after_seconds - _between_s(since, self.now)
        if left_s > 0:
            return Share(self.city, kept, told, left_s)
        free = (c for c in fallback_cities(self.placement) if c not in self.taken)
        following = next(free, None)
        if following is None:
            return Share(self.city, kept, self._told("", "Exhausted", looked_at))
        return Share(self.city, (*kept, following), self._told(following, "Engaging", None))

    def _moved(self, to: WorkloadDeployment) -> Share:
        return Share(self.city, (to.spec.city_code,), self._told(to.spec.city_code, "Engaged", to))

    def _returning(self, others: Sequence[WorkloadDeployment]) -> Share:
        cities = (self.city, *(d.spec.city_code for d in others))
        told = self._told(others[-1].spec.city_code, "Returning", others[-1])
        return Share(self.city, cities, told)

    def _may_stay(self, fallback: WorkloadDeployment) -> bool:
        if fallback.spec.city_code not in fallback_cities(self.placement):
            return False
        returned = self.workload.metadata.annotations.get(labels.RETURNED_AT, "")
        made = fallback.metadata.creation_timestamp or ""
        return not returned or not made or _between_s(returned, made) > 0

    def _floor(self) -> int:
        named = {normalized_city(f.city_code): f.ready_replicas for f in self.placement.city_floors}
        return named.get(self.city, FLOOR)

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
        if available is not None and available.reason in _OF_THE_PLACE:
            return available.last_transition_time
        ready = find_condition(conditions, REPLICAS_READY)
        if deployment.status.ready_replicas >= self._floor() or ready is None:
            return None
        if ready.status != FALSE or self._is_of_the_workload(deployment, ready):
            return None
        return ready.last_transition_time

    def _is_of_the_workload(self, deployment: WorkloadDeployment, ready: Condition) -> bool:
        progress = find_condition(deployment.status.conditions, PROGRESSING)
        if progress is not None and progress.reason in _OF_A_ROLLOUT:
            return True
        causes = {ready.reason, *(blocked.reason for blocked in deployment.status.blocked)}
        return not causes.isdisjoint(_OF_THE_WORKLOAD)

    def _told(
        self, to: str, phase: FallbackPhase, made: WorkloadDeployment | None
    ) -> PlacementFallback:
        since = made.metadata.creation_timestamp if made is not None else None
        return PlacementFallback(
            city_code=self.city, fallback_city_code=to, phase=phase, since=since or self.now
        )


def _between_s(earlier: str, later: str) -> float:
    return parse_timestamp(later) - parse_timestamp(earlier)


# --- what the workload says of it

_WORDS = {
    "Engaging": "{city} does not serve; {to} is to take over, and nothing is removed before it has",
    "Engaged": "{city} runs in {to} until somebody moves it back",
    "Returning": "{city} takes its share back from {to}, which stays until {city} is available",
    "Exhausted": "{city} does not serve, and no fallback city is free",
}


def fallback_message(told: Sequence[PlacementFallback]) -> str:
    return "; ".join(
        _WORDS[f.phase].format(city=f.city_code, to=f.fallback_city_code) for f in told
    )
