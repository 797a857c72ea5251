"""``deploy``: create or update a workload, and wait until it runs as asked."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.identity import normalized_city
from datum_compute.api.workload import Workload
from datum_compute.cli.context import Surroundings
from datum_compute.cli.edits import Edit, Flags, flags_edit, manifest_edit
from datum_compute.cli.errors import UsageError
from datum_compute.cli.manifest import read_manifest
from datum_compute.cli.options import connection_options, output_option, wait_options, yes_option
from datum_compute.cli.plan import Action, Plan, carry_out, read_plan
from datum_compute.cli.prompt import confirm
from datum_compute.cli.rollout import Progress
from datum_compute.cli.rollout_wait import wait_for_rollout
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.status import place_document

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_THE_FILE = {
    "image": "spec.template.spec.runtime.sandbox.containers[].image",
    "cities": "spec.placements[].cityCodes",
    "minimum": "spec.placements[].scaleSettings.minReplicas",
    "port": "spec.template.spec.runtime.sandbox.containers[].ports",
    "env": "spec.template.spec.runtime.sandbox.containers[].env",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How to go about it, as opposed to what to deploy."""

    yes: bool
    wait: bool
    timeout_s: int
    as_json: bool


@click.command(short_help="Create or update a workload and wait for it.")
@click.argument("name", required=False)
@click.option("--image", metavar="IMAGE", help="Container image.")
@click.option("--city", "cities", multiple=True, metavar="CODE", help="City; repeat, or a,b.")
@click.option("--min", "minimum", type=click.IntRange(1, 1000), help="Instances in each city.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port the container listens on.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment variable; repeat.")
@click.option("-f", "--file", "file", metavar="FILE", help="Workload in YAML or JSON; - is stdin.")
@yes_option
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def deploy(
    ctx: click.Context,
    name: str | None,
    image: str | None,
    cities: tuple[str, ...],
    minimum: int | None,
    port: int | None,
    env: tuple[str, ...],
    file: str | None,
    yes: bool,
    wait: bool,
    timeout_s: int,
    output_format: str,
) -> None:
    """Create the workload NAME, or change it, and wait until it runs as asked.

    On an existing workload only what you name changes. Without any change to make, the command
    writes nothing and waits for the rollout under way.
    """
    flags = Flags(
        name=name or "",
        image=image,
        cities=_parse_cities(cities),
        minimum=minimum,
        port=port,
        env=_parse_env(env),
    )
    settings = Settings(yes, wait, timeout_s, output_format == "json")
    if file is not None:
        manifest = _read_file(file, flags, ctx.obj)
        run_in_session(ctx, lambda session: _deploy_manifest(session, manifest, settings))
        return
    _check_name(flags.name, ctx.obj)
    run_in_session(ctx, lambda session: _deploy_flags(session, flags, settings))


async def _deploy_flags(session: Session, flags: Flags, settings: Settings) -> None:
    example = session.command("deploy", flags.name, "--image=IMAGE", "--city=DFW")
    edit = flags_edit(flags, session.namespace, example)
    await _deploy(session, flags.name, edit, settings)


async def _deploy_manifest(session: Session, manifest: JsonObject, settings: Settings) -> None:
    named = manifest["metadata"].get("namespace", session.namespace)
    if named != session.namespace:
        raise UsageError(
            f"The file says namespace {named!r}, but {session.place} uses {session.namespace!r}.",
            "Leave metadata.namespace out of the file.",
        )
    edit = manifest_edit(manifest, session.namespace)
    await _deploy(session, manifest["metadata"]["name"], edit, settings)


async def _deploy(session: Session, name: str, edit: Edit, settings: Settings) -> None:
    plan = await read_plan(session, name, edit)
    _show_plan(session, name, plan)
    if plan.action != "unchanged" and not settings.yes:
        confirm(session.surroundings, f"Apply to {session.place}?")
    written = await carry_out(session, name, edit, plan)
    if not settings.as_json:
        session.output.data(f"workload/{name} {plan.action}")
    progress = None
    if settings.wait:
        progress = await wait_for_rollout(session, written, timeout_s=settings.timeout_s)
    elif plan.action != "unchanged":
        session.output.note(f"Not waiting. See: {session.command('status', name)}")
    if settings.as_json:
        session.output.json(_result(session, written, plan.action, progress))


def _show_plan(session: Session, name: str, plan: Plan) -> None:
    note = session.output.note
    match plan.action:
        case "unchanged":
            note(f"No changes to workload {name} in {session.place}.")
            return
        case "created":
            note(f"New workload {name} in {session.place}:")
        case "updated":
            note(f"Changes to workload {name} in {session.place}:")
    for line in plan.lines:
        note(f"  {line}")
    if plan.replaces_instances:
        note("Instances will be replaced in order.")


def _result(
    session: Session, workload: Workload, action: Action, progress: Progress | None
) -> JsonObject:
    return {
        "workload": workload.metadata.name,
        "place": session.place,
        "action": action,
        "uid": workload.metadata.uid,
        "generation": workload.metadata.generation,
        "ready": progress is not None,
        "cities": [place_document(p) for p in progress.places] if progress else [],
    }


def _read_file(file: str, flags: Flags, surroundings: Surroundings) -> JsonObject:
    for field, path in _IN_THE_FILE.items():
        if getattr(flags, field) not in (None, ()):
            flag = {"cities": "--city", "minimum": "--min"}.get(field, f"--{field}")
            raise UsageError(f"{flag} cannot go with -f.", f"Set {path} in the file.")
    manifest = read_manifest(file, surroundings)
    named = manifest["metadata"]["name"]
    if flags.name and flags.name != named:
        raise UsageError(f"The file is about workload {named!r}, not {flags.name!r}.")
    _check_name(named, surroundings)
    return manifest


def _check_name(name: str, surroundings: Surroundings) -> None:
    if not name:
        example = surroundings.command("deploy", "web", "--image=IMAGE", "--city=DFW")
        raise UsageError("Say which workload, or give a file with -f.", f"For example: {example}")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a workload.",
            "Use up to 63 lower case letters, digits and dashes, with no dash first or last.",
        )


def _parse_cities(values: tuple[str, ...]) -> tuple[str, ...]:
    cities = [normalized_city(city) for value in values for city in value.split(",")]
    if not all(cities):
        raise UsageError("--city has an empty city in it.", "Write for example --city=DFW,ORD.")
    return tuple(dict.fromkeys(cities))


def _parse_env(values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    parsed: dict[str, str] = {}
    for pair in values:
        name, equals, value = pair.partition("=")
        if not equals or not _ENV_NAME.fullmatch(name):
            # The value is not repeated: it may be a secret.
            shown = f"{name}=..." if equals else name
            raise UsageError(f"--env {shown!r} is not NAME=VALUE.", "For example --env MODE=fast")
        if name in parsed:
            raise UsageError(f"--env sets {name!r} twice.")
        parsed[name] = value
    return tuple(parsed.items())


COMMAND = deploy
