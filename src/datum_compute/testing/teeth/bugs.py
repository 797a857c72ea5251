"""Every planted bug, and those that wait for the piece they belong in."""

from __future__ import annotations

from datum_compute.testing.teeth import (
    cell_bugs,
    federation_bugs,
    quota_bugs,
    runtime_bugs,
    status_bugs,
    store_bugs,
)
from datum_compute.testing.teeth.bug import Hole, PendingBug, PlantedBug

# Planted, and not yet found by anything: what the simulator cannot see so far.
HOLES: tuple[Hole, ...] = (
    Hole(
        cell_bugs.AVAILABLE_OUTLIVES_ITS_MACHINE,
        "I7 lets an Available be 60 s old, and a lost machine is back within 30",
    ),
)

BUGS: tuple[PlantedBug, ...] = tuple(
    sorted(
        (
            *cell_bugs.BUGS,
            *federation_bugs.BUGS,
            *quota_bugs.BUGS,
            *runtime_bugs.BUGS,
            *status_bugs.BUGS,
            *store_bugs.BUGS,
        ),
        key=lambda bug: bug.name,
    )
)

PENDING: tuple[PendingBug, ...] = (
    PendingBug("paused-leader-writes", "there is no leader election yet"),
)


def bug_named(name: str) -> PlantedBug:
    planted = (*BUGS, *(hole.bug for hole in HOLES))
    found = [bug for bug in planted if bug.name == name]
    if not found:
        raise LookupError(f"there is no planted bug {name!r}; there are: {', '.join(names())}")
    return found[0]


def names() -> list[str]:
    return [bug.name for bug in BUGS]
