"""``explain``: the chain of causes from what was asked for to what holds it back.

The chain itself is the platform's own (``planning/explain/explain.py``); this file only reads the
objects
and prints: what the project sees, and behind that what hub and cell say (``otherplanes.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import TRUE, Reason
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.cli.arguments import workload_or_instance_argument
from datum_compute.cli.commands.instances import located
from datum_compute.cli.connect.other_planes import find_deployment, links_elsewhere
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import MissingError
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.health import silent_since
from datum_compute.cli.render.listing import age_since, print_document, read_options
from datum_compute.cli.render.output import one_line
from datum_compute.cli.workload.crashes import (
    ends_of,
    print_earlier_versions,
    print_ends,
    print_gone,
    split_by_template,
)
from datum_compute.cli.workload.observe import find_workload, observe_parts
from datum_compute.planning.explain.explain import (
    Explanation,
    Link,
    deployment_ref,
    explain_instance,
    explain_workload,
)
from datum_compute.planning.workload.templates import template_hash

_WHOSE = {
    "you": "your move",
    "platform": "the platform's move",
    "wait": "nothing to do but wait",
    "nobody": "nobody's: all is well",
}


@click.command(short_help="Say why a workload or instance is as it is.")
@workload_or_instance_argument
@read_options
@connection_options
@click.pass_context
def explain(ctx: click.Context, name: str, output_format: str) -> None:
    """Say why the workload or instance NAME is as it is: each cause, since when, whose move it is,
    and one command to go on with.

    \b
    Examples:
      datumctl compute explain web
      datumctl compute explain web -o json
    """

    async def body(session: Session) -> None:
        try:
            chain = await _explained(session, name)
        except MissingError:
            if not (ends := await ends_of(session, name)):
                raise
            print_gone(session, name, output_format, ends)
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
    """Links with the plane of each, the next steps of the platform, and the ends of the instance
    that is the cause: with its current template, and with earlier ones."""

    links: tuple[tuple[str, Link], ...]
    steps: tuple[str, ...]
    ends: tuple[JsonObject, ...] = ()
    earlier_ends: tuple[JsonObject, ...] = ()

    @property
    def cause(self) -> Link:
        return self.links[-1][1]

    @property
    def as_of(self) -> str:
        """When what the plan rests on was last known; empty where it is known now."""
        said = (silent_since(link.reason, link.message) for _, link in self.links)
        return next(filter(None, said), "")


async def _explained(session: Session, name: str) -> Chain:
    instance = await _instance(session, name)
    if instance is not None:
        (found,) = await located(session, [instance])
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
    return await _chain(session, explanation, instances, deployments)


async def _chain(
    session: Session,
    explanation: Explanation,
    instances: list[Instance],
    deployments: list[WorkloadDeployment],
) -> Chain:
    links, cause = [(session.target_name, link) for link in explanation.links], explanation.cause
    ends: list[JsonObject] = []
    if cause.status != TRUE:
        links += await links_elsewhere(session, cause, instances)
        # A silent cell would be waited for, and it is the one that remembers.
        if cause.kind == INSTANCE.kind and cause.reason != Reason.CELL_UNREACHABLE:
            ends = await ends_of(session, cause.ref.name)
    links = [
        (plane, replace(link, command=session.complete_command(link.command)))
        for plane, link in links
    ]
    crashes = [end for end in ends if not end["planned"]]
    template = _current_template(cause.ref, instances, deployments)
    current, earlier = split_by_template(crashes, template)
    return Chain(tuple(links), explanation.steps, tuple(current), tuple(earlier))


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


async def _instance(session: Session, name: str) -> Instance | None:
    """An instance of that name; workloads are far more often meant, but never end in an ordinal
    that an instance has too."""
    try:
        return await session.client.get(INSTANCE, Ref(session.namespace, name))
    except NotFound:
        return None


def _print(session: Session, chain: Chain) -> None:
    now, data = session.environment.now(), session.output.data
    told: set[str] = set()
    for depth, (plane, link) in enumerate(chain.links):
        where = "" if plane == session.target_name else f" [{plane}]"
        data("  " * depth + _sentence(link, now, message=link.message not in told) + where)
        told.add(link.message)
    cause = chain.cause
    data("")
    data(f"Whose move:  {_WHOSE[cause.actor]}")
    data(f"Waiting for: {cause.waiting_for}")
    data(f"Next:        {cause.command}")
    if chain.steps:
        data(f"Plan, by what the cell said last ({_then(chain, now)}):" if chain.as_of else "Plan:")
    for step in chain.steps:
        data(f"  {one_line(step)}")
    print_ends(session, list(chain.ends))
    print_earlier_versions(session, list(chain.earlier_ends))


def _then(chain: Chain, now: float) -> str:
    return f"{age_since(chain.as_of, now)} ago; what is there now nobody knows"


def _sentence(link: Link, now: float, *, message: bool) -> str:
    """With its message, unless a link above says the same."""
    age = age_since(link.since, now)
    since = "" if age == "-" else f", for {age}"
    text = f"{link.kind} {link.ref.name}: {link.condition} is {link.status} ({link.reason}{since})"
    return f"{text}: {one_line(link.message)}" if link.message and message else text


def chain_document(chain: Chain) -> JsonObject:
    links = [_link_document(plane, link) for plane, link in chain.links]
    return {
        "links": links,
        "cause": links[-1],
        "plan": list(chain.steps),
        "planAsOf": chain.as_of,
        "crashes": list(chain.ends),
        "earlierCrashes": list(chain.earlier_ends),
    }


def _link_document(plane: str, link: Link) -> JsonObject:
    return {
        "plane": plane,
        "kind": link.kind,
        "name": link.ref.name,
        "condition": link.condition,
        "status": link.status,
        "reason": link.reason,
        "message": link.message,
        "since": link.since,
        "move": str(link.actor),
        "awaited": link.waiting_for,
        "command": link.command,
    }


COMMAND = explain
