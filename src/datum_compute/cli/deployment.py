"""One deploy, from the plan to the verdict; of one workload or of several.

All plans are made and shown before anything is written. Steps that machines want to know of are
told as events: ``plan``, ``applied``, then those of the wait (``rollout_wait.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import AlreadyExists, NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.access_gate import ensure_access
from datum_compute.cli.deploykey import DeployKey, deploy_key, done_before
from datum_compute.cli.edits import Target
from datum_compute.cli.plan import Action, Plan, carry_out, read_plan
from datum_compute.cli.planfile import write_plan_file
from datum_compute.cli.preview import Preview, preview_lines, preview_plan
from datum_compute.cli.prompt import check_confirmation, confirm
from datum_compute.cli.rollout_wait import wait_for_rollout
from datum_compute.cli.session import Session


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
        session.note("Nothing was changed.")
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
    session.note(f"Deploy {key.key} of {target.name} was carried out already; going on with it.")
    return from_json(observed, Workload), action


def show_plan(session: Session, plan: Plan, preview: Preview) -> None:
    session.tell(
        "plan",
        workload=plan.name,
        place=session.place,
        action=plan.action,
        changes=list(plan.lines),
        removals=plan.removals,
        **preview.document(),
    )
    where = f"workload {plan.name} in {session.place}"
    match plan.action:
        case "unchanged":
            session.note(f"No changes to {where}.")
            return
        case "created":
            session.note(f"New {where}:")
        case "updated":
            session.note(f"Changes to {where}:")
    for line in (*plan.lines, *preview_lines(preview)):
        session.note(f"  {line}")


def _check(session: Session, steps: Sequence[_Step], settings: Settings) -> None:
    """Refuse what cannot come about, and ask where that is due."""
    for step in steps:
        problems = step.preview.problems
        if problems and not settings.skip_checks:
            for further in problems[1:]:
                session.note(f"{further.message}")
            raise problems[0]
        for problem in problems:
            session.note(f"Warning: {problem.message}")
    for step in steps:
        _ask(session, step.plan, settings)


def _ask(session: Session, plan: Plan, settings: Settings) -> None:
    if plan.action == "unchanged" or settings.yes:
        return
    if check_confirmation(settings.confirm, plan.name):
        return
    removals = plan.removals
    surroundings = session.surroundings
    if not removals and not surroundings.may_ask:
        return  # nothing is taken away, and nobody is there to be asked
    what = f" This removes {', '.join(removals)}." if removals else ""
    question = f"Apply to {plan.name} in {session.place} ({_cities(plan)})?{what}"
    confirm(surroundings, question, confirm_flag=f"--confirm={plan.name}")


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
            session.note(f"Not waiting. See: {session.command('rollout', 'status', name)}")


def say_written(session: Session, workload: Workload, action: str) -> None:
    session.tell("applied", **applied_document(session, workload, action))
    if not session.as_json:
        session.output.data(f"workload/{workload.metadata.name} {action}")


def applied_document(session: Session, workload: Workload, action: Action | str) -> JsonObject:
    return {
        "workload": workload.metadata.name,
        "place": session.place,
        "action": action,
        "uid": workload.metadata.uid,
        "generation": workload.metadata.generation,
    }
