"""``status``: the health of a workload, city by city, with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from datum_compute.api.compute.instance import READY, Instance
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import Condition, Reason, find_condition
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import REVISION
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.commands.instances import address_of
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import (
    ContainerImage,
    EndpointDocument,
    InstanceSummary,
    StatusDocument,
)
from datum_compute.cli.render.health import (
    Health,
    format_age_note,
    humanize_reason,
    instance_health,
    workload_health,
)
from datum_compute.cli.render.listing import age_of, print_document, read_options
from datum_compute.cli.render.output import Output, one_line, render_count
from datum_compute.cli.workload.access import print_missing_access
from datum_compute.cli.workload.observe import find_workload, observe_parts
from datum_compute.cli.workload.rollout import (
    Progress,
    RolloutCause,
    assess_rollout,
    is_asleep,
    place_document,
    place_of,
)
from datum_compute.planning.rollout.surge import SURGE_AVAILABLE
from datum_compute.planning.rollout.suspension import HALT_REASONS

_COLORS = {"Available": "green", "Unavailable": "red"}


@dataclass(slots=True)
class CauseTexts:
    """Renders reasons and messages. A cause that was rendered before is shortened to its reason."""

    now: float
    _rendered: set[tuple[str, str]] = field(default_factory=set)

    def render(self, cause: Health | RolloutCause) -> str:
        """Return reason and message, with their age if the cell is unreachable."""
        reason, key = humanize_reason(cause.reason), (cause.reason, cause.message)
        if reason and key in self._rendered:
            return reason
        self._rendered.add(key)
        text = _join(reason, cause.message) or "-"
        age = format_age_note(Health("", cause.reason, cause.message, cause.since), self.now)
        return f"{text} ({age})" if age else text


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    workload: Workload
    progress: Progress
    instances: list[Instance]
    revision: int = 0
    urls: tuple[tuple[str, str], ...] = ()  # city and URL

    @property
    def health(self) -> Health:
        return workload_health(self.workload)


@click.command(short_help="Show the health of a workload, city by city.")
@workload_argument
@read_options
@connection_options
@click.pass_context
def status(ctx: click.Context, name: str, output_format: str) -> None:
    """Show the health of the workload NAME, city by city, and its active revision.

    \b
    Examples:
      datumctl compute status web
      datumctl compute status web -o json
    """

    async def body(session: Session) -> None:
        await print_missing_access(session)
        report = await read_report(session, name)
        print_document(
            session.output,
            output_format,
            lambda: report_document(report, session),
            lambda: _print(session, report),
            f"workload/{name}",
        )

    run_in_session(ctx, body)


async def read_report(session: Session, name: str) -> WorkloadReport:
    workload = await find_workload(session, name)
    observed = await observe_parts(session, workload)
    instances = sorted(
        observed.instances.items, key=lambda instance: (place_of(instance), instance.metadata.name)
    )
    progress = assess_rollout(workload, observed.deployments.items, instances)
    urls = tuple(
        (d.spec.city_code, e.url) for d in observed.deployments.items for e in d.status.endpoints
    )
    revision = await _active_revision(session, workload)
    return WorkloadReport(workload, progress, instances, revision, tuple(sorted(urls)))


async def _active_revision(session: Session, workload: Workload) -> int:
    """Return the newest revision of the workload; 0 if it is unknown."""
    labels = {WORKLOAD_UID: workload.metadata.uid}
    try:
        listed = await session.client.list(REVISION, session.namespace, labels=labels)
    except (NotFound, Forbidden):
        return 0
    return max((revision.spec.revision for revision in listed.items), default=0)


def _print(session: Session, report: WorkloadReport) -> None:
    data, now = session.output.data, session.environment.now()
    texts = CauseTexts(now)
    print_head(session, report, texts)
    data("")
    data(place_table(session.output, report.progress, texts))
    if report.instances:
        data("")
        data(_instance_table(session.output, report.instances, texts))
    is_halted = bool(report.progress.halted)
    if not is_halted and (not report.progress.done or report.health.word != "Available"):
        name = report.workload.metadata.name
        session.output.note(f"Why: {session.command('explain', name)}")


def print_head(
    session: Session,
    report: WorkloadReport,
    texts: CauseTexts,
    further: Sequence[tuple[str, str]] = (),
) -> None:
    """Print the fields of a workload and its health; ``further`` fields come last."""
    workload, now = report.workload, session.environment.now()
    containers = workload.spec.template.spec.runtime.sandbox.containers
    health = report.health
    has_cause = bool(health.reason or health.message)
    # The word of a workload that is stopped on request repeats the reason.
    is_halted = bool(report.progress.halted) and health.reason in HALT_REASONS
    health_text = health.message if is_halted else texts.render(health)
    fields = [
        ("Workload", f"{workload.metadata.name} ({session.target_name})"),
        ("Image", ", ".join(one_line(c.image) for c in containers)),
        ("Created", f"{age_of(workload, now)} ago"),
        ("Revision", str(report.revision or "")),
        ("Health", f"{health.word}: {health_text}" if has_cause else health.word),
        ("Asleep", _asleep_text(report.instances)),
        ("Rollout", _rollout_text(session, report, texts)),
        ("Surge", _surge_text(workload)),
        *(("URL", f"{url} ({city})") for city, url in report.urls),
        *further,
    ]
    for title, text in fields:
        color = _COLORS.get(health.word, "yellow") if title == "Health" else ""
        if text:
            session.output.data(f"{title + ':':<11}{text}", color=color)


def _asleep_text(instances: Sequence[Instance]) -> str:
    sleeping = sum(is_asleep(instance) for instance in instances)
    if not sleeping:
        return ""
    return f"{sleeping} of {render_count(len(instances), 'instance')}; a connection wakes them"


def _surge_text(workload: Workload) -> str:
    """Return why the rollout continues without surge instances; empty unless it does."""
    found = find_condition(workload.status.conditions, SURGE_AVAILABLE)
    return one_line(found.message) if found is not None else ""


def _rollout_text(session: Session, report: WorkloadReport, texts: CauseTexts) -> str:
    progress = report.progress
    if progress.done:
        return "Done"
    if progress.halted == Reason.PROJECT_SUSPENDED:
        return f"Suspended with the project; show its access: {session.command('access')}"
    if progress.halted:
        return f"Stopped; start it: {session.command('start', report.workload.metadata.name)}"
    if progress.restored_revision is not None:
        cities = ", ".join(dict.fromkeys(place.place.city for place in progress.failed_places))
        where = f" in {cities}" if cities else ""  # the city may have been removed
        return f"Failed{where}; revision {progress.restored_revision} was restored"
    if progress.failed_places:
        first = progress.failed_places[0]
        return f"Failed: {humanize_reason(first.cause.reason)} (in {first.place.city})"
    if progress.paused:
        resume = session.command("rollout", "resume", report.workload.metadata.name)
        return f"Paused; resume it: {resume}"
    if not progress.observed:
        generation = report.workload.metadata.generation
        return f"In progress: the platform has not observed generation {generation} yet"
    place, cause = progress.blocker
    if not cause.reason:
        return "In progress"
    if place is None:
        return f"In progress: {texts.render(cause)}"
    # The table of cities contains the message.
    return f"In progress: {humanize_reason(cause.reason)} (in {place.city})"


def place_table(output: Output, progress: Progress, texts: CauseTexts) -> str:
    return output.table(
        ("CITY", "PLACEMENT", "READY", "UP-TO-DATE", "DESIRED", "ROLLOUT", "REASON"),
        [
            (
                p.place.city,
                p.place.placement,
                p.ready,
                f"{p.updated}/{p.desired}",
                p.desired,
                p.phase,
                texts.render(p.cause),
            )
            for p in (*progress.places, *progress.removing)
        ],
    )


def _instance_table(output: Output, instances: list[Instance], texts: CauseTexts) -> str:
    rows = []
    for instance in instances:
        health = instance_health(instance)
        rows.append(
            (
                instance.metadata.name,
                place_of(instance).city or "-",
                health.word,
                address_of(instance) or "-",
                age_of(instance, texts.now),
                texts.render(health),
            )
        )
    return output.table(("INSTANCE", "CITY", "STATUS", "ADDRESS", "AGE", "REASON"), rows)


def report_document(report: WorkloadReport, session: Session) -> StatusDocument:
    """Return the report as JSON, with times as the API returns them."""
    workload, health = report.workload, report.health
    return StatusDocument(
        name=workload.metadata.name,
        place=session.target_name,
        uid=workload.metadata.uid,
        created_at=workload.metadata.creation_timestamp,
        generation=workload.metadata.generation,
        observed_generation=workload.status.observed_generation,
        health=health.word,
        reason=health.reason,
        message=health.message,
        revision=report.revision,
        rollout_done=report.progress.done,
        containers=[
            ContainerImage(name=c.name, image=c.image)
            for c in workload.spec.template.spec.runtime.sandbox.containers
        ],
        endpoints=[EndpointDocument(city=city, url=url) for city, url in report.urls],
        cities=[place_document(p) for p in report.progress.places],
        removing=[place_document(p) for p in report.progress.removing],
        instances=[_instance_document(i) for i in report.instances],
    )


def _instance_document(instance: Instance) -> InstanceSummary:
    ready = _ready(instance)
    return InstanceSummary(
        name=instance.metadata.name,
        city=place_of(instance).city,
        placement=place_of(instance).placement,
        status=instance_health(instance).word,
        asleep=is_asleep(instance),
        ready=ready.status,
        reason=ready.reason,
        message=ready.message,
        address=address_of(instance),
        created_at=instance.metadata.creation_timestamp,
    )


def _ready(instance: Instance) -> Condition:
    found = find_condition(instance.status.conditions, READY)
    return found or Condition(type=READY, status="Unknown", reason="")


def _join(*parts: str) -> str:
    return ": ".join(one_line(part) for part in parts if part)


COMMAND = status
