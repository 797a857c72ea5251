"""``destroy``: confirmation, the delete request, and the wait for remaining objects."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.events import Event
from datum_compute.api.http import Request
from datum_compute.api.kinds import DEPLOYMENT, EVENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.fields import ObjectReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.cli.environment import CliTimeouts
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    no_controllers,
    remove_parts,
    sent,
    set_status,
    write_kubeconfig,
)

WEB = Ref(NAMESPACE, "web")


async def cleaner(client: Client) -> None:
    """Removes the parts of every workload that is deleted."""
    async for event in client.watch(WORKLOAD, "", namespace=NAMESPACE, timeout_s=600):
        if event.type == "DELETED" and event.object is not None:
            await remove_parts(client, event.object.metadata.uid)


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW,ORD", "-y") == 0
    world.player = cleaner
    world.writes.clear()
    return cli


def left(world: World) -> list[int]:
    async def count(client: Client) -> list[int]:
        return [
            len((await client.list(WORKLOAD, NAMESPACE)).items),
            len((await client.list(DEPLOYMENT, NAMESPACE)).items),
            len((await client.list(INSTANCE, NAMESPACE)).items),
        ]

    counted: list[int] = world.do(count)
    return counted


def test_destroy_returns_when_all_objects_are_deleted(cli: CliRunner, world: World) -> None:
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.out == "workload/web deleted\n"
    assert cli.err.startswith("Workload web in project/default: 2 instances in DFW, ORD.\n")
    assert left(world) == [0, 0, 0]


def test_the_delete_request_contains_the_uid_that_was_shown(cli: CliRunner, world: World) -> None:
    uid = world.do(lambda client: client.get(WORKLOAD, WEB)).metadata.uid
    cli.run("destroy", "web", "-y")
    (request,) = world.writes
    assert sent(request)["preconditions"] == {"uid": uid}


def test_remaining_objects_delay_destroy_and_are_named(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    assert cli.run("destroy", "web", "-y", "--timeout=0s") == 21
    error, hint = cli.err.splitlines()[-2:]
    assert error == (
        "error: workload 'web' is not deleted after 0s; remaining: 2 deployments, 2 instances"
    )
    assert hint.endswith("Wait for it again: datumctl compute destroy web -y")


def test_a_second_destroy_waits_for_a_finalizer(cli: CliRunner, world: World) -> None:
    world.do(lambda client: client.patch(WORKLOAD, WEB, {"metadata": {"finalizers": ["a.b/c"]}}))
    assert cli.run("destroy", "web", "-y", "--timeout=0s") == 21
    assert "remaining: 1 workload, 2 deployments, 2 instances" in cli.err
    world.writes.clear()
    assert cli.run("destroy", "web", "-y", "--timeout=0s") == 21
    assert "It is already being deleted." in cli.err
    assert world.writes == []


def test_destroy_ignores_a_new_workload_of_the_same_name(cli: CliRunner, world: World) -> None:
    old = world.do(lambda client: client.get_plain(WORKLOAD, WEB))

    async def replace(client: Client) -> None:
        async for event in client.watch(WORKLOAD, "", namespace=NAMESPACE, timeout_s=600):
            if event.type == "DELETED" and event.object is not None:
                metadata = {"name": "web", "namespace": NAMESPACE}
                await client.create_plain(WORKLOAD, {**old, "metadata": metadata, "status": {}})
                await remove_parts(client, event.object.metadata.uid)

    world.player = replace
    assert cli.run("destroy", "web", "-y") == 0
    assert left(world) == [1, 0, 0]


def test_no_wait_returns_immediately(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    assert cli.run("destroy", "web", "-y", "--no-wait") == 0
    assert cli.out == "workload/web is being deleted\n"
    assert left(world) == [0, 2, 2]


def test_without_a_terminal_destroy_requires_yes(cli: CliRunner, world: World) -> None:
    assert cli.run("destroy", "web") == 2
    assert left(world) == [1, 2, 2]


@pytest.mark.parametrize(
    ("answer", "code", "workloads"), [("n\n", 9, 1), ("yes\n", 9, 1), ("", 9, 1), ("web\n", 0, 0)]
)
def test_destroying_a_serving_workload_requires_its_name(
    cli: CliRunner, world: World, answer: str, code: int, workloads: int
) -> None:
    cli.is_terminal, cli.typed, cli.environ = True, answer, {"NO_COLOR": "1"}
    assert cli.run("destroy", "web") == code
    asked = "Delete workload web from project/default (DFW, ORD)? It has ready instances. Type"
    assert asked in cli.err
    assert left(world)[0] == workloads


@pytest.mark.parametrize(("confirmed", "code"), [("web", 0), ("wbe", 2), ("", 2)])
def test_without_a_terminal_confirm_with_the_name_is_accepted(
    cli: CliRunner, confirmed: str, code: int
) -> None:
    assert cli.run("destroy", "web", f"--confirm={confirmed}") == code


def test_destroying_a_workload_that_does_not_serve_requires_yes(
    cli: CliRunner, world: World
) -> None:
    async def fail(client: Client) -> None:
        await set_status(client, WORKLOAD, "web", {"readyReplicas": 0})

    world.do(fail)
    cli.is_terminal, cli.typed, cli.environ = True, "y\n", {"NO_COLOR": "1"}
    assert cli.run("destroy", "web") == 0
    assert "(DFW, ORD)? [y/N]" in cli.err


def test_the_steps_are_json_events(cli: CliRunner) -> None:
    assert cli.run("destroy", "web", "-y", "-o", "json") == 0
    events = [json.loads(line) for line in cli.out.splitlines()]
    names = [event["event"] for event in events]
    assert (names[:2], names[-1]) == (["plan", "applied"], "done")
    assert set(names[2:-1]) <= {"removing"}
    assert cli.err == ""


def test_an_unknown_name_exits_3_with_a_suggestion(cli: CliRunner) -> None:
    assert cli.run("destroy", "webb", "-y") == 3
    assert "Did you mean 'web'?" in cli.err


def test_ctrl_c_exits_130_and_prints_how_to_wait_again(cli: CliRunner, world: World) -> None:
    async def interrupt(request: Request, _client: Client) -> None:
        if "watch" in request.query:
            signal.raise_signal(signal.SIGINT)

    world.player, world.before = no_controllers, interrupt
    assert cli.run("destroy", "web", "-y") == 130
    assert cli.err.endswith("Wait for it again: datumctl compute destroy web -y\n")


def test_a_short_outage_of_the_server_is_retried(cli: CliRunner, world: World) -> None:
    silences = [True]

    async def silent_once(request: Request, _client: Client) -> None:
        if "watch" in request.query and silences:
            silences.pop()
            raise Unreachable("the test is silent")

    world.before = silent_once
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.err.count("The server does not respond, retrying: the test is silent") == 1


def test_an_unreachable_local_platform_is_reported_with_the_next_command(
    cli: CliRunner, world: World
) -> None:
    async def silent(_request: Request, _client: Client) -> None:
        raise Unreachable("connection refused")

    world.before = silent
    assert cli.run("destroy", "web", "-y") == 1
    assert cli.err.splitlines() == [
        "error: the local platform at https://127.0.0.1:1 does not respond",
        "Start it: datumctl compute local up",
    ]
    cli.environ = {"KUBECONFIG": str(write_kubeconfig(cli.home / "other"))}
    assert cli.run("destroy", "web", "-y") == 1
    assert cli.err.startswith("error: connection refused\n")


def test_instances_on_an_unreachable_cell_are_reported_as_still_running(
    cli: CliRunner, world: World
) -> None:
    blocked = {"reason": "CellUnreachable", "replicas": 1, "message": "Cell dfw is away"}
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"blocked": [blocked]}))
    cli.timeouts = CliTimeouts(final_status_s=0)
    assert cli.run("destroy", "web", "-y") == 0
    assert "Cell dfw is away: its instances stop when the cell is reachable again." in cli.err


def test_unconfirmed_deletions_of_an_unreachable_cell_are_named(
    cli: CliRunner, world: World
) -> None:
    """Regression: destroy printed "deleted", but the container of a dead cell kept running."""
    uid, *_ = deployment_uids(world)
    world.do(lambda client: record_unconfirmed(client, uid))
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.err.splitlines()[-1] == f"Not confirmed: {UNCONFIRMED}."
    assert "ord" not in cli.err.splitlines()[-1]


def test_destroy_waits_for_the_report_of_an_unreachable_cell(cli: CliRunner, world: World) -> None:
    """Seen: the event came after the deployment was gone, and destroy had looked before."""
    blocked = {"reason": "CellUnreachable", "replicas": 1, "message": "Cell dfw is away"}
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"blocked": [blocked]}))
    uids = deployment_uids(world)

    async def late(request: Request, client: Client) -> None:
        if request.path.endswith("/events") and "watch" in request.query and uids:
            await record_unconfirmed(client, uids.pop(0))

    world.before = late
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.err.splitlines()[-1] == f"Not confirmed: {UNCONFIRMED}."


UNCONFIRMED = "cell dfw is unreachable; instances there are stopped when it reconnects"


def deployment_uids(world: World) -> list[str]:
    uids: list[str] = []

    async def look(client: Client) -> None:
        uids.extend(d.metadata.uid for d in (await client.list(DEPLOYMENT, NAMESPACE)).items)

    world.do(look)
    return uids


async def record_unconfirmed(client: Client, uid: str) -> None:
    """Events of other deployments are ignored."""
    for name, about, message in (
        ("e0", "another", "ord is another matter"),
        ("e1", uid, UNCONFIRMED),
    ):
        reported = Event(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE),
            involved_object=ObjectReference(
                kind="WorkloadDeployment", namespace=NAMESPACE, uid=about
            ),
            reason="DeletionUnconfirmed",
            message=message,
        )
        await client.create(EVENT, reported)


def test_the_prompt_counts_instances_missing_from_the_status(cli: CliRunner, world: World) -> None:
    cli.run("deploy", "fresh", "--image=web:1", "--city=DFW,ORD", "--min=2", "-y", "--no-wait")
    cli.run("destroy", "fresh", "-y", "--no-wait")
    assert "Workload fresh in project/default: 4 instances in DFW, ORD." in cli.err
