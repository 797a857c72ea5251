"""``explain``: the chain of causes from what was asked for to what holds it back.

The chain itself is the platform's own (``planning/explain.py``); this file only reads the objects
and prints. It sees what the project sees.
"""

from __future__ import annotations

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import NotFound
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import Ref
from datum_compute.cli.observe import find_workload, observe
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.output import one_line
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.times import age_since
from datum_compute.planning.explain import Explanation, Link, explain_instance, explain_workload

_WHOSE = {"you": "your move", "platform": "the platform's move", "wait": "nothing to do but wait"}


@click.command(short_help="Say why a workload or instance is as it is.")
@click.argument("name")
@output_option("table", "json", "yaml")
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
        explanation = await _explained(session, name)
        match output_format:
            case "json":
                session.output.json(explanation_document(explanation))
            case "yaml":
                session.output.yaml(explanation_document(explanation))
            case _:
                _print(session, explanation)

    run_in_session(ctx, body)


async def _explained(session: Session, name: str) -> Explanation:
    instance = await _instance(session, name)
    if instance is not None:
        return explain_instance(instance)
    workload = await find_workload(session, name)
    observed = await observe(session, name, workload.metadata.uid)
    return explain_workload(
        observed.workload or workload, observed.deployments.items, observed.instances.items
    )


async def _instance(session: Session, name: str) -> Instance | None:
    """An instance of that name; workloads are far more often meant, but never end in an ordinal
    that an instance has too."""
    try:
        return await session.client.get(INSTANCE, Ref(session.namespace, name))
    except NotFound:
        return None


def _print(session: Session, explanation: Explanation) -> None:
    now, data = session.surroundings.now(), session.output.data
    for depth, link in enumerate(explanation.links):
        data("  " * depth + _sentence(link, now))
    cause = explanation.cause
    data("")
    data(f"Whose move:  {_WHOSE[cause.move]}")
    data(f"Awaited:     {cause.awaited}")
    data(f"Next:        {cause.command}")
    if explanation.steps:
        data("Plan:")
    for step in explanation.steps:
        data(f"  {one_line(step)}")


def _sentence(link: Link, now: float) -> str:
    age = age_since(link.since, now)
    since = "" if age == "-" else f", for {age}"
    text = f"{link.kind} {link.ref.name}: {link.condition} is {link.status} ({link.reason}{since})"
    return f"{text}: {one_line(link.message)}" if link.message else text


def explanation_document(explanation: Explanation) -> JsonObject:
    return {
        "links": [_link_document(link) for link in explanation.links],
        "cause": _link_document(explanation.cause),
        "plan": list(explanation.steps),
    }


def _link_document(link: Link) -> JsonObject:
    return {
        "kind": link.kind,
        "name": link.ref.name,
        "condition": link.condition,
        "status": link.status,
        "reason": link.reason,
        "message": link.message,
        "since": link.since,
        "move": str(link.move),
        "awaited": link.awaited,
        "command": link.command,
    }


COMMAND = explain
