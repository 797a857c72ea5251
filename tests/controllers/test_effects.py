"""One plane that fails does not delay the others, and its error is raised."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import Conflict, Unreachable
from datum_compute.api.planes import HUB, PlaneName, cell_plane, project_plane
from datum_compute.controllers.effects import for_each_plane
from datum_compute.planes.planes import Planes
from datum_compute.runtime.cache import NotSynced

ALPHA, BETA, CELL = project_plane("alpha"), project_plane("beta"), cell_plane("dfw")
PLANES = Planes(lambda _plane: None, lambda: (HUB, ALPHA, CELL, BETA))


def reconcile_all(errors: dict[PlaneName, Exception]) -> tuple[list[PlaneName], Exception | None]:
    """The planes that were reconciled, and the error that was raised."""
    reconciled: list[PlaneName] = []

    async def reconcile(plane: PlaneName) -> None:
        reconciled.append(plane)
        if plane in errors:
            raise errors[plane]

    try:
        asyncio.run(for_each_plane(PLANES, ("project", "cell"), reconcile))
    except Exception as error:
        return reconciled, error
    return reconciled, None


def test_only_planes_of_the_roles_are_reconciled() -> None:
    assert reconcile_all({}) == ([ALPHA, CELL, BETA], None)


@pytest.mark.parametrize(
    "error", [NotSynced("behind"), Unreachable("no route"), Conflict("changed")], ids=repr
)
def test_the_first_error_is_raised_after_all_planes(error: Exception) -> None:
    later = Unreachable("another")
    assert reconcile_all({ALPHA: error, BETA: later}) == ([ALPHA, CELL, BETA], error)


def test_a_bug_ends_the_pass() -> None:
    bug = AssertionError("violated")
    assert reconcile_all({ALPHA: bug}) == ([ALPHA], bug)
