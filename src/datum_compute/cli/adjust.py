"""One small change to a workload that exists: shown, written, and waited for.

None of these is destructive, so nothing is asked. No change to make: nothing is written, and the
rollout under way is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datum_compute.api.codec import JsonObject, copied
from datum_compute.cli.errors import MissingError
from datum_compute.cli.observe import find_workload
from datum_compute.cli.plan import carry_out, read_plan
from datum_compute.cli.rollout_wait import wait_for_rollout
from datum_compute.cli.session import Session


@dataclass(frozen=True, slots=True)
class Waiting:
    """``timeout_s`` None: do not wait."""

    timeout_s: int | None


async def adjust(
    session: Session, name: str, change: Callable[[JsonObject], None], waiting: Waiting
) -> None:
    """``change`` edits a copy of the workload in place."""

    def edit(observed: JsonObject | None) -> JsonObject:
        if observed is None:
            raise MissingError(f"There is no workload {name!r} in {session.place}.")
        desired = copied(observed)
        change(desired)
        return desired

    await find_workload(session, name)  # guesses what was meant when there is none
    plan = await read_plan(session, name, edit)
    for line in plan.lines or (f"No changes to workload {name} in {session.place}.",):
        session.output.note(line)
    written = await carry_out(session, name, edit, plan)
    session.output.data(f"workload/{name} {plan.action}")
    if waiting.timeout_s is not None:
        await wait_for_rollout(session, written, timeout_s=waiting.timeout_s)
    elif plan.action != "unchanged":
        session.output.note(f"Not waiting. See: {session.command('rollout', 'status', name)}")
