"""``doctor``: checks what a workload needs to run, then explains every one that is not well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import click

from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import TRUE, Reason, find_condition
from datum_compute.api.errors import ApiError, Forbidden, Unauthorized, Unreachable
from datum_compute.api.gateway import drivers_path
from datum_compute.api.kinds import (
    BUCKET,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    LOCATION_BINDING,
    NETWORK,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.quota import QUOTA_NAMESPACE
from datum_compute.cli.arguments import named
from datum_compute.cli.commands.cities import city_of
from datum_compute.cli.commands.quota import bucket_name
from datum_compute.cli.completion import workload_names
from datum_compute.cli.connect.gateway import PlaneGateway
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import FailedError
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.health import workload_health
from datum_compute.cli.render.listing import Column, Listing, age_since, list_options, print_listing
from datum_compute.cli.render.output import one_line, render_age, render_count
from datum_compute.cli.workload.access import STATE_TEXTS, AccessState, next_step, read_access
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.rollout_wait import OWNER, cause_document, cause_text
from datum_compute.client.client import Client
from datum_compute.planning.explain.advice import window_s
from datum_compute.planning.explain.explain import Link, explain_workload

# --- What runs the instances of the cells, as the platform tells it: the driver, whose engine, and
# whether that answers.


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that some cells have in common.

    ``words`` name the engine, or the reason why it does not answer. ``without_init`` counts the
    containers of these cells for which the engine had no init process.
    """

    driver: str
    why: str
    engine: str
    answers: bool
    words: str
    cells: tuple[str, ...] = ()
    without_init: int = 0

    @property
    def sentence(self) -> str:
        if self.driver == "simulated":
            told = "simulated, nothing really runs"
        elif self.driver == "pods":
            told = "pods of the cluster that their cell is"
        elif self.driver != "containers":
            told = f"not known: {self.words.rstrip('.')}"
        elif self.answers:
            told = f"containers of {self.words} at {self.engine}"
        else:
            told = (
                f"containers, but {self.words.rstrip('.')}; what runs goes on, nothing new starts"
            )
        return f"{told} ({self.why})" if self.why else told

    @property
    def document(self) -> JsonObject:
        return {
            "cells": list(self.cells),
            "driver": self.driver,
            "why": self.why,
            "engine": self.engine or None,
            "answers": self.answers,
            "words": self.words,
            "withoutInit": self.without_init,
        }


async def read_drivers(client: Client | PlaneGateway, namespace: str) -> list[Driver]:
    """None of a platform that does not tell."""
    try:
        items = (await client.ask(drivers_path(namespace)))["items"]
    except (ApiError, KeyError):
        return []
    merged: dict[Driver, Driver] = {}
    for item in items:
        found = _describe_driver(item)
        known = merged.get(found, found)
        cells = (*known.cells, str(item.get("cell", "")))
        without_init = known.without_init + int(item.get("withoutInit", 0))
        merged[found] = replace(known, cells=cells, without_init=without_init)
    return list(merged.values())


def sentences(drivers: Sequence[Driver]) -> list[str]:
    """One for each driver; cells are named where they differ."""
    if len(drivers) == 1:
        return [f"Instances are {drivers[0].sentence}."]
    return [f"Instances of {', '.join(d.cells)} are {d.sentence}." for d in drivers]


def _describe_driver(item: JsonObject) -> Driver:
    return Driver(
        driver=str(item.get("driver", "")),
        why=one_line(str(item.get("why", ""))),
        engine=str(item.get("engine", "")),
        answers=bool(item.get("answers")),
        words=one_line(str(item.get("words", ""))),
    )


# --- doctor


_SKEW_MAX_S = 30

State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``next`` is the one command to go on with; empty where nothing is wrong."""

    check: str
    state: State
    text: str
    next: str = ""
    cause: JsonObject | None = None


@click.command(short_help="Check everything a workload needs.")
@click.argument("name", required=False, callback=named("workload"), shell_complete=workload_names)
@list_options
@connection_options
@click.pass_context
def doctor(ctx: click.Context, name: str | None, output_format: str, no_headers: bool) -> None:
    """Check sign-in, clock, access, quota, cities, network and driver, then explain every workload
    that is not well, or the workload NAME only. Exit code 20 if something is broken.

    \b
    Examples:
      datumctl compute doctor
      datumctl compute doctor web -o json
    """

    async def body(session: Session) -> None:
        findings = await examined(session, name)
        print_listing(session.output, LISTING, findings, output_format, headers=not no_headers)
        failed = [f for f in findings if f.state == "failed"]
        if failed:
            raise FailedError(
                f"{render_count(len(failed), 'check')} failed in {session.target_name}.",
                failed[0].next,
            )

    run_in_session(ctx, body)


async def examined(session: Session, name: str | None) -> list[Finding]:
    """Every check, in order; where nobody answers, or nobody may ask, the rest is left out."""
    first = await _sign_in(session)
    if first.state == "failed":
        return [first]
    checks: tuple[tuple[str, Callable[[Session], Awaitable[Finding]]], ...] = (
        ("clock", _clock),
        ("access", _access),
        ("quota", _quota),
        ("cities", _cities),
        ("network", _network),
        ("driver", _driver),
    )
    findings = [first]
    for title, check in checks:
        try:
            findings.append(await check(session))
        except ApiError as error:
            text = f"cannot be checked: {one_line(error.message)}"
            findings.append(Finding(title, "skipped", text))
    return [*findings, *await _workloads(session, name)]


async def _sign_in(session: Session) -> Finding:
    try:
        await session.client.version(WORKLOAD)
    except (Unauthorized, Forbidden) as error:
        hint = session.complete_command("kubectl auth whoami")
        return Finding("sign-in", "failed", one_line(error.message), hint)
    except (Unreachable, ApiError) as error:
        hint = session.command("local", "status")
        return Finding("sign-in", "failed", f"no answer: {one_line(str(error))}", hint)
    return Finding("sign-in", "ok", f"{session.target_name} answers")


async def _clock(session: Session) -> Finding:
    """The server stamps what it creates, also in a dry run."""
    probe = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"generateName": "doctor-", "namespace": session.namespace},
    }
    made = await session.client.create_plain(CONFIG_MAP, probe, dry_run=True)
    here = session.environment.now()
    skew_s = here - parse_timestamp(made["metadata"]["creationTimestamp"])
    text = f"{abs(skew_s):.0f} s apart from the platform's"
    if abs(skew_s) > _SKEW_MAX_S:
        return Finding("clock", "warning", f"{text}; ages are wrong by that", "timedatectl status")
    return Finding("clock", "ok", text)


async def _access(session: Session) -> Finding:
    found = await read_access(session)
    text = STATE_TEXTS[found.state] + (f": {one_line(found.message)}" if found.message else "")
    if found.state in (AccessState.ACTIVE, AccessState.UNKNOWN):
        return Finding("access", "ok", text)
    passing = found.state in (AccessState.PROCESSING, AccessState.PENDING)
    state: State = "warning" if passing else "failed"
    return Finding("access", state, text, next_step(found, session.command))


async def _quota(session: Session) -> Finding:
    buckets = (await session.client.list(BUCKET, QUOTA_NAMESPACE)).items
    full = [bucket_name(b) for b in buckets if b.status.limit and not b.status.available]
    if full:
        text = f"used up: {', '.join(sorted(full))}"
        return Finding("quota", "warning", text, session.command("quota"))
    return Finding("quota", "ok", f"{render_count(len(buckets), 'resource')} with room left")


async def _cities(session: Session) -> Finding:
    bindings = (await session.client.list(LOCATION_BINDING)).items
    closed: list[str] = []
    drained: list[str] = []
    for binding in bindings:
        said = find_condition(binding.status.conditions, "Available")
        if said is not None and said.status != TRUE:
            meant = said.reason == Reason.CELL_DRAINED  # somebody did that on purpose
            (drained if meant else closed).append(city_of(binding))
    hint = session.command("cities", "-o", "wide")
    if not bindings:
        return Finding("cities", "failed", "the project may use none", hint)
    if closed:
        return Finding("cities", "warning", f"not available: {', '.join(sorted(closed))}", hint)
    text = f"{render_count(len(bindings) - len(drained), 'city')} available"
    text += f"; takes no new work: {', '.join(sorted(drained))}" if drained else ""
    return Finding("cities", "ok", text, hint if drained else "")


async def _network(session: Session) -> Finding:
    networks = (await session.client.list(NETWORK, session.namespace)).items
    names = ", ".join(sorted(network.metadata.name for network in networks))
    if not networks:
        hint = session.complete_command(f"kubectl get networks --namespace={session.namespace}")
        return Finding("network", "warning", f"{session.target_name} has none", hint)
    return Finding("network", "ok", names)


async def _driver(session: Session) -> Finding:
    """What runs the instances; an engine that is silent starts none."""
    drivers = await read_drivers(session.gateway, session.namespace)
    if not drivers:
        return Finding("driver", "skipped", "the platform does not tell what runs its instances")
    silent = [driver for driver in drivers if not driver.answers]
    text = " ".join(sentences(silent or drivers))
    if silent:
        return Finding("driver", "failed", text, session.command("local", "status"))
    without_init = sum(driver.without_init for driver in drivers)
    if without_init:
        text += (
            f" {render_count(without_init, 'container')} run without an init process, because the "
            "engine has none: programs that do not handle SIGTERM stop only after their grace "
            "period. Install the package catatonit (for Docker tini), then restart the workloads."
        )
        return Finding("driver", "warning", text, "apt-get install catatonit")
    return Finding("driver", "ok", text)


async def _workloads(session: Session, name: str | None) -> list[Finding]:
    chosen: list[Workload]
    if name is not None:
        chosen = [await find_workload(session, name)]
    else:
        listed = (await session.client.list(WORKLOAD, session.namespace)).items
        chosen = sorted(listed, key=lambda workload: workload.metadata.name)
    deployments = (await session.client.list(DEPLOYMENT, session.namespace)).items
    instances = (await session.client.list(INSTANCE, session.namespace)).items
    findings = []
    for workload in chosen:
        health = workload_health(workload)
        title = f"workload {workload.metadata.name}"
        if health.word == "Available":
            findings.append(Finding(title, "ok", "Available"))
            continue
        cause = explain_workload(workload, deployments, instances).cause
        if cause.status == TRUE:  # the counts know more than any condition
            hint = session.command("status", workload.metadata.name)
            findings.append(Finding(title, "warning", f"{health.word}: {health.message}", hint))
            continue
        cause = replace(cause, command=session.complete_command(cause.command))
        findings.append(_unwell(title, health.word, cause, session.environment.now()))
    return findings


def _unwell(title: str, word: str, cause: Link, now: float) -> Finding:
    """Broken, unless it is on its way and not yet late."""
    limit_s = window_s(cause.reason)
    stalled = _is_older(cause.since, now, limit_s) if limit_s is not None else False
    passing = limit_s is not None and not stalled
    whose = "stalled" if stalled else OWNER[cause.actor]
    age = age_since(cause.since, now)
    usual = f", usually done in {render_age(limit_s)}" if limit_s is not None else ""
    text = f"{word}: {cause_text(cause)} (for {age}{usual}; {whose})"
    state: State = "warning" if passing else "failed"
    return Finding(title, state, text, cause.command, cause_document(cause))


def _is_older(since: str, now: float, limit_s: int) -> bool:
    if not since or since.startswith("1970-"):
        return False
    return now - parse_timestamp(since) > limit_s


def _document(finding: Finding) -> JsonObject:
    return {
        "check": finding.check,
        "state": finding.state,
        "text": finding.text,
        "next": finding.next,
        "cause": finding.cause or {},
    }


LISTING: Listing[Finding] = Listing(
    noun="check",
    columns=(
        Column("CHECK", lambda f: f.check),
        Column("STATE", lambda f: f.state),
        Column("FOUND", lambda f: f.text),
        Column("NEXT", lambda f: f.next or "-"),
    ),
    document=_document,
    name=lambda f: f.check.replace(" ", "/"),
)

COMMAND = doctor
