"""Deploy one or several workloads: plan, preview, confirm, apply, wait.

All plans are made and shown before the first write. With ``-o json`` the steps are events:
``plan``, ``applied``, then those of the wait (``rollout_wait.py``).

Before the first write, each object is read once, and the reads of a step are concurrent. An update
of the image needs six requests in three steps:

| step | requests |
|---|---|
| read | access of the project (not in a preview); the workload |
| plan | dry run of the write |
| preview | instances; image; locations |

The preview reads the following as well, if the plan needs it:

- quota: for new instances, instances of another size, and surge instances. An update with surge,
  such as that of a workload with one replica per city, therefore needs seven requests;
- the claims of the instances: for new instances, and instances of another size;
- instance types: with the quota, if the template has no limits or requests. For surge instances of
  a built-in type they are not read;
- each ConfigMap, Secret and network that the template names.

A new workload has no instances or claims, and the dry run warns of its cities. So the first deploy
of a workload without references needs six requests, or five if the template sets its size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import AlreadyExists
from datum_compute.api.meta.codec import JsonObject, deep_copy, from_json
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import MissingError, UsageError
from datum_compute.cli.render.events import AppliedEvent, PlanEvent
from datum_compute.cli.render.plan import render_plan, render_preview
from datum_compute.cli.render.prompt import check_confirmation, confirm
from datum_compute.cli.workload.access import ensure_access
from datum_compute.cli.workload.edits import DeployTarget, flags_edit, manifest_edit
from datum_compute.cli.workload.observe import missing_workload
from datum_compute.cli.workload.plan import (
    DeployKey,
    PlanAction,
    WorkloadPlan,
    apply_plan,
    build_plan_from,
    find_earlier_deploy,
    parse_deploy_key,
    read_observed,
)
from datum_compute.cli.workload.plan_file import read_plan_file, write_plan_file
from datum_compute.cli.workload.preview import Preview, preview_instances, preview_plan
from datum_compute.cli.workload.request import DeployOptions, DeployRequest
from datum_compute.cli.workload.rollout_wait import wait_for_rollout
from datum_compute.planning.workload.city_order import is_rolled_back


@dataclass(frozen=True, slots=True)
class _DeployStep:
    target: DeployTarget
    plan: WorkloadPlan
    preview: Preview
    key: DeployKey | None


@dataclass(frozen=True, slots=True)
class _WrittenWorkload:
    workload: Workload
    action: PlanAction


async def deploy_workloads(session: Session, request: DeployRequest) -> None:
    options = request.options
    targets = resolve_targets(session, request)
    workloads = await _read_workloads(session, targets, check_access=options.writes)
    steps: list[_DeployStep] = []
    written: list[_WrittenWorkload] = []
    for target, observed in zip(targets, workloads, strict=True):
        key = parse_deploy_key(options.deploy_key, target.request)
        earlier = _find_earlier(session, observed, key)
        if earlier is not None:
            written.append(earlier)
            continue
        plan = await build_plan_from(session, target.name, target.edit, observed)
        steps.append(_DeployStep(target, plan, await preview_plan(session, plan), key))
    for step in steps:
        _show_plan(session, step.plan, step.preview)
    if options.plan_out is not None:
        write_plan_file(session, options.plan_out, [step.plan for step in steps])
    if not options.writes:
        session.print_note("Nothing was changed.")
    if not options.skip_checks:
        _raise_problems(session, [step.preview for step in steps])
    if not options.writes:
        return
    for step in steps:
        for problem in step.preview.problems:
            session.print_note(f"Warning: {problem.message}")
        _confirm_plan(session, step.plan, options)
    written += [await _apply_step(session, step) for step in steps]
    await _wait_for_written(session, written, options.timeout_s)


def resolve_targets(session: Session, request: DeployRequest) -> list[DeployTarget]:
    if request.plan_file is not None:
        return read_plan_file(session, request.plan_file)
    if request.manifest_path is not None:
        path = request.manifest_path
        return [_manifest_target(session, path, manifest) for manifest in request.manifests]
    flags = request.flags
    example = session.command("deploy", flags.name, "--image=IMAGE", "--city=DFW")
    edit = flags_edit(flags, session.namespace, example, request.first_cities)
    requested = asdict(flags)
    if flags.auto_rollback is None:
        del requested["auto_rollback"]  # keys of releases without this flag stay valid
    return [DeployTarget(flags.name, edit, {"flags": requested})]


async def _read_workloads(
    session: Session, targets: Sequence[DeployTarget], *, check_access: bool
) -> list[JsonObject | None]:
    """Read the workloads, and at the same time the access of the project.

    An error of the access precedes one of a workload. If access was just enabled, the workloads are
    read again: before, the project may have refused the read.
    """

    async def read() -> list[JsonObject | None]:
        # One after the other: a folder may have hundreds, and each request needs a connection.
        return [await read_observed(session, target.name) for target in targets]

    if not check_access:
        return await read()
    was_active, workloads = await asyncio.gather(
        ensure_access(session), read(), return_exceptions=True
    )
    if isinstance(was_active, BaseException):
        raise was_active
    if not was_active:
        return await read()
    if isinstance(workloads, BaseException):
        raise workloads
    return workloads


def _manifest_target(session: Session, path: str, manifest: JsonObject) -> DeployTarget:
    namespace = manifest["metadata"].get("namespace", session.namespace)
    if namespace != session.namespace:
        raise UsageError(
            f"{path} sets namespace {namespace!r}, but {session.target_name} uses "
            f"{session.namespace!r}.",
            f"Remove metadata.namespace from the file, or pass -n {namespace}.",
            field="metadata.namespace",
        )
    edit = manifest_edit(manifest, session.namespace)
    return DeployTarget(manifest["metadata"]["name"], edit, {"manifest": manifest})


def _find_earlier(
    session: Session, observed: JsonObject | None, key: DeployKey | None
) -> _WrittenWorkload | None:
    """Return the workload as an earlier run with the same key wrote it."""
    action = find_earlier_deploy(observed, key)
    if action is None or observed is None or key is None:
        return None
    name = observed["metadata"]["name"]
    session.print_note(f"Deploy {key.key} of {name} was applied before; waiting for its rollout.")
    return _WrittenWorkload(from_json(observed, Workload), action)


def _show_plan(session: Session, plan: WorkloadPlan, preview: Preview) -> None:
    session.emit_event(
        PlanEvent(
            workload=plan.name,
            place=session.target_name,
            action=plan.action,
            changes=render_plan(plan),
            removals=list(plan.removals),
            recreated=list(preview.instances.recreated),
            removed=list(preview.instances.removed),
            created=preview.instances.created,
            quota=list(preview.quota),
            references=list(preview.references),
            images=list(preview.images),
            warnings=list(preview.warnings),
            problems=[problem.message for problem in preview.problems],
        )
    )
    target = f"workload {plan.name} in {session.target_name}"
    match plan.action:
        case "unchanged":
            session.print_note(f"No changes to {target}.")
            return
        case "created":
            session.print_note(f"New {target}:")
        case "updated":
            session.print_note(f"Changes to {target}:")
    for line in (*render_plan(plan), *render_preview(preview)):
        session.print_note(f"  {line}")


def _raise_problems(session: Session, previews: Sequence[Preview]) -> None:
    """Raise the first problem of a plan; print the others before it."""
    for preview in previews:
        if preview.problems:
            first, *others = preview.problems
            for problem in others:
                session.print_note(problem.message)
            raise first


def _confirm_plan(session: Session, plan: WorkloadPlan, options: DeployOptions) -> None:
    """Ask for confirmation on a terminal. Elsewhere only a plan with removals requires it."""
    if plan.action == "unchanged" or options.yes:
        return
    if check_confirmation(options.confirm, plan.name):
        return
    removals = plan.removals
    if not removals and not session.environment.may_ask:
        return
    effect = f" This removes {', '.join(removals)}." if removals else ""
    question = f"Apply to {plan.name} in {session.target_name} ({_city_list(plan)})?{effect}"
    confirm(session.environment, question, confirm_flag=f"--confirm={plan.name}")


def _city_list(plan: WorkloadPlan) -> str:
    placements = plan.outcome["spec"]["placements"]
    return ", ".join(dict.fromkeys(city for p in placements for city in p["cityCodes"]))


async def _apply_step(session: Session, step: _DeployStep) -> _WrittenWorkload:
    try:
        workload = await apply_plan(session, step.target.edit, step.plan, step.key)
    except AlreadyExists:
        # The response to our own write may have been lost and the request retried.
        observed = await read_observed(session, step.target.name)
        earlier = _find_earlier(session, observed, step.key)
        if earlier is None:
            raise
        return earlier
    return _WrittenWorkload(workload, step.plan.action)


async def _wait_for_written(
    session: Session, written: Sequence[_WrittenWorkload], timeout_s: float | None
) -> None:
    """Report the writes, then wait for the rollouts unless ``timeout_s`` is None."""
    for item in written:
        _report_written(session, item.workload, item.action)
    for item in written:
        name = item.workload.metadata.name
        if timeout_s is not None:
            await wait_for_rollout(session, item.workload, timeout_s=timeout_s)
        elif item.action != "unchanged":
            session.print_note(f"Not waiting. See: {session.command('rollout', 'status', name)}")


def _report_written(session: Session, workload: Workload, action: PlanAction) -> None:
    session.emit_event(
        AppliedEvent(
            workload=workload.metadata.name,
            place=session.target_name,
            action=action,
            uid=workload.metadata.uid,
            generation=workload.metadata.generation,
        )
    )
    if not session.as_json:
        session.output.data(f"workload/{workload.metadata.name} {action}")


# --- one small change to an existing workload, such as ``scale`` or ``restart``
# The command shows the change, writes it without confirmation, and waits for its rollout. Without a
# change it writes nothing and waits for the present rollout.


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """With ``timeout_s`` None the command does not wait.

    ``note`` is printed instead of waiting, for a change that starts no rollout. ``summary`` is
    printed instead of the changed fields, for a command whose name states the change. With
    ``check_quota`` a change that exceeds the quota is refused, unless ``skip_checks`` is set.
    """

    timeout_s: int | None
    dry_run: bool = False
    note: str = ""
    summary: str = ""
    check_quota: bool = False
    skip_checks: bool = False


async def change_workload(
    session: Session, name: str, change: Callable[[JsonObject], None], options: ChangeOptions
) -> None:
    """``change`` modifies a copy of the stored workload in place."""

    def edit(observed: JsonObject | None) -> JsonObject:
        if observed is None:
            raise MissingError(f"There is no workload {name!r} in {session.target_name}.")
        desired = deep_copy(observed)
        change(desired)
        return desired

    observed = await read_observed(session, name)
    if observed is None:
        raise await missing_workload(session, name)
    plan = await build_plan_from(session, name, edit, observed)
    preview = await preview_instances(session, plan) if options.check_quota else None
    _show_change(session, plan, preview, options.summary)
    if options.dry_run:
        session.print_note("Nothing was changed.")
    if preview is not None and not options.skip_checks:
        _raise_problems(session, [preview])
    if options.dry_run:
        return
    if plan.action != "unchanged":
        await ensure_access(session)
    written = await apply_plan(session, edit, plan)
    if options.note:
        _report_written(session, written, plan.action)
        session.print_note(options.note)
        return
    if is_rolled_back(written):
        # The rollback is older than this change, so it is no failure of this command.
        _report_written(session, written, plan.action)
        session.print_note(_rolled_back_note(session, written))
        return
    await _wait_for_written(session, [_WrittenWorkload(written, plan.action)], options.timeout_s)


def _rolled_back_note(session: Session, workload: Workload) -> str:
    revision, name = workload.status.rollout.running_revision, workload.metadata.name
    return (
        f"{name} runs revision {revision}, which a rollback restored. Not waiting. "
        f"See: {session.command('status', name)}"
    )


def _show_change(
    session: Session, plan: WorkloadPlan, preview: Preview | None, summary: str
) -> None:
    lines = render_plan(plan)
    event = PlanEvent(
        workload=plan.name,
        place=session.target_name,
        action=plan.action,
        changes=lines,
        removals=list(plan.removals),
    )
    if preview is not None:
        lines = [*lines, *render_preview(preview)]
        event.recreated = list(preview.instances.recreated)
        event.removed = list(preview.instances.removed)
        event.created = preview.instances.created
        event.quota = list(preview.quota)
        event.problems = [problem.message for problem in preview.problems]
    session.emit_event(event)
    if lines and summary:
        lines = [summary]
    for line in lines or (f"No changes to workload {plan.name} in {session.target_name}.",):
        session.print_note(line)
    if plan.removals:
        session.print_note(f"This removes {', '.join(plan.removals)}.")
