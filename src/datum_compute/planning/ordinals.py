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
    """``held`` by ordinal, wanted or not; ``strays`` have no slot."""

    held: dict[int, Instance]
    strays: tuple[Instance, ...]

    def unavailable(self, wanted: int) -> int:
        """How many of the wanted slots are out of service."""
        return sum(not serves(self.held.get(number)) for number in range(wanted))


def ordinal(instance: Instance) -> int:
    """The number at the end of the name, or NO_SLOT."""
    text = instance.metadata.name.rpartition("-")[2]
    readable = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if readable else NO_SLOT


def slots_of(deployment_name: str, instances: Iterable[Instance]) -> Slots:
    """The same, in whatever order instances are seen."""
    held: dict[int, Instance] = {}
    strays: list[Instance] = []
    for instance in sorted(instances, key=lambda i: i.metadata.name):
        number = ordinal(instance)
        if instance.metadata.name == instance_name(deployment_name, number):
            held[number] = instance
        else:
            strays.append(instance)
    return Slots(held, tuple(strays))


def is_ready(instance: Instance) -> bool:
    return is_true(instance.status.conditions, READY)


def serves(instance: Instance | None) -> bool:
    """Whether the slot counts as in service."""
    return instance is not None and not instance.is_terminating and is_ready(instance)


def unavailable_max(settings: ScaleSettings, wanted: int) -> int:
    """How many of the wanted instances a rollout may have out of service; at least one, or it
    could never move."""
    asked = settings.max_unavailable
    if isinstance(asked, str):
        asked = wanted * int(asked.removesuffix("%")) // 100
    return max(1, asked)
