"""One deploy, from the plan to the verdict; of one workload or of several.

All plans are made and shown before anything is written. Steps that machines want to know of are
told as events: ``plan``, ``applied``, then those of the wait (``rollout_wait.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import AlreadyExists, NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject, copied, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import MissingError
from datum_compute.cli.render.prompt import check_confirmation, confirm
from datum_compute.cli.workload.access import ensure_access
from datum_compute.cli.workload.edits import Target
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.plan import (
    Action,
    DeployKey,
    Plan,
    carry_out,
    deploy_key,
    done_before,
    read_plan,
)
from datum_compute.cli.workload.plan_file import write_plan_file
from datum_compute.cli.workload.preview import Preview, preview_lines, preview_plan
from datum_compute.cli.workload.rollout_wait import wait_for_rollout


@dataclass(frozen=True, slots=True)
class Settings:
    """How to go about it, as opposed to what to deploy. ``timeout_s`` None: do not wait."""

    timeout_s: int | None
    yes: bool = False
    confirm: str | None = None
    dry_run: bool = False
    plan_out: str | None = None
    deploy_key: str | None = None
    skip_checks: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    target: Target
    plan: Plan
    preview: Preview
    key: DeployKey | None


async def deploy_targets(session: Session, targets: Sequence[Target], settings: Settings) -> None:
    only_shown = settings.dry_run or settings.plan_out is not None
    if not only_shown:
        await ensure_access(session)
    steps: list[_Step] = []
    written: list[tuple[Workload, str]] = []
    for target in targets:
        key = deploy_key(settings.deploy_key, target.asked)
        again = await _done_before(session, target, key)
        if again is not None:
            written.append(again)
            continue
        plan = await read_plan(session, target.name, target.edit)
        steps.append(_Step(target, plan, await preview_plan(session, plan), key))
    for step in steps:
        show_plan(session, step.plan, step.preview)
    if settings.plan_out is not None:
        write_plan_file(session, settings.plan_out, [step.plan for step in steps])
    if only_shown:
        session.print_note("Nothing was changed.")
        return
    _check(session, steps, settings)
    written += [await _write(session, step) for step in steps]
    await finish(session, written, settings)


async def _done_before(
    session: Session, target: Target, key: DeployKey | None
) -> tuple[Workload, str] | None:
    """The workload as an earlier run of this very deploy left it."""
    if key is None:
        return None
    try:
        observed = await session.client.get_plain(WORKLOAD, Ref(session.namespace, target.name))
    except NotFound:
        return None
    action = done_before(observed, key)
    if not action:
        return None
    session.print_note(
        f"Deploy {key.key} of {target.name} was carried out already; going on with it."
    )
    return from_json(observed, Workload), action


def show_plan(session: Session, plan: Plan, preview: Preview) -> None:
    session.emit_event(
        "plan",
        workload=plan.name,
        place=session.target_name,
        action=plan.action,
        changes=list(plan.lines),
        removals=plan.removals,
        **preview.document(),
    )
    where = f"workload {plan.name} in {session.target_name}"
    match plan.action:
        case "unchanged":
            session.print_note(f"No changes to {where}.")
            return
        case "created":
            session.print_note(f"New {where}:")
        case "updated":
            session.print_note(f"Changes to {where}:")
    for line in (*plan.lines, *preview_lines(preview)):
        session.print_note(f"  {line}")


def _check(session: Session, steps: Sequence[_Step], settings: Settings) -> None:
    """Refuse what cannot come about, and ask where that is due."""
    for step in steps:
        problems = step.preview.problems
        if problems and not settings.skip_checks:
            for further in problems[1:]:
                session.print_note(f"{further.message}")
            raise problems[0]
        for problem in problems:
            session.print_note(f"Warning: {problem.message}")
    for step in steps:
        _ask(session, step.plan, settings)


def _ask(session: Session, plan: Plan, settings: Settings) -> None:
    if plan.action == "unchanged" or settings.yes:
        return
    if check_confirmation(settings.confirm, plan.name):
        return
    removals = plan.removals
    environment = session.environment
    if not removals and not environment.may_ask:
        return  # nothing is taken away, and nobody is there to be asked
    what = f" This removes {', '.join(removals)}." if removals else ""
    question = f"Apply to {plan.name} in {session.target_name} ({_cities(plan)})?{what}"
    confirm(environment, question, confirm_flag=f"--confirm={plan.name}")


def _cities(plan: Plan) -> str:
    placements = plan.outcome["spec"]["placements"]
    return ", ".join(dict.fromkeys(city for p in placements for city in p["cityCodes"]))


async def _write(session: Session, step: _Step) -> tuple[Workload, str]:
    try:
        return await carry_out(session, step.target.edit, step.plan, step.key), step.plan.action
    except AlreadyExists:
        # Our own first attempt may have got through without an answer.
        again = await _done_before(session, step.target, step.key)
        if again is None:
            raise
        return again


async def finish(
    session: Session, written: Sequence[tuple[Workload, str]], settings: Settings
) -> None:
    """Say what was written, and wait for it."""
    for workload, action in written:
        say_written(session, workload, action)
    for workload, action in written:
        name = workload.metadata.name
        if settings.timeout_s is not None:
            await wait_for_rollout(session, workload, timeout_s=settings.timeout_s)
        elif action != "unchanged":
            session.print_note(f"Not waiting. See: {session.command('rollout', 'status', name)}")


def say_written(session: Session, workload: Workload, action: str) -> None:
    session.emit_event("applied", **applied_document(session, workload, action))
    if not session.as_json:
        session.output.data(f"workload/{workload.metadata.name} {action}")


def applied_document(session: Session, workload: Workload, action: Action | str) -> JsonObject:
    return {
        "workload": workload.metadata.name,
        "place": session.target_name,
        "action": action,
        "uid": workload.metadata.uid,
        "generation": workload.metadata.generation,
    }


# --- One small change to a workload that exists: shown, written, and waited for
# None of these is destructive, so nothing is asked. No change to make: nothing is written, and the
# rollout under way is waited for.


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
            raise MissingError(f"There is no workload {name!r} in {session.target_name}.")
        desired = copied(observed)
        change(desired)
        return desired

    await find_workload(session, name)  # guesses what was meant when there is none
    plan = await read_plan(session, name, edit)
    _show(session, plan)
    if waiting.dry_run:
        session.print_note("Nothing was changed.")
        return
    if plan.action != "unchanged":
        await ensure_access(session)
    written = await carry_out(session, edit, plan)
    if waiting.then:
        say_written(session, written, plan.action)
        session.print_note(waiting.then)
        return
    await finish(session, [(written, plan.action)], Settings(timeout_s=waiting.timeout_s))


def _show(session: Session, plan: Plan) -> None:
    session.emit_event(
        "plan",
        workload=plan.name,
        place=session.target_name,
        action=plan.action,
        changes=list(plan.lines),
        removals=plan.removals,
    )
    for line in plan.lines or (f"No changes to workload {plan.name} in {session.target_name}.",):
        session.print_note(line)
    if plan.removals:
        session.print_note(f"This removes {', '.join(plan.removals)}.")
