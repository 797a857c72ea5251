"""``deploy``: create or update workloads, and wait until they run as asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import click

from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.arguments import (
    NAME_RULE,
    check_workload_name,
    is_workload_name,
    named,
    parse_cities,
    parse_env,
)
from datum_compute.cli.commands.cities import city_of
from datum_compute.cli.completion import city_names, instance_type_names, workload_names
from datum_compute.cli.connect.project_file import ProjectFile, find_project_file
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import connection_options, output_option, wait_options, yes_option
from datum_compute.cli.render.prompt import ask
from datum_compute.cli.workload.apply import Settings, deploy_targets
from datum_compute.cli.workload.edits import Flags, Target, flags_edit, manifest_edit
from datum_compute.cli.workload.manifest import read_manifests
from datum_compute.cli.workload.plan_file import plan_targets

# --- ``deploy`` with nothing named, on a terminal: asks what to deploy


_INSTANCES_MAX = 1000


async def ask_flags(session: Session, flags: Flags) -> Flags:
    """The flags, with what they leave open answered."""
    environment = session.environment
    listed = await session.client.list(LOCATION_BINDING)
    cities = sorted(city_of(binding) for binding in listed.items)
    session.print_note(f"Deploying to {session.target_name}. Ctrl-C leaves without a change.")
    name = ask(
        environment,
        "Name of the workload",
        _default_name(environment.cwd.name),
        lambda answer: "" if is_workload_name(answer) else NAME_RULE,
    )
    image = flags.image or ask(environment, "Image, with its tag")
    chosen = flags.cities or parse_cities(
        (
            ask(
                environment,
                f"Cities, separated by commas ({', '.join(cities)})",
                cities[0] if cities else "",
                lambda answer: _unknown_city(answer, cities),
            ),
        )
    )
    minimum = flags.minimum or int(ask(environment, "Instances in each city", "1", _no_count))
    return replace(flags, name=name, image=image, cities=chosen, minimum=minimum)


def _default_name(directory: str) -> str:
    return directory if is_workload_name(directory) else ""


def _unknown_city(answer: str, cities: list[str]) -> str:
    try:
        asked = parse_cities((answer,))
    except UsageError as error:
        return error.message
    unknown = [city for city in asked if city not in cities]
    return f"{unknown[0]} is none of {', '.join(cities)}." if unknown else ""


def _no_count(answer: str) -> str:
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= _INSTANCES_MAX:
        return ""
    return f"Write a number from 1 to {_INSTANCES_MAX}."


# --- deploy


_IN_THE_FILE = {
    "image": "spec.template.spec.runtime.sandbox.containers[].image",
    "cities": "spec.placements[].cityCodes",
    "minimum": "spec.placements[].scaleSettings.minReplicas",
    "port": "spec.template.spec.runtime.sandbox.containers[].ports",
    "env": "spec.template.spec.runtime.sandbox.containers[].env",
    "instance_type": "spec.template.spec.runtime.resources.instanceType",
}
_FLAG_OF = {"cities": "--city", "minimum": "--min", "instance_type": "--instance-type"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What to deploy: flags, or a file, or a plan that was made before."""

    flags: Flags
    file: str | None
    plan: str | None


@click.command(short_help="Create or update a workload and wait for it.")
@click.argument("name", required=False, callback=named("workload"), shell_complete=workload_names)
@click.option("--image", metavar="IMAGE", help="Container image.")
@click.option(
    *("--city", "cities"),
    multiple=True,
    metavar="CODE",
    help="City; repeat, or a,b.",
    shell_complete=city_names,
)
@click.option("--min", "minimum", type=click.IntRange(1, 1000), help="Instances in each city.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port the container listens on.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="Variable; repeat. NAME- takes it away."
)
@click.option("--instance-type", metavar="TYPE", help="Size.", shell_complete=instance_type_names)
@click.option(
    *("-f", "--file", "file"),
    metavar="FILE",
    help="Workloads in YAML or JSON: a file, a directory, or - for stdin.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--plan-out", metavar="FILE", help="Write the plan to a file and change nothing.")
@click.option("--plan", "plan", metavar="FILE", help="Carry out the plan of that file, or nothing.")
@click.option(
    "--deploy-key", metavar="KEY", help="Run again with the same key, it is the same deploy."
)
@click.option("--skip-checks", is_flag=True, help="Go on although quota or references lack.")
@click.option("--confirm", metavar="NAME", help="As -y, for this workload only.")
@yes_option
@wait_options(default="10m")
@output_option("table", "json")
@connection_options
@click.pass_context
def deploy(
    ctx: click.Context,
    /,
    name: str | None,
    image: str | None,
    cities: tuple[str, ...],
    minimum: int | None,
    port: int | None,
    env: tuple[str, ...],
    instance_type: str | None,
    file: str | None,
    plan: str | None,
    timeout_s: int,
    wait: bool,
    output_format: str,
    **how: str | bool | None,
) -> None:
    """Create the workload NAME, or change it, and wait until it runs as asked.

    On an existing workload only what you name changes. The plan is shown first: every field that
    changes, which instances are recreated, what it takes of the quota. Without any change to make,
    the command writes nothing and waits for the rollout under way. On a terminal and with nothing
    named it asks what to deploy.

    \b
    Examples:
      datumctl compute deploy web --image=ghcr.io/example/web:1.0 --city=DFW,LHR
      datumctl compute deploy web --image=ghcr.io/example/web:1.1 --deploy-key=build-17 -y
      datumctl compute deploy -f web.yaml --dry-run
      datumctl compute deploy -f ./workloads --plan-out=plan.json
      datumctl compute deploy --plan=plan.json
    """
    known = ProjectFile() if file or plan else find_project_file(ctx.obj)
    flags = Flags(
        name=name or known.workload,
        image=image,
        cities=parse_cities(cities),
        minimum=minimum,
        port=port,
        env=parse_env(env),
        instance_type=instance_type,
    )
    settings = Settings(timeout_s=timeout_s if wait else None, **how)  # type: ignore[arg-type]
    asked = _checked(ctx, Asked(flags, file, plan), named=name or "")
    manifests = _read_files(ctx, asked, name or "") if file is not None else []

    async def body(session: Session) -> None:
        if asked.plan is not None:
            await deploy_targets(session, await plan_targets(session, asked.plan), settings)
        elif asked.file is not None:
            targets = [_manifest_target(session, asked.file, m) for m in manifests]
            await deploy_targets(session, targets, settings)
        else:
            flags = asked.flags
            if not flags.name:
                flags = await ask_flags(session, flags)
            await deploy_targets(session, [_flags_target(session, flags, known)], settings)

    run_in_session(ctx, body, as_json=output_format == "json")


def _checked(ctx: click.Context, asked: Asked, named: str) -> Asked:
    """What can be refused without asking anybody."""
    given = [f for f in _IN_THE_FILE if getattr(asked.flags, f) not in (None, ())]
    if asked.file is not None and asked.plan is not None:
        raise UsageError("--plan and -f both say what to deploy; give one of them.")
    if given and (asked.file is not None or asked.plan is not None):
        flag = _FLAG_OF.get(given[0], f"--{given[0]}")
        if asked.plan is not None:
            raise UsageError(f"{flag} cannot go with --plan.", "The plan says it all.")
        raise UsageError(f"{flag} cannot go with -f.", f"Set {_IN_THE_FILE[given[0]]} in the file.")
    if asked.plan is not None and named:
        raise UsageError("A NAME cannot go with --plan.", "The plan says which workload.")
    if asked.file is None and asked.plan is None:
        if not asked.flags.name and ctx.obj.may_ask:
            return asked
        check_workload_name(asked.flags.name, ctx.obj)
    return asked


def _read_files(ctx: click.Context, asked: Asked, named: str) -> list[JsonObject]:
    manifests = read_manifests(str(asked.file), ctx.obj)
    for manifest in manifests:
        found = manifest["metadata"]["name"]
        if named and named != found:
            raise UsageError(f"{asked.file} is about workload {found!r}, not {named!r}.")
    return manifests


def _flags_target(session: Session, flags: Flags, known: ProjectFile) -> Target:
    example = session.command("deploy", flags.name, "--image=IMAGE", "--city=DFW")
    first_cities = parse_cities(known.cities)
    edit = flags_edit(flags, session.namespace, example, first_cities)
    return Target(flags.name, edit, {"flags": asdict(flags)})


def _manifest_target(session: Session, file: str, manifest: JsonObject) -> Target:
    named = manifest["metadata"].get("namespace", session.namespace)
    if named != session.namespace:
        raise UsageError(
            f"{file} is for namespace {named!r}, not for {session.namespace!r}.",
            "Leave metadata.namespace out of the file, or choose it with -n.",
            field="metadata.namespace",
        )
    edit = manifest_edit(manifest, session.namespace)
    return Target(manifest["metadata"]["name"], edit, {"manifest": manifest})


COMMAND = deploy
