"""``deploy``: create or update workloads, and wait for their rollouts.

This module parses the command line into a ``DeployRequest``; ``workload/deploy.py`` executes it.
"""

from __future__ import annotations

from dataclasses import replace

import click

from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.cli.arguments import (
    NAME_RULE,
    check_workload_name,
    is_workload_name,
    parse_cities,
    parse_env,
    strip_type_of,
)
from datum_compute.cli.commands.cities import city_of
from datum_compute.cli.completion import city_names, instance_type_names, workload_names
from datum_compute.cli.connect.project_file import ProjectFile, find_project_file
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import connection_options, output_option, wait_options, yes_option
from datum_compute.cli.render.prompt import prompt_text
from datum_compute.cli.workload.deploy import deploy_workloads
from datum_compute.cli.workload.manifest import read_manifests
from datum_compute.cli.workload.request import DeployOptions, DeployRequest, WorkloadFlags

_MINIMUM_MAX = 1000

# --- prompts: ``deploy`` on a terminal without a workload


async def prompt_flags(session: Session, flags: WorkloadFlags) -> WorkloadFlags:
    """Prompt for the name, and for the image, cities and minimum if no flag sets them."""
    environment = session.environment
    listed = await session.client.list(LOCATION_BINDING)
    known_cities = sorted(city_of(binding) for binding in listed.items)
    session.print_note(f"Deploying to {session.target_name}. Press Ctrl-C to cancel.")
    name = prompt_text(
        environment,
        "Name of the workload",
        _default_name(environment.cwd.name),
        lambda answer: "" if is_workload_name(answer) else NAME_RULE,
    )
    image = flags.image or prompt_text(environment, "Image, with its tag")
    cities = flags.cities or parse_cities(
        (
            prompt_text(
                environment,
                f"Cities, separated by commas ({', '.join(known_cities)})",
                known_cities[0] if known_cities else "",
                lambda answer: _city_problem(answer, known_cities),
            ),
        )
    )
    minimum = flags.minimum or int(
        prompt_text(environment, "Instances in each city", "1", _count_problem)
    )
    return replace(flags, name=name, image=image, cities=cities, minimum=minimum)


def _default_name(directory: str) -> str:
    return directory if is_workload_name(directory) else ""


def _city_problem(answer: str, known_cities: list[str]) -> str:
    """Return why the answer is not a list of known cities; empty if it is."""
    try:
        cities = parse_cities((answer,))
    except UsageError as error:
        return error.message
    unknown = [city for city in cities if city not in known_cities]
    return f"{unknown[0]} is none of {', '.join(known_cities)}." if unknown else ""


def _count_problem(answer: str) -> str:
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= _MINIMUM_MAX:
        return ""
    return f"Enter a number from 1 to {_MINIMUM_MAX}."


# --- command line

# The manifest field for each flag that cannot be combined with a file.
_MANIFEST_FIELDS = {
    "image": "spec.template.spec.runtime.sandbox.containers[].image",
    "cities": "spec.placements[].cityCodes",
    "minimum": "spec.placements[].scaleSettings.minReplicas",
    "port": "spec.template.spec.runtime.sandbox.containers[].ports",
    "env": "spec.template.spec.runtime.sandbox.containers[].env",
    "instance_type": "spec.template.spec.runtime.resources.instanceType",
    "auto_rollback": "spec.rollout.onFailure",
}
_FLAG_NAMES = {
    "cities": "--city",
    "minimum": "--min",
    "instance_type": "--instance-type",
    "auto_rollback": "--auto-rollback",
}


@click.command(short_help="Create or update a workload and wait for it.")
@click.argument(
    "name", required=False, callback=strip_type_of("workload"), shell_complete=workload_names
)
@click.option("--image", metavar="IMAGE", help="Container image.")
@click.option(
    *("--city", "cities"),
    multiple=True,
    metavar="CODE",
    help="City code; repeat the flag, or separate codes by commas.",
    shell_complete=city_names,
)
@click.option(
    "--min", "minimum", type=click.IntRange(1, _MINIMUM_MAX), help="Instances in each city."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port the container listens on.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable; repeat the flag. NAME- removes it.",
)
@click.option(
    "--instance-type",
    metavar="TYPE",
    help="Size of the instances.",
    shell_complete=instance_type_names,
)
@click.option(
    "--auto-rollback/--no-auto-rollback",
    default=None,
    help="Return all cities to the last complete rollout if this one fails.",
)
@click.option(
    *("-f", "--file", "file"),
    metavar="FILE",
    help="Workloads in YAML or JSON: a file, a directory, or - for stdin.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--plan-out", metavar="FILE", help="Write the plan to a file and change nothing.")
@click.option("--plan", "plan", metavar="FILE", help="Apply exactly the plan in this file.")
@click.option(
    "--deploy-key",
    metavar="KEY",
    help="Idempotency key: a retry with the same key does not deploy twice.",
)
@click.option(
    "--skip-checks", is_flag=True, help="Deploy even if quota, reference or image checks fail."
)
@click.option("--confirm", metavar="NAME", help="Like --yes, but only if the workload is NAME.")
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
    auto_rollback: bool | None,
    file: str | None,
    plan: str | None,
    timeout_s: int,
    wait: bool,
    output_format: str,
    **options: str | bool | None,
) -> None:
    """Create or update the workload NAME, and wait until its rollout is done.

    Flags change only the fields that they name. The plan is shown first: every field that changes,
    the instances that are recreated, and the quota that is used. If nothing changes, the command
    writes nothing and waits for the present rollout. A rollout that fails in a city ends the
    command with exit code 20. With --auto-rollback the platform then returns all cities to the last
    complete rollout, even if this command was stopped. Without a workload, it prompts for one on a
    terminal.

    \b
    Examples:
      datumctl compute deploy web --image=ghcr.io/example/web:1.0 --city=DFW,LHR
      datumctl compute deploy web --image=ghcr.io/example/web:1.1 --deploy-key=build-17 -y
      datumctl compute deploy -f web.yaml --dry-run
      datumctl compute deploy -f ./workloads --plan-out=plan.json
      datumctl compute deploy --plan=plan.json
    """
    # A file or a plan names its own workloads, so datum.toml does not apply.
    project_file = ProjectFile() if file or plan else find_project_file(ctx.obj)
    flags = WorkloadFlags(
        name=name or project_file.workload,
        image=image,
        cities=parse_cities(cities),
        minimum=minimum,
        port=port,
        env=parse_env(env),
        instance_type=instance_type,
        auto_rollback=auto_rollback,
    )
    deploy_options = DeployOptions(
        timeout_s=timeout_s if wait else None,
        **options,  # type: ignore[arg-type]
    )
    request = DeployRequest(
        deploy_options,
        flags,
        first_cities=parse_cities(project_file.cities),
        plan_file=plan,
        manifest_path=file,
    )
    request = parse_request(ctx.obj, request, given_name=name or "")

    async def body(session: Session) -> None:
        if request.plan_file or request.manifest_path or request.flags.name:
            await deploy_workloads(session, request)
        else:
            prompted = await prompt_flags(session, request.flags)
            await deploy_workloads(session, replace(request, flags=prompted))

    run_in_session(ctx, body, as_json=output_format == "json")


def parse_request(
    environment: CliEnvironment, request: DeployRequest, given_name: str
) -> DeployRequest:
    """Return the request with the manifests read. Raise UsageError if its parts contradict.

    ``given_name`` is the NAME on the command line, empty if the name comes from ``datum.toml``.
    """
    if request.plan_file is not None:
        if request.manifest_path is not None:
            raise UsageError("--plan and -f cannot be used together; give one of them.")
        if given_name:
            raise UsageError(
                "NAME cannot be combined with --plan.", "The plan names its workloads."
            )
        if flag := _first_field_flag(request.flags):
            hint = "The plan contains every field of its workloads."
            raise UsageError(f"{_flag_name(flag)} cannot be combined with --plan.", hint)
        return request
    if request.manifest_path is None:
        if request.flags.name or not environment.may_ask:
            check_workload_name(request.flags.name, environment)
        return request
    if flag := _first_field_flag(request.flags):
        hint = f"Set {_MANIFEST_FIELDS[flag]} in the file."
        raise UsageError(f"{_flag_name(flag)} cannot be combined with -f.", hint)
    manifests = read_manifests(request.manifest_path, environment)
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        if given_name and given_name != name:
            raise UsageError(
                f"{request.manifest_path} contains workload {name!r}, not {given_name!r}."
            )
    return replace(request, manifests=tuple(manifests))


def _first_field_flag(flags: WorkloadFlags) -> str:
    """Return the first flag that sets a field of the workload; empty if there is none."""
    return next((f for f in _MANIFEST_FIELDS if getattr(flags, f) not in (None, ())), "")


def _flag_name(flag: str) -> str:
    return _FLAG_NAMES.get(flag, f"--{flag}")


COMMAND = deploy
