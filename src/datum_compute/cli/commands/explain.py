"""``explain``: the chain of causes from a workload or an instance to its root cause.

``planning/explain`` computes the chain. This module reads the objects of the project, adds what
the hub and the cell report (``connect/other_planes.py``), and prints the chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import click

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import EPOCH, TRUE, Reason
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import INSTANCE, INSTANCE_TYPE
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.cli.arguments import workload_or_instance_argument
from datum_compute.cli.commands.instances import resolve_owners
from datum_compute.cli.connect.other_planes import find_deployment, links_on_other_planes
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import MissingError
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import ExplanationDocument, LinkDocument
from datum_compute.cli.render.listing import age_since, print_document, read_options
from datum_compute.cli.render.output import one_line
from datum_compute.cli.workload.cell_reports import (
    StaleReport,
    read_drivers,
    stale_heartbeats,
    stale_report,
)
from datum_compute.cli.workload.crashes import (
    print_crash_reports,
    print_deleted_instance,
    print_earlier_versions,
    read_crash_reports,
    select_crashes,
    select_workload,
    split_by_template,
)
from datum_compute.cli.workload.observe import find_workload, observe_parts
from datum_compute.planning.explain.advice import Actor
from datum_compute.planning.explain.explain import (
    Deprecation,
    Explanation,
    Link,
    deployment_ref,
    deprecated_type,
    explain_instance,
    explain_workload,
)
from datum_compute.planning.workload.templates import template_hash

_ACTIONS = {
    Actor.USER: "required from you",
    Actor.PLATFORM: "required from the platform operator",
    Actor.WAIT: "none, wait",
}


@click.command(short_help="Explain why a workload or instance is not ready.")
@workload_or_instance_argument
@read_options
@connection_options
@click.pass_context
def explain(ctx: click.Context, name: str, output_format: str) -> None:
    """Explain why the workload or instance NAME is not ready: the chain of causes, since when
    each holds, who has to act, and the next command.

    \b
    Examples:
      datumctl compute explain web
      datumctl compute explain web -o json
    """

    async def body(session: Session) -> None:
        try:
            chain = await _read_chain(session, name)
        except MissingError:
            if not (reports := await read_crash_reports(session, name)):
                raise
            print_deleted_instance(session, name, output_format, reports)
            return
        print_document(
            session.output,
            output_format,
            lambda: chain_document(chain),
            lambda: _print(session, chain),
            f"{chain.links[0][1].kind.lower()}/{name}",
        )

    run_in_session(ctx, body)


@dataclass(frozen=True, slots=True)
class Chain:
    """The links of an explanation with the plane of each, and how the instance ended before.

    ``crashes`` are the reports of the current template, ``earlier_crashes`` those of others.
    """

    links: tuple[tuple[str, Link], ...]
    steps: tuple[str, ...]
    crashes: tuple[JsonObject, ...] = ()
    earlier_crashes: tuple[JsonObject, ...] = ()
    warnings: tuple[str, ...] = ()
    stale: StaleReport = field(default_factory=StaleReport)

    @property
    def cause(self) -> Link:
        return self.links[-1][1]

    @property
    def as_of(self) -> str:
        """The time of the last report that the plan is based on; empty if it is current."""
        links = (link for _, link in self.links if link.reason == Reason.CELL_UNREACHABLE)
        found = next((link.since for link in links if link.since != EPOCH), "")
        return found or self.stale.as_of


async def _read_chain(session: Session, name: str) -> Chain:
    # An instance has an ordinal at the end of its name, so a workload rarely has the same name.
    instance = await _find_instance(session, name)
    if instance is not None:
        (found,) = await resolve_owners(session, [instance])
        deployment = await find_deployment(session.client, instance)
        explanation = explain_instance(
            instance, workload=found.place.workload, deployment=deployment
        )
        deployments = [] if deployment is None else [deployment]
        return await _chain(session, explanation, [instance], deployments)
    workload = await find_workload(session, name)
    observed = await observe_parts(session, workload)
    instances, deployments = observed.instances.items, observed.deployments.items
    explanation = explain_workload(workload, deployments, instances)
    types = (await session.client.list(INSTANCE_TYPE)).items
    deprecation = deprecated_type(workload, types)
    warnings = () if deprecation is None else (_deprecation_text(session, deprecation),)
    chain = await _chain(session, explanation, instances, deployments)
    return replace(chain, warnings=warnings)


def _deprecation_text(session: Session, deprecation: Deprecation) -> str:
    command = session.complete_command(deprecation.command)
    return f"{deprecation.message} (change it: {command})"


async def _chain(
    session: Session,
    explanation: Explanation,
    instances: list[Instance],
    deployments: list[WorkloadDeployment],
) -> Chain:
    links, cause = [(session.target_name, link) for link in explanation.links], explanation.cause
    reports: list[JsonObject] = []
    if cause.status != TRUE:
        links += await links_on_other_planes(session, cause, instances)
        # Only the cell has the crash reports; do not wait for a cell that is unreachable.
        if cause.kind == INSTANCE.kind and cause.reason != Reason.CELL_UNREACHABLE:
            reports = await read_crash_reports(session, cause.ref.name)
            found = next((i for i in instances if ref_of(i) == cause.ref), None)
            uid = found.metadata.labels.get(WORKLOAD_UID, "") if found is not None else ""
            reports = select_workload(reports, uid)
    links = [
        (plane, replace(link, command=session.complete_command(link.command)))
        for plane, link in links
    ]
    stale = await _read_stale_report(session, instances)
    crashes = select_crashes(reports)
    template = _current_template(cause.ref, instances, deployments)
    current, earlier = split_by_template(crashes, template)
    return Chain(tuple(links), explanation.steps, tuple(current), tuple(earlier), stale=stale)


async def _read_stale_report(session: Session, instances: list[Instance]) -> StaleReport:
    """Return which cells of the instances do not respond. A slow engine is not waited for."""
    try:
        async with asyncio.timeout(session.environment.timeouts.cells_read_s):
            drivers = await read_drivers(session.gateway, session.namespace)
    except TimeoutError:
        return StaleReport()
    return stale_report(stale_heartbeats(drivers), instances)


def _current_template(
    ref: Ref, instances: list[Instance], deployments: list[WorkloadDeployment]
) -> str:
    """Return the hash of the template that an instance should have; empty if it is unknown."""
    instance = next((i for i in instances if ref_of(i) == ref), None)
    if instance is None:
        return ""
    owner = deployment_ref(instance)
    deployment = next((d for d in deployments if ref_of(d) == owner), None)
    if deployment is not None:
        return template_hash(deployment.spec.template)
    return instance.spec.controller.template_hash


async def _find_instance(session: Session, name: str) -> Instance | None:
    try:
        return await session.client.get(INSTANCE, Ref(session.namespace, name))
    except NotFound:
        return None


def _print(session: Session, chain: Chain) -> None:
    now, data = session.environment.now(), session.output.data
    printed: set[tuple[str, str]] = set()
    for depth, (plane, link) in enumerate(_without_repeated_links(chain.links)):
        where = "" if plane == session.target_name else f" [{plane}]"
        cause = (link.reason, link.message)
        data("  " * depth + _sentence(link, now, with_message=cause not in printed) + where)
        printed.add(cause)
    root, stale = chain.cause, chain.stale.describe(now)
    if stale:
        data(f"This is the state {stale}.")
    for warning in chain.warnings:
        data(f"Warning: {warning}")
    data("")
    if root.actor is Actor.NONE:
        data(f"Healthy {stale}." if stale else "Healthy. No action needed.")
    else:
        data(f"Action:      {_ACTIONS[root.actor]}")
        data(f"Waiting for: {root.waiting_for}")
        data(f"Next:        {root.command}")
    if chain.steps:
        data(f"Plan ({_basis_of_plan(chain, now)}):" if chain.as_of else "Plan:")
    for step in chain.steps:
        data(f"  {one_line(step)}")
    print_crash_reports(session, list(chain.crashes))
    print_earlier_versions(session, list(chain.earlier_crashes))


def _without_repeated_links(links: Sequence[tuple[str, Link]]) -> list[tuple[str, Link]]:
    """Return the links without those of the cell that repeat a link of the project."""
    seen: set[tuple[str, ...]] = set()
    kept = []
    for plane, link in links:
        content = (link.kind, link.ref.name, link.condition, link.status, link.reason, link.message)
        if content not in seen:
            kept.append((plane, link))
        seen.add(content)
    return kept


def _basis_of_plan(chain: Chain, now: float) -> str:
    return f"from the report of {age_since(chain.as_of, now)} ago; current state unknown"


def _sentence(link: Link, now: float, *, with_message: bool) -> str:
    age = age_since(link.since, now)
    since = "" if age == "-" else f", for {age}"
    text = f"{link.kind} {link.ref.name}: {link.condition} is {link.status} ({link.reason}{since})"
    return f"{text}: {one_line(link.message)}" if link.message and with_message else text


def chain_document(chain: Chain) -> ExplanationDocument:
    links = [_link_document(plane, link) for plane, link in chain.links]
    return ExplanationDocument(
        links=links,
        cause=links[-1],
        warnings=list(chain.warnings),
        as_of=chain.as_of,
        plan=list(chain.steps),
        plan_as_of=chain.as_of,
        crashes=list(chain.crashes),
        earlier_crashes=list(chain.earlier_crashes),
    )


def _link_document(plane: str, link: Link) -> LinkDocument:
    return LinkDocument(
        plane=plane,
        kind=link.kind,
        name=link.ref.name,
        condition=link.condition,
        status=link.status,
        reason=link.reason,
        message=link.message,
        since=link.since,
        move=str(link.actor),
        awaited=link.waiting_for,
        command=link.command,
    )


COMMAND = explain
