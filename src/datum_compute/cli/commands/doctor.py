"""``doctor``: check what workloads need, and explain each workload that is not available."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import click

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.compute.workload import PROGRESSING, Workload
from datum_compute.api.conditions import EPOCH, TRUE, Condition, Reason, find_condition
from datum_compute.api.errors import ApiError, Forbidden, Unauthorized, Unreachable
from datum_compute.api.kinds import (
    BUCKET,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    INSTANCE_TYPE,
    LOCATION_BINDING,
    NETWORK,
    WORKLOAD,
)
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.quota import QUOTA_NAMESPACE
from datum_compute.cli.arguments import strip_type_of
from datum_compute.cli.commands.cities import city_of
from datum_compute.cli.commands.quota import bucket_name
from datum_compute.cli.completion import workload_names
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import FailedError
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import CheckEntry, to_document
from datum_compute.cli.render.health import workload_health
from datum_compute.cli.render.listing import (
    ListColumn,
    Listing,
    age_since,
    list_options,
    print_listing,
)
from datum_compute.cli.render.output import one_line, render_age, render_count
from datum_compute.cli.workload.access import STATE_TEXTS, AccessState, next_step, read_access
from datum_compute.cli.workload.cell_reports import (
    ReportedDriver,
    StaleReport,
    describe_drivers,
    read_drivers,
    stale_heartbeats,
    stale_report,
)
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.rollout_wait import ACTIONS, cause_document, cause_text
from datum_compute.planning.explain.advice import window_s
from datum_compute.planning.explain.explain import Link, deprecated_type, explain_workload
from datum_compute.planning.rollout.suspension import HALT_REASONS

_SKEW_MAX_S = 30
_WITH_ACCESS = ("quota", "cities")  # checks of what a project gets with its access

CheckState = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; ``next`` is a command, empty if there is no problem."""

    check: str
    state: CheckState
    text: str
    next: str = ""
    cause: JsonObject | None = None
    as_of: str = ""  # time of the report that the result is based on; empty if it is current


@click.command(short_help="Check everything a workload needs.")
@click.argument(
    "name", required=False, callback=strip_type_of("workload"), shell_complete=workload_names
)
@list_options
@connection_options
@click.pass_context
def doctor(ctx: click.Context, name: str | None, output_format: str, no_headers: bool) -> None:
    """Check sign-in, clock, access, quota, cities, network and driver, then each workload, or
    only the workload NAME. The exit code is 20 if a check fails.

    \b
    Examples:
      datumctl compute doctor
      datumctl compute doctor web -o json
    """

    async def body(session: Session) -> None:
        results = await run_checks(session, name)
        print_listing(session.output, LISTING, results, output_format, headers=not no_headers)
        if output_format == "table":
            _print_next_commands(session, results)
        failed = [result for result in results if result.state == "failed"]
        if failed:
            # The table is followed by the commands of all checks.
            hint = "" if output_format == "table" else failed[0].next
            raise FailedError(
                f"{render_count(len(failed), 'check')} failed in {session.target_name}.", hint
            )

    run_in_session(ctx, body)


def _print_next_commands(session: Session, results: Sequence[CheckResult]) -> None:
    commands = [(result.check, result.next) for result in results if result.next]
    if commands:
        session.output.data("")
        session.output.data("Next:")
    for check, command in commands:
        session.output.data(f"  {check}: {command}")


async def run_checks(session: Session, name: str | None) -> list[CheckResult]:
    """Run the checks in order; without a connection or permission, the remaining are left out."""
    first = await _sign_in(session)
    if first.state == "failed":
        return [first]
    drivers = await read_drivers(session.gateway, session.namespace)
    stale = stale_heartbeats(drivers)
    checks: tuple[tuple[str, Callable[[Session], Awaitable[CheckResult]]], ...] = (
        ("clock", _clock),
        ("access", _access),
        ("quota", _quota),
        ("cities", partial(_cities, stale=stale)),
        ("network", _network),
        ("driver", partial(_driver, drivers=drivers)),
    )
    results = [first]
    has_access = True
    for title, check in checks:
        if not has_access and title in _WITH_ACCESS:
            results.append(CheckResult(title, "skipped", "the project has no access to compute"))
            continue
        try:
            results.append(await check(session))
            has_access = has_access and (title != "access" or results[-1].state == "ok")
        except ApiError as error:
            text = f"cannot be checked: {one_line(error.message)}"
            results.append(CheckResult(title, "skipped", text))
    return [*results, *await _workloads(session, name, stale)]


async def _sign_in(session: Session) -> CheckResult:
    try:
        await session.client.version(WORKLOAD)
    except (Unauthorized, Forbidden) as error:
        hint = session.complete_command("kubectl auth whoami")
        return CheckResult("sign-in", "failed", one_line(error.message), hint)
    except (Unreachable, ApiError) as error:
        hint = session.command("local", "status")
        return CheckResult("sign-in", "failed", f"no response: {one_line(str(error))}", hint)
    return CheckResult("sign-in", "ok", session.target_name)


async def _clock(session: Session) -> CheckResult:
    # The server sets the creation time also in a dry run.
    probe = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"generateName": "doctor-", "namespace": session.namespace},
    }
    created = await session.client.create_plain(CONFIG_MAP, probe, dry_run=True)
    local_time_s = session.environment.now()
    skew_s = local_time_s - parse_timestamp(created["metadata"]["creationTimestamp"])
    text = f"{abs(skew_s):.0f} s apart from the clock of the platform"
    if abs(skew_s) > _SKEW_MAX_S:
        return CheckResult(
            "clock", "warning", f"{text}; ages are wrong by that amount", "timedatectl status"
        )
    return CheckResult("clock", "ok", text)


async def _access(session: Session) -> CheckResult:
    found = await read_access(session)
    text = STATE_TEXTS[found.state] + (f": {one_line(found.message)}" if found.message else "")
    if found.state in (AccessState.ACTIVE, AccessState.UNKNOWN):
        return CheckResult("access", "ok", text)
    passing = found.state in (AccessState.PROCESSING, AccessState.PENDING)
    state: CheckState = "warning" if passing else "failed"
    return CheckResult("access", state, text, next_step(found, session.command))


async def _quota(session: Session) -> CheckResult:
    buckets = (await session.client.list(BUCKET, QUOTA_NAMESPACE)).items
    full = [bucket_name(b) for b in buckets if b.status.limit and not b.status.available]
    if full:
        text = f"used up: {', '.join(sorted(full))}"
        return CheckResult("quota", "warning", text, session.command("quota"))
    return CheckResult("quota", "ok", f"{render_count(len(buckets), 'resource')} below the limit")


async def _cities(session: Session, stale: Mapping[str, str]) -> CheckResult:
    """Check the cities. Their state depends on all cells, so it states which do not respond."""
    result = await _city_states(session)
    report = StaleReport(tuple(sorted(stale)), min(stale.values(), default=""))
    return _with_stale_report(session, result, report)


async def _city_states(session: Session) -> CheckResult:
    bindings = (await session.client.list(LOCATION_BINDING)).items
    closed: list[str] = []
    drained: list[str] = []
    for binding in bindings:
        available = find_condition(binding.status.conditions, "Available")
        if available is not None and available.status != TRUE:
            is_drained = available.reason == Reason.CELL_DRAINED
            (drained if is_drained else closed).append(city_of(binding))
    hint = session.command("cities", "-o", "wide")
    if not bindings:
        return CheckResult("cities", "failed", "no cities are available to this project", hint)
    if closed:
        return CheckResult("cities", "warning", f"not available: {', '.join(sorted(closed))}", hint)
    text = f"{render_count(len(bindings) - len(drained), 'city')} available"
    text += f"; drained: {', '.join(sorted(drained))}" if drained else ""
    return CheckResult("cities", "ok", text, hint if drained else "")


async def _network(session: Session) -> CheckResult:
    networks = (await session.client.list(NETWORK, session.namespace)).items
    names = ", ".join(sorted(network.metadata.name for network in networks))
    if not networks:
        hint = session.complete_command(f"kubectl get networks --namespace={session.namespace}")
        return CheckResult("network", "warning", f"no network in {session.target_name}", hint)
    return CheckResult("network", "ok", names)


async def _driver(session: Session, drivers: Sequence[ReportedDriver]) -> CheckResult:
    if not drivers:
        return CheckResult("driver", "skipped", "the platform does not report its drivers")
    unresponsive = [driver for driver in drivers if not driver.answers]
    text = "; ".join(describe_drivers(unresponsive or drivers))
    if unresponsive:
        return CheckResult("driver", "failed", text, session.command("local", "status"))
    without_init = sum(driver.without_init for driver in drivers)
    if without_init:
        text += (
            f"; {render_count(without_init, 'container')} without an init process: programs that "
            "do not handle SIGTERM stop only after their grace period. Install catatonit (for "
            "Docker: tini) and restart the workloads"
        )
        return CheckResult("driver", "warning", text, "apt-get install catatonit")
    return CheckResult("driver", "ok", text)


async def _workloads(
    session: Session, name: str | None, stale: Mapping[str, str]
) -> list[CheckResult]:
    selected: list[Workload]
    if name is not None:
        selected = [await find_workload(session, name)]
    else:
        listed = (await session.client.list(WORKLOAD, session.namespace)).items
        selected = sorted(listed, key=lambda workload: workload.metadata.name)
    deployments = (await session.client.list(DEPLOYMENT, session.namespace)).items
    instances = (await session.client.list(INSTANCE, session.namespace)).items
    types = (await session.client.list(INSTANCE_TYPE)).items
    results = []
    for workload in selected:
        uid = workload.metadata.uid
        own = [i for i in instances if i.metadata.labels.get(WORKLOAD_UID) == uid]
        result = _check_workload(session, workload, deployments, instances)
        result = _with_deprecation(session, result, workload, types)
        results.append(_with_stale_report(session, result, stale_report(stale, own)))
    return results


def _check_workload(
    session: Session,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    instances: Sequence[Instance],
) -> CheckResult:
    health = workload_health(workload)
    title = f"workload {workload.metadata.name}"
    if health.word == "Available":
        failure = _failed_rollout(workload)
        if failure is None:
            return CheckResult(title, "ok", "Available")
        hint = session.command("explain", workload.metadata.name)
        text = f"Available, but the rollout failed: {one_line(failure.message)}"
        return CheckResult(title, "warning", text, hint)
    if health.reason in HALT_REASONS:
        return CheckResult(title, "ok", f"{health.word}: {health.message}")
    cause = explain_workload(workload, deployments, instances).cause
    if cause.status == TRUE:  # only the counts show the problem
        hint = session.command("status", workload.metadata.name)
        return CheckResult(title, "warning", f"{health.word}: {health.message}", hint)
    cause = replace(cause, command=session.complete_command(cause.command))
    return _explain_problem(title, health.word, cause, session.environment.now())


def _failed_rollout(workload: Workload) -> Condition | None:
    """Return the condition of a rollout that failed or was rolled back; None otherwise."""
    found = find_condition(workload.status.conditions, PROGRESSING)
    failed = (Reason.PROGRESS_DEADLINE_EXCEEDED, Reason.ROLLED_BACK)
    return found if found is not None and found.reason in failed else None


def _with_deprecation(
    session: Session, result: CheckResult, workload: Workload, types: Sequence[InstanceType]
) -> CheckResult:
    """Add a warning about the instance type of the workload, if there is one."""
    deprecation = deprecated_type(workload, types)
    if deprecation is None:
        return result
    return replace(
        result,
        state="warning" if result.state == "ok" else result.state,
        text=f"{result.text}; {deprecation.message}",
        next=result.next or session.complete_command(deprecation.command),
    )


def _with_stale_report(session: Session, result: CheckResult, stale: StaleReport) -> CheckResult:
    """Add the time of the last report to a verdict that depends on cells that do not respond."""
    if not stale.cells:
        return result
    return replace(
        result,
        state="warning" if result.state == "ok" else result.state,
        text=f"{result.text}, {stale.describe(session.environment.now())}",
        next=result.next or session.command("cities", "-o", "wide"),
        as_of=stale.as_of or result.as_of,
    )


def _explain_problem(title: str, word: str, cause: Link, now: float) -> CheckResult:
    """Return a failed check, or a warning while a temporary cause lasts no longer than usual."""
    limit_s = window_s(cause.reason)
    stalled = _is_older(cause.since, now, limit_s) if limit_s is not None else False
    temporary = limit_s is not None and not stalled
    actor = "stalled" if stalled else ACTIONS[cause.actor]
    age = age_since(cause.since, now)
    usual = f", usually done in {render_age(limit_s)}" if limit_s is not None else ""
    text = f"{word}: {cause_text(cause)} (for {age}{usual}; {actor})"
    state: CheckState = "warning" if temporary else "failed"
    as_of = cause.since if cause.reason == Reason.CELL_UNREACHABLE and cause.since != EPOCH else ""
    document = to_document(cause_document(cause))
    return CheckResult(title, state, text, cause.command, document, as_of)


def _is_older(since: str, now: float, limit_s: int) -> bool:
    if not since or since.startswith("1970-"):
        return False
    return now - parse_timestamp(since) > limit_s


def _document(finding: CheckResult) -> CheckEntry:
    return CheckEntry(
        check=finding.check,
        state=finding.state,
        text=finding.text,
        next=finding.next,
        cause=finding.cause or {},
        as_of=finding.as_of,
    )


LISTING: Listing[CheckResult] = Listing(
    noun="check",
    columns=(
        ListColumn("CHECK", lambda finding: finding.check),
        ListColumn("STATE", lambda finding: finding.state),
        ListColumn("DETAIL", lambda finding: finding.text),
        ListColumn("NEXT", lambda finding: finding.next or "-", wide=True),
    ),
    document=_document,
    name=lambda finding: finding.check.replace(" ", "/"),
)

COMMAND = doctor
