"""``status``: the health of a workload, city by city, with the platform's own reasons."""

from __future__ import annotations

from dataclasses import dataclass

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.conditions import TRUE, Condition, find_condition
from datum_compute.api.instance import READY, Instance
from datum_compute.api.workload import Workload
from datum_compute.cli.instances import address_of
from datum_compute.cli.observe import find_workload, observe
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.output import one_line, render_table
from datum_compute.cli.rollout import PlaceProgress, Progress, assess_rollout, place_of
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.times import age_of
from datum_compute.cli.words import Health, workload_health

_COLORS = {"Available": "green", "Unavailable": "red"}


@dataclass(frozen=True, slots=True)
class Report:
    workload: Workload
    progress: Progress
    instances: list[Instance]

    @property
    def health(self) -> Health:
        return workload_health(self.workload)


@click.command(short_help="Show the health of a workload, city by city.")
@click.argument("name")
@output_option("table", "json", "yaml")
@connection_options
@click.pass_context
def status(ctx: click.Context, name: str, output_format: str) -> None:
    """Show the health of the workload NAME, city by city."""
    run_in_session(ctx, lambda session: _status(session, name, output_format))


async def _status(session: Session, name: str, output_format: str) -> None:
    workload = await find_workload(session, name)
    observed = await observe(session, name, workload.metadata.uid)
    workload = observed.workload or workload
    instances = sorted(observed.instances.items, key=lambda i: (place_of(i), i.metadata.name))
    progress = assess_rollout(workload, observed.deployments.items, instances)
    report = Report(workload, progress, instances)
    match output_format:
        case "json":
            session.output.json(report_document(report, session))
        case "yaml":
            session.output.yaml(report_document(report, session))
        case _:
            _print(session, report)


def _print(session: Session, report: Report) -> None:
    data, workload = session.output.data, report.workload
    containers = workload.spec.template.spec.runtime.sandbox.containers
    now = session.surroundings.now()
    data(f"Workload:  {workload.metadata.name} ({session.place})")
    data(f"Image:     {', '.join(one_line(c.image) for c in containers)}")
    data(f"Created:   {age_of(workload, now)} ago")
    health = report.health
    color = _COLORS.get(health.word, "yellow")
    data(f"Health:    {_sentence(health.word, health.reason, health.message)}", color=color)
    data(f"Rollout:   {_rollout_text(report)}")
    data("")
    data(_place_table(report.progress))
    if report.instances:
        data("")
        data(_instance_table(report.instances, now))


def _rollout_text(report: Report) -> str:
    progress = report.progress
    if progress.done:
        return "Done"
    if not progress.observed:
        generation = report.workload.metadata.generation
        return f"In progress: the platform has not taken up generation {generation} yet"
    place, cause = progress.blocker
    text = _sentence("In progress", cause.reason, cause.message)
    return f"{text} (in {place.city})" if place and cause.reason else text


def _place_table(progress: Progress) -> str:
    return render_table(
        ("CITY", "PLACEMENT", "READY", "UP-TO-DATE", "DESIRED", "ROLLOUT", "REASON"),
        [
            (
                p.place.city,
                p.place.placement,
                p.ready,
                p.updated,
                p.desired,
                p.phase,
                _sentence(p.cause.reason or "-", p.cause.message),
            )
            for p in (*progress.places, *progress.removing)
        ],
    )


def _instance_table(instances: list[Instance], now: float) -> str:
    rows = []
    for instance in instances:
        ready = _ready(instance)
        reason = _sentence(ready.reason or "-", ready.message) if ready.status != TRUE else "-"
        rows.append(
            (
                instance.metadata.name,
                place_of(instance).city or "-",
                ready.status,
                address_of(instance) or "-",
                age_of(instance, now),
                reason,
            )
        )
    return render_table(("INSTANCE", "CITY", "READY", "ADDRESS", "AGE", "REASON"), rows)


def report_document(report: Report, session: Session) -> JsonObject:
    """The report for machines; times stay as they are on the wire."""
    workload, health = report.workload, report.health
    return {
        "name": workload.metadata.name,
        "place": session.place,
        "uid": workload.metadata.uid,
        "createdAt": workload.metadata.creation_timestamp,
        "generation": workload.metadata.generation,
        "observedGeneration": workload.status.observed_generation,
        "health": health.word,
        "reason": health.reason,
        "message": health.message,
        "rolloutDone": report.progress.done,
        "containers": [
            {"name": c.name, "image": c.image}
            for c in workload.spec.template.spec.runtime.sandbox.containers
        ],
        "cities": [place_document(p) for p in report.progress.places],
        "removing": [place_document(p) for p in report.progress.removing],
        "instances": [_instance_document(i) for i in report.instances],
    }


def place_document(progress: PlaceProgress) -> JsonObject:
    return {
        "city": progress.place.city,
        "placement": progress.place.placement,
        "rollout": str(progress.phase),
        "ready": progress.ready,
        "updated": progress.updated,
        "replicas": progress.replicas,
        "desired": progress.desired,
        "reason": progress.cause.reason,
        "message": progress.cause.message,
    }


def _instance_document(instance: Instance) -> JsonObject:
    ready = _ready(instance)
    return {
        "name": instance.metadata.name,
        "city": place_of(instance).city,
        "placement": place_of(instance).placement,
        "ready": ready.status,
        "reason": ready.reason,
        "message": ready.message,
        "address": address_of(instance),
        "createdAt": instance.metadata.creation_timestamp,
    }


def _ready(instance: Instance) -> Condition:
    found = find_condition(instance.status.conditions, READY)
    return found or Condition(type=READY, status="Unknown", reason="")


def _sentence(*parts: str) -> str:
    return ": ".join(one_line(part) for part in parts if part)


COMMAND = status
