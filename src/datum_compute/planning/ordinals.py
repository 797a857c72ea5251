"""The slots of a deployment: which instance stands in which, and who stands in none.

The name decides, because names are unique: ``<deployment>-<ordinal>``. Whatever else a deployment
controls is a stray. Labels say the same for readers and are put right where they do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datum_compute.api.conditions import is_true
from datum_compute.api.identity import instance_name
from datum_compute.api.instance import READY, Instance
from datum_compute.api.workload import ScaleSettings

NO_SLOT = -1
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class Slots:
    """``held`` by ordinal, wanted or not; ``serving`` are those of them in service; ``strays``
    have no slot."""

    held: dict[int, Instance]
    serving: frozenset[int]
    strays: tuple[Instance, ...]

    def unavailable(self, wanted: int) -> int:
        """How many of the wanted slots are out of service."""
        return wanted - sum(number < wanted for number in self.serving)


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


def slots_of(deployment_name: str, instances: Iterable[Instance]) -> Slots:
    """The same, in whatever order instances are seen."""
    found: dict[int, Instance] = {}
    strays: list[Instance] = []
    for instance in instances:
        if is_slot_name(deployment_name, instance.metadata.name):
            found[ordinal(instance)] = instance
        else:
            strays.append(instance)
    held = {number: found[number] for number in sorted(found)}
    serving = frozenset(number for number, instance in held.items() if serves(instance))
    return Slots(held, serving, tuple(sorted(strays, key=lambda i: i.metadata.name)))


def is_ready(instance: Instance) -> bool:
    return is_true(instance.status.conditions, READY)


def serves(instance: Instance) -> bool:
    """Whether it counts as in service."""
    return not instance.is_terminating and is_ready(instance)


def unavailable_max(settings: ScaleSettings, wanted: int) -> int:
    """How many of the wanted instances a rollout may have out of service; at least one, or it
    could never move."""
    asked = settings.max_unavailable
    if isinstance(asked, str):
        asked = wanted * int(asked.removesuffix("%")) // 100
    return max(1, asked)
