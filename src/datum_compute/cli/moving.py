"""Projects and what is in them on another side: planned, written in order, read back.

The other side either keeps projects (``platform``), then those are made too, or is one plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from datum_compute.api.conditions import is_true
from datum_compute.api.errors import Forbidden, Invalid, NotFound
from datum_compute.api.kinds import ENTITLEMENT, PROJECT
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.errors import PendingError, TimedOutError
from datum_compute.cli.moving_read import Copy, ProjectCopies
from datum_compute.cli.moving_write import CREATE, Step, differences, plan_copy, write_copy
from datum_compute.client.client import Client

READY_S = 120
# A project that has just been made learns only by and by which cities and networks it has.
SETTLE_S = 60.0
_AGAIN_S = 0.5

Tell = Callable[[str, Copy, str], None]  # project, object, what was done


@dataclass(frozen=True, slots=True)
class Target:
    """``keeps_access``: somebody answers a project's request for access."""

    platform: Client | None
    plane_of: Callable[[str], Client]
    keeps_access: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """One project: the objects that make it (on the platform), and what is in it."""

    project: str
    makers: tuple[Copy, ...]
    copies: ProjectCopies


async def plan_move(target: Target, move: Move, *, force: bool) -> list[Step]:
    steps = []
    if target.platform is not None:
        steps += [await plan_copy(target.platform, copy, force=force) for copy in move.makers]
        if not await _has_project(target.platform, move.project):
            why = "is checked when its project is there"
            return [*steps, *(Step(copy, CREATE, why) for copy in move.copies.all())]
    plane = target.plane_of(move.project)
    return [*steps, *[await plan_copy(plane, c, force=force) for c in move.copies.all()]]


async def carry_over(target: Target, move: Move, tell: Tell, *, force: bool) -> None:
    """Write everything of a project; raises ApiError at the first thing that is refused."""
    fresh = False
    if target.platform is not None:
        fresh = not await _has_project(target.platform, move.project)
        for copy in move.makers:
            tell(move.project, copy, await write_copy(target.platform, copy, force=force))
        await _until_ready(target.platform, move.project)
    plane = target.plane_of(move.project)
    for copy in move.copies.entitlements:
        tell(move.project, copy, await write_copy(plane, copy, force=force))
        await _until_entitled(plane, move.project, copy)
    for copy in (*move.copies.namespaces, *move.copies.objects):

        async def written(copy: Copy = copy) -> str:
            return await write_copy(plane, copy, force=force)

        tell(move.project, copy, await (_patiently(written) if fresh else written()))


async def verify(target: Target, moves: Iterable[Move]) -> list[str]:
    """Whatever is not as it was copied, in words; empty if all of it is."""
    wrong = []
    for move in moves:
        plane = target.plane_of(move.project)
        sides = [(plane, copy) for copy in move.copies.all()]
        if target.platform is not None:
            sides += [(target.platform, copy) for copy in move.makers]
        for client, copy in sides:
            if why := await differences(client, copy):
                wrong.append(f"{copy} of project {move.project} {why}")
    return wrong


async def _has_project(platform: Client, name: str) -> bool:
    try:
        await platform.get(PROJECT, Ref("", name))
    except NotFound:
        return False
    return True


async def _until_ready(platform: Client, name: str) -> None:
    try:
        await platform.wait(
            PROJECT,
            Ref("", name),
            lambda found: found is not None and is_true(found.status.conditions, "Ready"),
            timeout_s=READY_S,
        )
    except TimeoutError:
        raise TimedOutError(
            f"Project {name} is not ready after {READY_S} s.",
            "Run this again when it is: what is done stays done.",
        ) from None


async def _until_entitled(plane: Client, project: str, copy: Copy) -> None:
    try:
        found = await plane.wait(
            ENTITLEMENT,
            copy.ref,
            lambda found: found is not None and found.status.phase not in ("", "Pending"),
            timeout_s=READY_S,
        )
    except TimeoutError:
        found = None
    if found is None or found.status.phase != "Active":
        phase = found.status.phase if found is not None else "Pending"
        raise PendingError(
            f"Project {project} may not use {copy.ref.name} there yet ({phase}).",
            "Run this again when its request was approved: what is done stays done.",
        )


async def _patiently(write: Callable[[], Awaitable[str]]) -> str:
    """Again and again while a new project is being furnished; the last refusal is the answer."""
    deadline_s = asyncio.get_running_loop().time() + SETTLE_S
    while True:
        try:
            return await write()
        except (Invalid, Forbidden, NotFound):
            if asyncio.get_running_loop().time() > deadline_s:
                raise
        await asyncio.sleep(_AGAIN_S)
