"""Which slots of a deployment have quota, as the cell keeps it on record in its status.

A claim lies in the project, which may be away when the cell starts anew. A slot that was granted
its size needs nobody's consent for the next instance of that size, so what was granted is written
down where the cell can read it: with the counts, for which it writes anyway. While the project can
be read its claims decide, and the record is only kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from datum_compute.api.conditions import is_true
from datum_compute.api.instance import QUOTA_GRANTED, Instance
from datum_compute.api.workloaddeployment import GrantedSlots, WorkloadDeployment
from datum_compute.planning.rollout.gates import QUOTA, gate_names
from datum_compute.planning.sizing import Size

_DIGITS_MAX = 6
SizeOf = Callable[[Instance], Size | None]


def size_text(size: Size | None) -> str:
    """One of unknown size counts as an instance only."""
    return f"{size.millicores}m/{size.mebibytes}Mi" if size is not None else "any"


def recorded_slots(
    deployment: WorkloadDeployment, held: Mapping[int, Instance], wanted: int, size_of: SizeOf
) -> list[GrantedSlots]:
    """``held`` are the instances by ordinal. A slot that is empty for a while keeps what it had;
    one that is no longer wanted loses it, as it loses its claim."""
    before = {n: slots.size for slots in deployment.status.granted for n in ordinals_of(slots)}
    sizes: dict[str, list[int]] = {}
    known: dict[str, str] = {}  # by template: computed once, not for each of its instances
    for number in range(wanted):
        instance = held.get(number)
        kept = before.get(number, "")
        if instance is not None:
            template = instance.spec.controller.template_hash
            if template not in known:
                known[template] = size_text(size_of(instance))
            size = known[template]
            kept = size if _has_quota(instance) or kept == size else ""
        if kept:
            sizes.setdefault(kept, []).append(number)
    return [GrantedSlots(size=size, ordinals=_text(sizes[size])) for size in sorted(sizes)]


def is_granted_before(deployment: WorkloadDeployment, number: int, size: Size | None) -> bool:
    wanted = size_text(size)
    found = (slots for slots in deployment.status.granted if slots.size == wanted)
    return any(number in ordinals_of(slots) for slots in found)


def ordinals_of(slots: GrantedSlots) -> Iterator[int]:
    """Of what is no such text nothing is granted."""
    for part in slots.ordinals.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if all(n.isdecimal() and len(n) <= _DIGITS_MAX for n in (first, last)):
            yield from range(int(first), int(last) + 1)


def _has_quota(instance: Instance) -> bool:
    granted = is_true(instance.status.conditions, QUOTA_GRANTED)
    return granted and QUOTA not in gate_names(instance)


def _text(numbers: list[int]) -> str:
    """Ascending ordinals, runs of them in short: 0-3,7."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
