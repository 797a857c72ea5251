"""destroy: asks, deletes that very workload, and waits until nothing of it is left."""

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
    nobody,
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


def test_it_returns_when_everything_is_gone(cli: CliRunner, world: World) -> None:
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.out == "workload/web deleted\n"
    assert cli.err.startswith("Workload web in project/default: 2 instances in DFW, ORD.\n")
    assert left(world) == [0, 0, 0]


def test_the_delete_is_about_the_very_object_that_was_shown(cli: CliRunner, world: World) -> None:
    uid = world.do(lambda client: client.get(WORKLOAD, WEB)).metadata.uid
    cli.run("destroy", "web", "-y")
    (request,) = world.writes
    assert sent(request)["preconditions"] == {"uid": uid}


def test_what_is_left_holds_it_up_and_is_named(cli: CliRunner, world: World) -> None:
    world.player = nobody
    assert cli.run("destroy", "web", "-y", "--timeout=0s") == 21
    error, hint = cli.err.splitlines()[-2:]
    assert error == (
        "error: workload 'web' is not deleted after 0s; remaining: 2 deployments, 2 instances"
    )
    assert hint.endswith("Wait for it again: datumctl compute destroy web -y")


def test_a_workload_with_a_finalizer_is_waited_for_also_the_second_time(
    cli: CliRunner, world: World
) -> None:
    world.do(lambda client: client.patch(WORKLOAD, WEB, {"metadata": {"finalizers": ["a.b/c"]}}))
    assert cli.run("destroy", "web", "-y", "--timeout=0s") == 21
    assert "remaining: 1 workload, 2 deployments, 2 instances" in cli.err
    world.writes.clear()
    assert cli.run("destroy", "web", "-y", "--timeout=0s") == 21
    assert "It is already being deleted." in cli.err
    assert world.writes == []


def test_a_new_workload_of_the_same_name_is_none_of_its_business(
    cli: CliRunner, world: World
) -> None:
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


def test_no_wait_returns_at_once(cli: CliRunner, world: World) -> None:
    world.player = nobody
    assert cli.run("destroy", "web", "-y", "--no-wait") == 0
    assert cli.out == "workload/web is being deleted\n"
    assert left(world) == [0, 2, 2]


def test_without_a_terminal_and_without_yes_nothing_is_deleted(
    cli: CliRunner, world: World
) -> None:
    assert cli.run("destroy", "web") == 2
    assert left(world) == [1, 2, 2]


@pytest.mark.parametrize(
    ("answer", "code", "workloads"), [("n\n", 9, 1), ("yes\n", 9, 1), ("", 9, 1), ("web\n", 0, 0)]
)
def test_one_that_serves_is_only_deleted_once_its_name_is_typed(
    cli: CliRunner, world: World, answer: str, code: int, workloads: int
) -> None:
    cli.is_terminal, cli.typed, cli.environ = True, answer, {"NO_COLOR": "1"}
    assert cli.run("destroy", "web") == code
    asked = "Delete workload web from project/default (DFW, ORD)? It has ready instances. Type"
    assert asked in cli.err
    assert left(world)[0] == workloads


@pytest.mark.parametrize(("confirmed", "code"), [("web", 0), ("wbe", 2), ("", 2)])
def test_without_a_terminal_its_name_is_as_good_as_a_yes(
    cli: CliRunner, confirmed: str, code: int
) -> None:
    assert cli.run("destroy", "web", f"--confirm={confirmed}") == code


def test_one_that_does_not_serve_is_deleted_on_a_yes(cli: CliRunner, world: World) -> None:
    async def fail(client: Client) -> None:
        await set_status(client, WORKLOAD, "web", {"readyReplicas": 0})

    world.do(fail)
    cli.is_terminal, cli.typed, cli.environ = True, "y\n", {"NO_COLOR": "1"}
    assert cli.run("destroy", "web") == 0
    assert "(DFW, ORD)? [y/N]" in cli.err


def test_the_steps_are_events_for_machines(cli: CliRunner) -> None:
    assert cli.run("destroy", "web", "-y", "-o", "json") == 0
    told = [json.loads(line) for line in cli.out.splitlines()]
    names = [event["event"] for event in told]
    assert (names[:2], names[-1]) == (["plan", "applied"], "done")
    assert set(names[2:-1]) <= {"removing"}
    assert cli.err == ""


def test_an_unknown_name_ends_in_3_with_a_guess(cli: CliRunner) -> None:
    assert cli.run("destroy", "webb", "-y") == 3
    assert "Did you mean 'web'?" in cli.err


def test_ctrl_c_ends_in_130_and_says_how_to_wait_again(cli: CliRunner, world: World) -> None:
    async def interrupt(request: Request, _client: Client) -> None:
        if "watch" in request.query:
            signal.raise_signal(signal.SIGINT)

    world.player, world.before = nobody, interrupt
    assert cli.run("destroy", "web", "-y") == 130
    assert cli.err.endswith("Wait for it again: datumctl compute destroy web -y\n")


def test_a_short_silence_of_the_server_is_survived(cli: CliRunner, world: World) -> None:
    silences = [True]

    async def silent_once(request: Request, _client: Client) -> None:
        if "watch" in request.query and silences:
            silences.pop()
            raise Unreachable("the test is silent")

    world.before = silent_once
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.err.count("The server does not respond, retrying: the test is silent") == 1


def test_a_local_platform_that_does_not_answer_names_the_next_command(
    cli: CliRunner, world: World
) -> None:
    async def silent(_request: Request, _client: Client) -> None:
        raise Unreachable("nobody there")

    world.before = silent
    assert cli.run("destroy", "web", "-y") == 1
    assert cli.err.splitlines() == [
        "error: the local platform at https://127.0.0.1:1 does not respond",
        "Start it: datumctl compute local up",
    ]
    cli.environ = {"KUBECONFIG": str(write_kubeconfig(cli.home / "other"))}
    assert cli.run("destroy", "web", "-y") == 1
    assert cli.err.startswith("error: nobody there\n")


def test_what_runs_on_a_cell_that_is_away_is_said_to_outlive_the_workload(
    cli: CliRunner, world: World
) -> None:
    blocked = {"reason": "CellUnreachable", "replicas": 1, "message": "Cell dfw is away"}
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"blocked": [blocked]}))
    cli.timeouts = CliTimeouts(final_status_s=0)
    assert cli.run("destroy", "web", "-y") == 0
    assert "Cell dfw is away: its instances stop when the cell is reachable again." in cli.err


def test_what_a_silent_cell_has_not_confirmed_is_named_beside_the_deletion(
    cli: CliRunner, world: World
) -> None:
    """Seen: destroy said "deleted", and the container of a dead cell stayed."""
    uid, *_ = deployment_uids(world)
    world.do(lambda client: tell_unconfirmed(client, uid))
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.err.splitlines()[-1] == f"Not confirmed: {UNCONFIRMED}."
    assert "ord" not in cli.err.splitlines()[-1]


def test_what_is_told_of_a_silent_cell_a_moment_later_is_waited_for(
    cli: CliRunner, world: World
) -> None:
    """Seen: the event came after the deployment was gone, and destroy had looked before."""
    blocked = {"reason": "CellUnreachable", "replicas": 1, "message": "Cell dfw is away"}
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"blocked": [blocked]}))
    uids = deployment_uids(world)

    async def late(request: Request, client: Client) -> None:
        if request.path.endswith("/events") and "watch" in request.query and uids:
            await tell_unconfirmed(client, uids.pop(0))

    world.before = late
    assert cli.run("destroy", "web", "-y") == 0
    assert cli.err.splitlines()[-1] == f"Not confirmed: {UNCONFIRMED}."


UNCONFIRMED = "dfw does not answer: what runs there is stopped when it is back"


def deployment_uids(world: World) -> list[str]:
    uids: list[str] = []

    async def look(client: Client) -> None:
        uids.extend(d.metadata.uid for d in (await client.list(DEPLOYMENT, NAMESPACE)).items)

    world.do(look)
    return uids


async def tell_unconfirmed(client: Client, uid: str) -> None:
    """Those of other deployments are nobody's business here."""
    for name, about, message in (
        ("e0", "another", "ord is another matter"),
        ("e1", uid, UNCONFIRMED),
    ):
        told = Event(
            metadata=ObjectMeta(name=name, namespace=NAMESPACE),
            involved_object=ObjectReference(
                kind="WorkloadDeployment", namespace=NAMESPACE, uid=about
            ),
            reason="DeletionUnconfirmed",
            message=message,
        )
        await client.create(EVENT, told)


def test_what_the_status_does_not_count_yet_is_counted_in_the_question(
    cli: CliRunner, world: World
) -> None:
    cli.run("deploy", "fresh", "--image=web:1", "--city=DFW,ORD", "--min=2", "-y", "--no-wait")
    cli.run("destroy", "fresh", "-y", "--no-wait")
    assert "Workload fresh in project/default: 4 instances in DFW, ORD." in cli.err
