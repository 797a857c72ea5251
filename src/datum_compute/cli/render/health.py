"""The health of workloads and instances in one word, for all commands.

"Available" means that an instance accepts connections, also if a connection first has to wake it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from datum_compute.api.compute.instance import AVAILABLE, READY, Instance
from datum_compute.api.compute.workload import PlacementStatus, Workload
from datum_compute.api.conditions import FALSE, TRUE, Condition, Reason, find_condition
from datum_compute.api.labels import CITY_CODE
from datum_compute.api.planes import normalize_city
from datum_compute.cli.render.listing import age_since
from datum_compute.cli.render.output import render_count
from datum_compute.planning.rollout.suspension import is_instance_halted

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_FAILED = {
    *(Reason.IMAGE_UNAVAILABLE, Reason.REGISTRY_UNREACHABLE),
    *(Reason.INSTANCE_CRASHING, Reason.CONFIGURATION_ERROR),
    Reason.STOPPED,  # the program has ended by itself
}
# Reasons that depend on the city of an instance.
_NO_ROOM = {Reason.PROVISIONING, Reason.UNSCHEDULABLE}
# Words of instances and workloads that are stopped on request, which is not a failure.
_HALTED: dict[str, str] = {Reason.PROJECT_SUSPENDED: "Suspended", Reason.STOPPED: "Stopped"}
_STARTING = {
    *(Reason.PENDING_PROGRAMMING, Reason.PROGRAMMING_IN_PROGRESS),
    Reason.STARTING,
}
_OWN_WORDS: dict[str, str] = {
    Reason.INSTANCE_CRASHING: "crashing",
    Reason.SCHEDULING_GATES_PRESENT: "held by a gate",
    Reason.PENDING_QUOTA: "quota",
    Reason.PENDING_EVALUATION: "quota evaluation",
    Reason.QUOTA_NO_BUDGET: "no quota",
    **dict.fromkeys(_NO_ROOM, "no room"),
    Reason.CELL_UNREACHABLE: "cell unreachable",
    Reason.NOT_OBSERVED: "not observed",
}


@dataclass(frozen=True, slots=True)
class Health:
    """One word, with reason, message and last transition of the condition that explains it.

    ``cities`` are those in which the reason applies, if the reason depends on the city.
    """

    word: str
    reason: str = ""
    message: str = ""
    since: str = field(default="", compare=False)
    cities: tuple[str, ...] = field(default=(), compare=False)


def workload_health(workload: Workload) -> Health:
    """From the workload's own Available condition."""
    if workload.is_terminating:
        return Health("Terminating")
    found = find_condition(workload.status.conditions, AVAILABLE)
    if found is None:
        return Health("Unknown", message="The platform has not reported yet")
    if found.reason in _HALTED and _is_halted(workload, found):
        return _health_from_condition(_HALTED[found.reason], found)
    if found.status == FALSE:
        return _health_from_condition("Unavailable", found, _cities_with(workload, found.reason))
    if found.status != TRUE:
        return _health_from_condition("Unknown", found)
    counts = workload.status
    short = counts.desired_replicas - counts.ready_replicas - counts.covered_replicas
    if short > 0:
        return Health("Degraded", message=f"{render_count(short, 'instance')} below desired count")
    return Health("Available")


def _is_halted(workload: Workload, available: Condition) -> bool:
    """Return False for the reason Stopped if no user has stopped the workload.

    Its programs have ended by themselves then. A condition of an earlier generation may describe a
    workload that is being started.
    """
    is_outdated = available.observed_generation < workload.metadata.generation
    return available.reason != Reason.STOPPED or workload.spec.stopped or is_outdated


def _cities_with(workload: Workload, reason: str) -> tuple[str, ...]:
    """Return the cities of the placements that report the reason, if each has a single city."""
    if reason not in _NO_ROOM:
        return ()
    cities = {p.name: p.city_codes for p in workload.spec.placements}
    found = [cities.get(p.name, []) for p in workload.status.placements if _reports(p, reason)]
    if any(len(codes) != 1 for codes in found):
        return ()
    return tuple(sorted({normalize_city(codes[0]) for codes in found}))


def _reports(placement: PlacementStatus, reason: str) -> bool:
    found = find_condition(placement.conditions, AVAILABLE)
    return found is not None and found.reason == reason


def instance_health(instance: Instance) -> Health:
    """Available, Starting, NotReady, Stopping, Stopped, Suspended, Failed, Pending or Unknown."""
    ready = find_condition(instance.status.conditions, READY)
    if instance.is_terminating:
        return Health("Stopping")
    if ready is None:
        return Health("Pending")
    if ready.status == TRUE:
        return _available(instance)
    city = instance.metadata.labels.get(CITY_CODE, "")
    cities = (normalize_city(city),) if city and ready.reason in _NO_ROOM else ()
    return _health_from_condition(
        _word(ready, is_halted=is_instance_halted(instance)), ready, cities
    )


def _available(instance: Instance) -> Health:
    """Return Available; with the reason if the instance sleeps."""
    available = find_condition(instance.status.conditions, AVAILABLE)
    if available is None or available.reason != Reason.ASLEEP:
        return Health("Available")
    return _health_from_condition("Available", available)


def _health_from_condition(word: str, condition: Condition, cities: tuple[str, ...] = ()) -> Health:
    since = condition.last_transition_time
    return Health(word, condition.reason, condition.message, since, cities)


def _word(ready: Condition, *, is_halted: bool) -> str:
    if ready.reason in (Reason.CELL_UNREACHABLE, Reason.NOT_OBSERVED):
        return "Unknown"
    if ready.reason in (Reason.NOT_READY, Reason.STOPPING):
        return ready.reason
    if ready.reason in _HALTED and (is_halted or ready.reason != Reason.STOPPED):
        return _HALTED[ready.reason]
    if ready.reason in _FAILED:
        return "Failed"
    return "Starting" if ready.reason in _STARTING else "Pending"


def short_text(health: Health) -> str:
    """Return ``Failed (stopped)`` or ``Pending (no room in DFW)``.

    That is the word, and the reason if it adds information.
    """
    if health.word in ("Starting", "Stopping", "Suspended") or not health.reason:
        return health.word
    if health.reason == health.word:
        return health.word
    where = f" in {', '.join(health.cities)}" if health.cities else ""
    return f"{health.word} ({humanize_reason(health.reason)}{where})"


def humanize_reason(reason: str) -> str:
    """Return ``quota exceeded`` for ``QuotaExceeded``; acronyms stay in capitals."""
    if not reason:
        return ""
    words = (word if word.isupper() else word.lower() for word in _HUMP.split(reason))
    return _OWN_WORDS.get(reason) or " ".join(words)


def format_age_note(health: Health, now: float) -> str:
    """Return ``as of 40s ago`` for the last report of an unreachable cell; otherwise nothing."""
    age = age_since(health.since, now) if health.reason == Reason.CELL_UNREACHABLE else "-"
    return "" if age == "-" else f"as of {age} ago"


def aged_text(health: Health, now: float) -> str:
    """Return ``short_text``, with the age of the last report of an unreachable cell."""
    age = format_age_note(health, now)
    return f"{short_text(health)}, {age}" if age else short_text(health)


def count_by_status(words: Sequence[str]) -> str:
    """Return ``2 Available, 1 Pending``, the healthy ones first."""
    order = ["Available", "Degraded", "Starting", "NotReady", "Pending", "Stopping"]
    order += ["Stopped", "Suspended", "Terminating"]
    seen = sorted(set(words), key=lambda word: (order.index(word) if word in order else 99, word))
    return ", ".join(f"{words.count(word)} {word}" for word in seen)
