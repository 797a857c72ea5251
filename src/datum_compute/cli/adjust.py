"""One small change to a workload that exists: shown, written, and waited for.

None of these is destructive, so nothing is asked. No change to make: nothing is written, and the
rollout under way is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datum_compute.api.meta.codec import JsonObject, copied
from datum_compute.cli.access_gate import ensure_access
from datum_compute.cli.deployment import Settings, finish, say_written
from datum_compute.cli.errors import MissingError
from datum_compute.cli.observe import find_workload
from datum_compute.cli.plan import Plan, carry_out, read_plan
from datum_compute.cli.session import Session


@dataclass(frozen=True, slots=True)
class Waiting:
    """``timeout_s`` None: do not wait. ``then`` is said of a change without a rollout."""

    timeout_s: int | None
    dry_run: bool = False
    then: str = ""


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
    _show(session, plan)
    if waiting.dry_run:
        session.note("Nothing was changed.")
        return
    if plan.action != "unchanged":
        await ensure_access(session)
    written = await carry_out(session, edit, plan)
    if waiting.then:
        say_written(session, written, plan.action)
        session.note(waiting.then)
        return
    await finish(session, [(written, plan.action)], Settings(timeout_s=waiting.timeout_s))


def _show(session: Session, plan: Plan) -> None:
    session.tell(
        "plan",
        workload=plan.name,
        place=session.place,
        action=plan.action,
        changes=list(plan.lines),
        removals=plan.removals,
    )
    for line in plan.lines or (f"No changes to workload {plan.name} in {session.place}.",):
        session.note(line)
    if plan.removals:
        session.note(f"This removes {', '.join(plan.removals)}.")
