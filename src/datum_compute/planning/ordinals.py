"""The slots of a deployment: which instance has which ordinal, and which have none.

The name decides, because names are unique: ``<deployment>-<ordinal>``. Every other instance that a
deployment controls is a stray. Labels repeat the ordinal for readers and are repaired if wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datum_compute.api.conditions import EPOCH, FALSE, TRUE, UNKNOWN, find_condition, is_true
from datum_compute.api.identity import instance_name
from datum_compute.api.instance import READY, Instance
from datum_compute.api.workload import ScaleSettings
from datum_compute.planning.availability import WITHOUT_DELAY, MinReady

NO_SLOT = -1
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class Slots:
    """The instances of a deployment by ordinal.

    ``held`` contains all of them, desired or not. ``serving``, ``ready`` and ``available`` are the
    ordinals that count as such; each is a subset of the one before. ``strays`` have no ordinal.
    """

    held: dict[int, Instance]
    serving: frozenset[int]
    ready: frozenset[int]
    available: frozenset[int]
    strays: tuple[Instance, ...]


def ordinal(instance: Instance) -> int:
    """The number at the end of the name, or NO_SLOT."""
    return _number_at_end(instance.metadata.name)


def is_slot_name(deployment_name: str, name: str) -> bool:
    """Whether it is the name of a slot of the deployment: the ordinal in decimal digits, without
    leading zeros. The replica count does not matter: scaling down takes a moment."""
    number = _number_at_end(name)
    named = number != NO_SLOT and name == instance_name(deployment_name, number)
    return bool(deployment_name) and named


def _number_at_end(name: str) -> int:
    text = name.rpartition("-")[2]
    readable = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if readable else NO_SLOT


def slots_of(
    deployment_name: str, instances: Iterable[Instance], min_ready: MinReady = WITHOUT_DELAY
) -> Slots:
    """The result does not depend on the order of ``instances``."""
    found: dict[int, Instance] = {}
    strays: list[Instance] = []
    for instance in instances:
        if is_slot_name(deployment_name, instance.metadata.name):
            found[ordinal(instance)] = instance
        else:
            strays.append(instance)
    return build_slots(found, sorted(strays, key=lambda i: i.metadata.name), min_ready)


def build_slots(
    held: dict[int, Instance], strays: Iterable[Instance], min_ready: MinReady = WITHOUT_DELAY
) -> Slots:
    held = {number: held[number] for number in sorted(held)}
    serving = frozenset(n for n, instance in held.items() if serves(instance))
    ready = frozenset(n for n in serving if is_ready(held[n]))
    available = frozenset(n for n in ready if min_ready.is_confirmed_available(held[n]))
    return Slots(held, serving, ready, available, tuple(strays))


def is_ready(instance: Instance) -> bool:
    return is_true(instance.status.conditions, READY)


def serves(instance: Instance) -> bool:
    """Whether the disruption budget counts the instance as serving.

    An instance whose readiness became Unknown probably still serves: its driver has restarted and
    has not observed the machine yet. Unknown from the beginning means that nothing was observed.
    """
    if instance.is_terminating:
        return False
    ready = find_condition(instance.status.conditions, READY)
    if ready is None or ready.status == FALSE:
        return False
    if ready.status == TRUE:
        return True
    return ready.last_transition_time != EPOCH and not has_gates(instance)


def is_observed_not_ready(instance: Instance) -> bool:
    """Whether the instance is known not to serve, so that its removal disrupts nothing.

    That is the case if its Ready condition is False, or if it has scheduling gates: the platform
    requests no machine for an instance while any gate is left.
    """
    ready = find_condition(instance.status.conditions, READY)
    if ready is None or ready.status == UNKNOWN:
        return has_gates(instance)
    return ready.status == FALSE


def has_gates(instance: Instance) -> bool:
    return bool(instance.spec.controller.scheduling_gates)


def unavailable_max(settings: ScaleSettings, wanted: int) -> int:
    """How many of the wanted instances a rollout may have out of service; at least one, because
    otherwise it could never proceed."""
    asked = settings.max_unavailable
    if isinstance(asked, str):
        asked = wanted * int(asked.removesuffix("%")) // 100
    return max(1, asked)
