"""Every planted bug, and those that wait for the piece they belong in."""

from __future__ import annotations

from datum_compute.testing.teeth import (
    autonomy_bugs,
    cell_bugs,
    federation_bugs,
    leader_bugs,
    plane_bugs,
    project_bugs,
    quota_bugs,
    runtime_bugs,
    serving_bugs,
    sleep_bugs,
    status_bugs,
    store_bugs,
)
from datum_compute.testing.teeth.bug import PendingBug, PlantedBug

BUGS: tuple[PlantedBug, ...] = tuple(
    sorted(
        (
            *autonomy_bugs.BUGS,
            *cell_bugs.BUGS,
            *federation_bugs.BUGS,
            *leader_bugs.BUGS,
            *plane_bugs.BUGS,
            *project_bugs.BUGS,
            *quota_bugs.BUGS,
            *runtime_bugs.BUGS,
            *serving_bugs.BUGS,
            *sleep_bugs.BUGS,
            *status_bugs.BUGS,
            *store_bugs.BUGS,
        ),
        key=lambda bug: bug.name,
    )
)

PENDING: tuple[PendingBug, ...] = ()


def bug_named(name: str) -> PlantedBug:
    found = [bug for bug in BUGS if bug.name == name]
    if not found:
        raise LookupError(f"there is no planted bug {name!r}; there are: {', '.join(names())}")
    return found[0]


def names() -> list[str]:
    return [bug.name for bug in BUGS]
