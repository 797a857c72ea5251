"""The slots of a deployment: which instance has which ordinal, and which have none.

The name decides, because names are unique: ``<deployment>-<ordinal>``. Every other instance that a
deployment controls is a stray. Labels repeat the ordinal for readers and are repaired if wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from datum_compute.api.conditions import EPOCH, FALSE, TRUE, find_condition, is_true
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
    ``unobserved`` are the ordinals whose recorded readiness no driver has confirmed.
    """

    held: dict[int, Instance]
    serving: frozenset[int]
    ready: frozenset[int]
    available: frozenset[int]
    strays: tuple[Instance, ...]
    unobserved: frozenset[int] = frozenset()


def ordinal(instance: Instance) -> int:
    """The number at the end of the name, or NO_SLOT."""
    return _number_at_end(instance.metadata.name)


def is_slot_name(deployment_name: str, name: str) -> bool:
    """Whether ``name`` is the deployment's name and an ordinal in decimal, without leading zeros.

    The ordinal may exceed the replica count, because scaling down takes a moment.
    """
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
    uids = min_ready.unobserved
    unobserved = frozenset(n for n, instance in held.items() if instance.metadata.uid in uids)
    return Slots(held, serving, ready, available, tuple(strays), unobserved)


def is_ready(instance: Instance) -> bool:
    return is_true(instance.status.conditions, READY)


class ServiceState(Enum):
    """Whether an instance serves, as far as rollouts count it."""

    SERVING = "Serving"
    DOWN = "Down"
    UNOBSERVED = "Unobserved"


def service_of(instance: Instance) -> ServiceState:
    """Return whether the instance serves.

    An instance whose readiness became Unknown probably still serves: its driver has restarted and
    has not observed the machine yet. An instance that was Unknown from the beginning, or has no
    Ready condition, was never observed. With scheduling gates it is down, because the platform
    requests no machine while any gate is left.
    """
    ready = find_condition(instance.status.conditions, READY)
    if instance.is_terminating or (ready is not None and ready.status == FALSE):
        return ServiceState.DOWN
    if ready is not None and ready.status == TRUE:
        return ServiceState.SERVING
    if has_gates(instance):
        return ServiceState.DOWN
    became_unknown = ready is not None and ready.last_transition_time != EPOCH
    return ServiceState.SERVING if became_unknown else ServiceState.UNOBSERVED


def serves(instance: Instance) -> bool:
    """Whether the disruption budget counts the instance as serving."""
    return service_of(instance) is ServiceState.SERVING


def is_observed_not_ready(instance: Instance) -> bool:
    """Whether the instance is known not to serve, so that its removal disrupts nothing."""
    return service_of(instance) is ServiceState.DOWN


def has_gates(instance: Instance) -> bool:
    return bool(instance.spec.controller.scheduling_gates)


def unavailable_max(settings: ScaleSettings, wanted: int) -> int:
    """Return how many of the wanted instances a rollout may have out of service.

    At least one, because otherwise a rollout could never proceed.
    """
    asked = settings.max_unavailable
    if isinstance(asked, str):
        asked = wanted * int(asked.removesuffix("%")) // 100
    return max(1, asked)
