"""``deploy``: requests, output and exit codes, with an API server."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import Client
from tests.cli.objects import workload_spec
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    healthy,
    image_missing,
    no_controllers,
    sent,
    set_status,
    stored,
    workloads,
    write_kubeconfig,
)

WEB = Ref(NAMESPACE, "web")
FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--min=2", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def manifest(path: Path, **spec: Any) -> str:
    document = {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": "web"},
        "spec": {**workload_spec("DFW"), **spec},
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a_first_deploy_creates_waits_and_reports_success(cli: CliRunner, world: World) -> None:
    assert cli.run(*FIRST, "--port=80", "--env=MODE=fast") == 0
    assert cli.out == "workload/web created\n"
    plan, _, progress = cli.err.partition("DFW: ")
    assert plan.startswith(
        "New workload web in project/default:\n"
        "  container app: web:1\n"
        "    ports: 80\n"
        "    env: MODE\n"
        "  placement default: at least 2 in each of DFW, ORD\n"
    )
    assert "DFW: Done, 2/2 ready, 2/2 up to date" in "DFW: " + progress
    assert re.search(r"web is ready: 4 instances in 2 cities \(\d+\.\d s\)\.\n", progress)
    assert stored(world)["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"] == [
        {
            "name": "app",
            "image": "web:1",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            "env": [{"name": "MODE", "value": "fast"}],
            "init": True,
        }
    ]


def test_a_repeated_deploy_writes_nothing(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    world.writes.clear()
    assert cli.run(*FIRST) == 0
    assert cli.out == "workload/web unchanged\n"
    assert cli.err.startswith("No changes to workload web in project/default.\n")
    assert world.writes == []


def test_an_update_patches_the_named_fields_with_the_version_it_read(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    version = stored(world)["metadata"]["resourceVersion"]
    world.writes.clear()
    assert cli.run("deploy", "web", "--min=3", "-y") == 0
    assert cli.out == "workload/web updated\n"
    assert "  placements[default].scaleSettings.minReplicas: 2 -> 3\n" in cli.err
    assert "Recreates" not in cli.err
    assert "Creates 2 instances" in cli.err
    (patch,) = world.writes
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert sent(patch)["metadata"] == {"resourceVersion": version}
    assert list(sent(patch)["spec"]) == ["placements"]


def test_automatic_rollback_is_a_field_of_the_workload(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    assert cli.run("deploy", "web", "--image=web:2", "--auto-rollback", "-y") == 0
    assert stored(world)["spec"]["rollout"]["onFailure"] == "Rollback"
    assert cli.run("deploy", "web", "--image=web:3", "-y") == 0
    assert stored(world)["spec"]["rollout"]["onFailure"] == "Rollback", "the flag was not given"
    assert cli.run("deploy", "web", "--no-auto-rollback", "-y") == 0
    assert stored(world)["spec"]["rollout"]["onFailure"] == "Stop"


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("Parallel", "one at a time in each of 2 cities"),
        ("CanaryCity", "one at a time in 2 cities, in one city before the others"),
    ],
)
def test_the_plan_names_the_order_of_cities(
    cli: CliRunner, tmp_path: Path, order: str, text: str
) -> None:
    cli.run(*FIRST)
    spec = workload_spec("DFW", "ORD", minimum=2)
    file = manifest(tmp_path / "web.yaml", **spec, rollout={"cityOrder": order})
    assert cli.run("deploy", "-f", file, "-y") == 0
    (container,) = spec["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["image"] = "web:2"
    file = manifest(tmp_path / "web.yaml", **spec, rollout={"cityOrder": order})
    assert cli.run("deploy", "-f", file, "-y") == 0
    assert text in cli.err


def test_a_new_image_reports_that_instances_are_replaced(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    assert (
        "  containers[app].image: web:1 -> web:2\n"
        "  Recreates 4 instances, one at a time in 2 cities, one city after the other: web-"
        in cli.err
    )
    assert stored(world)["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("scale", "interrupted"),
    [
        ({"maxSurge": 0}, True),
        ({}, False),
        ({"minReplicas": 2, "maxUnavailable": "100%"}, True),
        ({"minReplicas": 2}, False),
        ({"minReplicas": 2, "maxSurge": "50%"}, False),
    ],
)
def test_the_plan_states_the_time_without_service(
    cli: CliRunner, world: World, scale: dict[str, Any], interrupted: bool
) -> None:
    replicas = scale.get("minReplicas", 1)
    first = ("deploy", "web", "--image=web:1", "--city=DFW", f"--min={replicas}", "-y")
    assert cli.run(*first) == 0

    async def configure(client: Client) -> None:
        placements = to_json((await client.get(WORKLOAD, WEB)).spec)["placements"]
        placements[0]["scaleSettings"] |= scale
        await client.patch(WORKLOAD, WEB, {"spec": {"placements": placements}})

    world.do(configure)
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    count = "1 instance" if replicas == 1 else f"{replicas} instances"
    assert (f"  DFW: {count}, about 30 s without service\n" in cli.err) == interrupted


def test_the_plan_of_a_stopped_workload_states_no_interruption(
    cli: CliRunner, world: World
) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y") == 0

    async def stop(client: Client) -> None:
        placements = to_json((await client.get(WORKLOAD, WEB)).spec)["placements"]
        placements[0]["scaleSettings"]["maxSurge"] = 0
        await client.patch(WORKLOAD, WEB, {"spec": {"placements": placements, "stopped": True}})

    world.do(stop)
    assert cli.run("deploy", "web", "--image=web:2", "-y", "--no-wait") == 0
    assert "Recreates 1 instance" in cli.err
    assert "without service" not in cli.err


@pytest.mark.parametrize(
    ("limit", "pace"), [(1, "one at a time: web-"), ("100%", "up to 2 at a time: web-")]
)
def test_the_plan_shows_how_many_instances_are_replaced_together(
    cli: CliRunner, world: World, limit: int | str, pace: str
) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "--min=2", "-y") == 0

    async def allow(client: Client) -> None:
        placements = to_json((await client.get(WORKLOAD, WEB)).spec)["placements"]
        placements[0]["scaleSettings"]["maxUnavailable"] = limit
        await client.patch(WORKLOAD, WEB, {"spec": {"placements": placements}})

    world.do(allow)
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0
    assert f"  Recreates 2 instances, {pace}" in cli.err


def test_without_a_terminal_only_removals_require_yes(cli: CliRunner, world: World) -> None:
    assert cli.run(*FIRST[:-1]) == 0
    world.writes.clear()
    assert cli.run("deploy", "web", "--city=DFW") == 2
    assert "Pass -y or --confirm=web" in cli.err
    assert cli.run("deploy", "web", "--min=1") == 2
    assert cli.run("deploy", "web", "--min=1", "--confirm=wbe") == 2
    assert world.writes == []
    assert cli.run("deploy", "web", "--min=1", "--confirm=web") == 0
    assert cli.run("deploy", "web", "--city=DFW", "-y") == 0


@pytest.mark.parametrize(("answer", "code", "writes"), [("no\n", 9, 0), ("", 9, 0), ("y\n", 0, 1)])
def test_on_a_terminal_confirmation_is_required(
    cli: CliRunner, world: World, answer: str, code: int, writes: int
) -> None:
    cli.is_terminal, cli.typed = True, answer
    assert cli.run(*FIRST[:-1]) == code
    assert "Apply to web in project/default (DFW, ORD)? [y/N]" in cli.err
    assert len(world.writes) == writes


def test_a_change_of_other_fields_is_no_conflict(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    world.before = competing({"metadata": {"labels": {"theirs": "1"}}})
    assert cli.run("deploy", "web", "--min=3", "-y") == 0
    found = stored(world)
    assert found["metadata"]["labels"] == {"theirs": "1"}
    assert found["spec"]["placements"][0]["scaleSettings"]["minReplicas"] == 3


def test_a_change_that_alters_the_plan_is_a_conflict(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    placement = {**stored(world)["spec"]["placements"][0], "scaleSettings": {"minReplicas": 7}}
    world.before = competing({"spec": {"placements": [placement]}})
    assert cli.run("deploy", "web", "--min=3", "-y") == 4
    assert "changed by another client after the plan was shown" in cli.err
    assert stored(world)["spec"]["placements"][0]["scaleSettings"]["minReplicas"] == 7


def competing(patch: dict[str, Any]) -> Any:
    """Writes ``patch`` just before the first patch of the command arrives."""
    left = [patch]

    async def before(request: Request, client: Client) -> None:
        if request.method == "PATCH" and "dryRun" not in request.query and left:
            await client.patch(WORKLOAD, WEB, left.pop())

    return before


def test_an_unfinished_rollout_exits_21_with_the_cause(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    assert cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--timeout=1s") == 21
    assert "DFW: Updating, 0/1 ready, 1/1 up to date; ImageUnavailable: no such tag" in cli.err
    error, hint = cli.err.splitlines()[-2:]
    assert error == (
        "error: the rollout of 'web' is not done after 1s; "
        "DFW: ImageUnavailable: no such tag: web:9"
    )
    assert hint == "The rollout continues. Explain: datumctl compute explain web"


def test_an_unreachable_server_is_not_reported_as_a_slow_city(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    lost: list[Request] = []

    async def refuse(request: Request, _client: Client) -> None:
        if lost:
            raise Unreachable("cannot reach https://127.0.0.1:1: connection refused")
        if request.method == "POST" and "dryRun" not in request.query:
            lost.append(request)

    world.before = refuse
    assert cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--timeout=1s") == 1
    assert "The server does not respond, retrying: cannot reach https://127.0.0.1:1" in cli.err
    assert "error: the local platform at https://127.0.0.1:1 does not respond\n" in cli.err
    assert "Start it: datumctl compute local up" in cli.err


def test_a_line_is_printed_only_when_it_changes(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--timeout=1s")
    lines = cli.err.splitlines()
    assert len(lines) == len(set(lines))


def test_a_stale_status_is_not_used_as_the_result(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    world.player = no_controllers
    assert cli.run("deploy", "web", "--image=web:2", "-y", "--timeout=0s") == 21
    assert "Waiting for the platform to observe generation 2" in cli.err
    assert "Done" not in cli.err


def test_a_workload_deleted_during_the_wait_is_a_failure(cli: CliRunner, world: World) -> None:
    async def delete(client: Client) -> None:
        async for workload in workloads(client):
            await client.delete(WORKLOAD, Ref(NAMESPACE, workload.metadata.name))

    world.player = delete
    assert cli.run(*FIRST) == 20
    assert "was deleted during its rollout" in cli.err


def test_a_change_by_another_user_is_not_reported_as_ours(cli: CliRunner, world: World) -> None:
    async def supersede(client: Client) -> None:
        async for workload in workloads(client):
            ref = Ref(NAMESPACE, workload.metadata.name)
            placements = [
                {"name": "default", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 7}}
            ]
            await client.patch(WORKLOAD, ref, {"spec": {"placements": placements}})

    world.player = supersede
    assert cli.run(*FIRST) == 4
    assert "changed by another client" in cli.err


def test_ctrl_c_exits_130_and_prints_how_to_resume(cli: CliRunner, world: World) -> None:
    async def interrupt(request: Request, _client: Client) -> None:
        if "watch" in request.query:
            signal.raise_signal(signal.SIGINT)

    world.player, world.before = no_controllers, interrupt
    # A background job ignores SIGINT, and this test may run in one.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.run(*FIRST) == 130
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert cli.err.splitlines()[-2:] == [
        "error: stopped waiting; the rollout of 'web' continues",
        "Wait for it again: datumctl compute rollout status web",
    ]
    world.player, world.before = healthy, None
    assert cli.run("rollout", "status", "web") == 0


def test_no_wait_returns_immediately_and_prints_the_status_command(
    cli: CliRunner, world: World
) -> None:
    world.player = no_controllers
    assert cli.run(*FIRST, "--no-wait") == 0
    assert cli.err.endswith("Not waiting. See: datumctl compute rollout status web\n")


def parse_events(cli: CliRunner) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.out.splitlines()]


def test_json_output_contains_every_step_and_nothing_else(cli: CliRunner) -> None:
    assert cli.run(*FIRST, "-o", "json") == 0
    plan, applied, *between, done = parse_events(cli)
    assert (plan["event"], applied["event"], done["event"]) == ("plan", "applied", "done")
    assert {event["event"] for event in between} <= {"waiting", "row"}
    assert (plan["action"], plan["created"], plan["problems"]) == ("created", 4, [])
    assert (applied["workload"], applied["action"], applied["generation"]) == ("web", "created", 1)
    assert [(c["city"], c["ready"], c["desired"]) for c in done["cities"]] == [
        ("DFW", 2, 2),
        ("ORD", 2, 2),
    ]
    assert {event["schema"] for event in parse_events(cli)} == {
        "compute.datumapis.com/cli-event/v1"
    }
    assert cli.err == ""


def test_a_timeout_is_json_with_json_output(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    assert cli.run(*FIRST, "--timeout=0s", "-o", "json") == 21
    error = json.loads(cli.err)["error"]
    assert (error["code"], error["reason"]) == (21, "Timeout")


def test_a_file_creates_and_then_changes_nothing(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    file = manifest(tmp_path / "web.yaml")
    assert cli.run("deploy", "-f", file, "-y") == 0
    assert cli.out == "workload/web created\n"
    world.writes.clear()
    assert cli.run("deploy", "-f", file) == 0
    assert cli.out == "workload/web unchanged\n"
    assert world.writes == []


def test_a_file_can_come_from_stdin(cli: CliRunner, world: World, tmp_path: Path) -> None:
    cli.typed = Path(manifest(tmp_path / "web.yaml")).read_text()
    assert cli.run("deploy", "-f", "-") == 0
    assert stored(world)["metadata"]["name"] == "web"


def test_a_file_removes_fields_that_it_does_not_contain(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    cli.run(*FIRST, "--env=MODE=fast")
    assert cli.run("deploy", "-f", manifest(tmp_path / "web.yaml"), "-y") == 0
    assert "placements[default].cityCodes: DFW,ORD -> DFW" in cli.err
    assert "containers[app].env[MODE]: removed" in cli.err
    assert "ORD: Removing" in cli.err
    assert "Still being removed: ORD." in cli.err
    container = stored(world)["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    assert "env" not in container


def test_a_file_for_another_workload_or_namespace_is_refused(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    file = manifest(tmp_path / "web.yaml")
    assert cli.run("deploy", "api", "-f", file, "-y") == 2
    document = yaml.safe_load(Path(file).read_text())
    document["metadata"]["namespace"] = "elsewhere"
    Path(file).write_text(yaml.safe_dump(document))
    assert cli.run("deploy", "-f", file, "-y") == 2
    assert "'elsewhere'" in cli.err
    assert world.writes == []


def test_a_server_error_is_printed_unchanged(cli: CliRunner) -> None:
    assert cli.run("deploy", "web", f"--image={'x' * 1025}", "--city=DFW", "-y") == 2
    assert "image" in cli.err
    assert "1024" in cli.err


@pytest.mark.parametrize("token", ["unauthorized", "unknown"])
def test_missing_permission_exits_5(cli: CliRunner, tmp_path: Path, token: str) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", token)
    assert cli.run(*FIRST) == 5
    assert cli.err.startswith("error: ")
    assert "token" not in cli.err.replace("correct the token", "")


def test_a_new_workload_without_image_is_refused(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "web", "-y") == 2
    assert "needs --image and --city" in cli.err
    assert world.writes == []


def test_a_terminating_workload_is_not_changed(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    world.do(lambda client: client.patch(WORKLOAD, WEB, {"metadata": {"finalizers": ["a.b/c"]}}))
    world.do(lambda client: client.delete(WORKLOAD, WEB))
    assert cli.run("deploy", "web", "--min=9", "-y") == 4
    assert "is being deleted" in cli.err


def test_the_result_of_a_rollout_names_the_urls_of_published_ports(
    cli: CliRunner, world: World
) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y") == 0

    async def publish(client: Client) -> None:
        (found,) = (await client.list(DEPLOYMENT, NAMESPACE)).items
        url = "http://web.test:8080"
        endpoint = {"name": "http", "host": "web.test", "port": 8080, "url": url}
        await set_status(client, DEPLOYMENT, found.metadata.name, {"endpoints": [endpoint]})

    world.do(publish)
    assert cli.run("rollout", "status", "web") == 0
    assert cli.err.endswith(").\nURL: http://web.test:8080\n")
