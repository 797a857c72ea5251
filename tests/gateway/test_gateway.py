"""The gateway: who may ask, what comes back, and every way in which a command ends."""

from __future__ import annotations

import asyncio
import base64

import pytest

from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    Unreachable,
)
from datum_compute.api.gateway import (
    STATUS,
    STDIN,
    STDOUT,
    GatewayReason,
    decode_exec_result,
    drivers_path,
    images_path,
    instance_path,
    resize_message,
)
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import FAILED, MESSAGE_BYTES_MAX, POLICY, TOO_LARGE
from datum_compute.drivers.logs import LogPage, LogQuery
from datum_compute.gateway.cells import RemoteCell
from datum_compute.gateway.exec_session import AGAIN_S, SILENCE_S
from datum_compute.gateway.gateway import PLANE_LOG_READERS_MAX, SESSIONS_MAX
from testkit.api_server.running_server import PROJECT, TOKEN
from tests.gateway.made_up import DFW, EVE, Desk, MadeUpCell, Socketless, a_desk, at_a_desk

LOG = instance_path("default", "web", "log")
USAGE = instance_path("default", "web", "usage")
IN = bytes((STDIN,))


def reasons_of(error: ApiError) -> list[str]:
    return [cause.reason for cause in error.causes]


def test_a_command_hears_and_is_heard_and_its_exit_code_comes_last() -> None:
    async def scenario(desk: Desk) -> None:
        socket = await desk.exec(command='["cat", "-n"]', tty="true", container="app")
        await socket.send(IN + b"hello")
        assert await socket.receive() == bytes((STDOUT,)) + b"hello"
        await socket.send(IN + b"42")
        assert await socket.receive() == bytes((STDOUT,)) + b"42"
        ending = await socket.receive()
        assert ending is not None
        assert (ending[0], decode_exec_result(ending[1:]).exit_code) == (STATUS, 42)
        assert await socket.receive() is None
        (session,) = desk.cell.sessions
        assert session.wish.command == ["cat", "-n"]
        assert session.wish.tty
        await asyncio.sleep(1)
        assert [(e.user, e.code, e.reason) for e in desk.trail] == [
            ("root", 101, "Begun"),
            ("root", 101, "Ended"),
        ]

    at_a_desk(scenario)


def test_what_is_typed_does_not_wait_for_a_terminal_that_is_being_resized() -> None:
    async def scenario(desk: Desk) -> None:
        socket = await desk.exec(tty="true")
        (session,) = desk.cell.sessions
        session.never_resizes = True
        for columns in (80, 100):
            await socket.send(resize_message(columns, 24))
        await socket.send(IN + b"hello")
        assert await socket.receive() == bytes((STDOUT,)) + b"hello"
        await socket.close()

    at_a_desk(scenario)


def test_a_client_that_goes_ends_its_command() -> None:
    async def scenario(desk: Desk) -> None:
        socket = await desk.exec()
        await socket.close()
        await asyncio.sleep(1)
        assert desk.cell.sessions[0].is_closed
        assert desk.trail[-1].reason == "ClientGone"

    at_a_desk(scenario)


def test_one_that_never_answers_a_ping_is_gone() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.exec()
        await asyncio.sleep(SILENCE_S - 10)
        assert not desk.cell.sessions[0].is_closed
        await asyncio.sleep(20)
        assert desk.cell.sessions[0].is_closed

    at_a_desk(scenario)


def test_whoever_loses_the_right_is_out_at_once_and_told() -> None:
    async def scenario(desk: Desk) -> None:
        binding = await desk.let_in("exec", "create")
        socket = await desk.exec(EVE)
        await desk.server.json("DELETE", binding)
        async with asyncio.timeout(2 * AGAIN_S):
            assert await socket.receive() is None
        assert socket.closed is not None
        assert socket.closed.code == POLICY
        assert socket.closed.reason == "you may not be here any more: Forbidden"
        await asyncio.sleep(1)
        assert desk.cell.sessions[0].is_closed
        with pytest.raises(Forbidden):
            await desk.exec(EVE)
        assert [(e.user, e.code, e.reason, e.verb, e.subresource) for e in desk.trail] == [
            ("eve", 101, "Begun", "create", "exec"),
            ("eve", 101, "AccessTakenAway", "create", "exec"),
            ("eve", 403, "Forbidden", "create", "exec"),
        ]

    at_a_desk(scenario)


def test_the_right_to_read_is_no_right_to_run() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.let_in("log", "get")
        assert (await desk.client(EVE).ask(LOG))["cursor"] == {"one/app": {"second": 1, "lines": 0}}
        for refused in (desk.exec(EVE), desk.client(EVE).ask(USAGE)):
            with pytest.raises(Forbidden, match="forbidden: you cannot"):
                await refused
        with pytest.raises(Unauthorized):
            await desk.exec("nonsense")

    at_a_desk(scenario)


def test_the_trail_names_who_is_behind_a_borrowed_name() -> None:
    async def scenario(desk: Desk) -> None:
        headers = {"authorization": "Bearer token-of-root", "impersonate-user": "eve"}
        path = PROJECT + instance_path("default", "web", "exec")
        answer = await desk.gateway.dispatch(Request("GET", path, {}, headers))
        assert answer.status == 403
        assert (desk.trail[0].user, desk.trail[0].impersonated_user) == ("root", "eve")

    at_a_desk(scenario)


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ({"command": "ls"}, BadRequest, "command is a JSON list"),
        ({"command": "[]"}, BadRequest, "1 to 1000 words"),
        ({"command": '[""]'}, BadRequest, "1 to 1000 words"),
        ({"command": '["a\\u0000b"]'}, BadRequest, "zero byte"),
        ({"command": '{"a": 1}'}, BadRequest, "command is a JSON list"),
        ({"container": "nobody"}, NotFound, "it has no container nobody"),
        ({"container": "dead"}, Conflict, "does not run: it ended with code 1"),
        ({"name": "other"}, NotFound, 'instances.*"other" not found'),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(
    query: dict[str, str], error: type[ApiError], words: str
) -> None:
    async def scenario(desk: Desk) -> None:
        with pytest.raises(error, match=words):
            await desk.exec(**query)
        assert desk.cell.sessions == []

    at_a_desk(scenario)


def test_what_is_no_websocket_is_refused() -> None:
    async def scenario(desk: Desk) -> None:
        exec_path = instance_path("default", "web", "exec")
        with pytest.raises(BadRequest, match="over a websocket"):
            await desk.client().ask(exec_path, {"command": '["ls"]'})
        headers = {"authorization": "Bearer token-of-root"}
        answer = await desk.gateway.dispatch(Request("POST", PROJECT + exec_path, {}, headers))
        assert answer.status == MethodNotAllowed.code
        with pytest.raises(BadRequest, match="tail is 0 to"):
            await desk.client().ask(LOG, {"tail": "-1"})

    at_a_desk(scenario)


def test_a_message_that_is_too_large_ends_the_connection() -> None:
    async def scenario(desk: Desk) -> None:
        socket = await desk.exec()
        await socket.send(IN + b"x" * MESSAGE_BYTES_MAX)
        assert await socket.receive() is None
        assert socket.closed is not None
        assert socket.closed.code == TOO_LARGE

    at_a_desk(scenario)


def test_there_is_room_for_so_many_commands_and_no_more() -> None:
    async def scenario(desk: Desk) -> None:
        sockets = [await desk.exec() for _ in range(SESSIONS_MAX)]
        with pytest.raises(ApiError, match="commands run in instances already"):
            await desk.exec()
        await sockets[0].close()
        await asyncio.sleep(1)
        await desk.exec()

    at_a_desk(scenario)


def test_a_cell_that_only_pretends_says_so_and_one_that_is_away_too() -> None:
    async def scenario(desk: Desk) -> None:
        ways = desk.ways
        with pytest.raises(NotFound) as simulated:
            ways.to(cell_plane("pretended"))
        assert reasons_of(simulated.value) == [GatewayReason.INSTANCES_SIMULATED]
        with pytest.raises(ApiError, match="cannot be reached now"):
            ways.to(cell_plane("away"))
        ways.remove(DFW)
        with pytest.raises(NotFound) as simulated:
            await desk.client().ask(LOG)
        assert reasons_of(simulated.value) == [GatewayReason.INSTANCES_SIMULATED]

    at_a_desk(scenario)


def test_a_cell_of_another_process_is_asked_through_its_own_gateway() -> None:
    async def scenario(desk: Desk) -> None:
        cell = MadeUpCell(desk.cell.servers)
        other = a_desk(desk.server, {DFW: cell}, cell)
        client = other.client(prefix=path_prefix(DFW))
        desk.ways.add(DFW, RemoteCell("dfw", client))
        page = await desk.client().ask(LOG, {"tail": "3", "sinceSeconds": "60"})
        assert "tail=3" in page["lines"][0]["text"]
        assert f"since_s={desk.server.clock.now_s - 60}" in page["lines"][0]["text"]
        assert (await desk.client().ask(USAGE))["cpuMillicores"] == 7
        (card,) = (await desk.client().ask(instance_path("default", "web", "crashes")))["items"]
        assert (card["exitCode"], card["outOfMemory"]) == (9, False)
        with pytest.raises(NotFound) as missing:
            await desk.client().ask(instance_path("default", "other", "usage"))
        assert reasons_of(missing.value) == [GatewayReason.INSTANCE_NOT_RUNNING]
        with pytest.raises(Conflict, match="does not run"):
            await desk.exec(container="dead")
        socket = await desk.exec()
        await socket.send(IN + b"3")
        await socket.receive()
        ending = await socket.receive()
        assert ending is not None
        assert decode_exec_result(ending[1:]).exit_code == 3
        again = await desk.exec()
        await again.close()
        await asyncio.sleep(2)
        assert [session.is_closed for session in cell.sessions] == [True, True]
        assert desk.cell.sessions == []

    at_a_desk(scenario)


async def _gone(_request: Request) -> Response:
    raise Unreachable("no route")


def test_what_runs_instances_is_told_of_every_cell_also_of_one_that_is_away() -> None:
    async def scenario(desk: Desk) -> None:
        far = a_desk(desk.server, {DFW: desk.cell}, desk.cell).client(prefix=path_prefix(DFW))
        desk.ways.add(cell_plane("far"), RemoteCell("far", far))
        lost = Client(Socketless(_gone), prefix=path_prefix(DFW), token=TOKEN, agent="test")
        desk.ways.add(cell_plane("lost"), RemoteCell("lost", lost))
        told = (await desk.client().ask(drivers_path("default")))["items"]
        rows = [(row["cell"], row["driver"], row["answers"], row["why"]) for row in told]
        assert rows == [
            ("dfw", "containers", True, "it is told so"),
            ("far", "containers", True, "it is told so"),
            ("lost", "unknown", False, ""),
            ("pretended", "simulated", True, "it is told so"),
        ]
        assert told[0]["engine"] == "engine.sock"
        assert told[2]["words"] == "cell lost does not answer: no route"
        with pytest.raises(Forbidden):
            await desk.client(EVE).ask(drivers_path("default"))

    at_a_desk(scenario)


def test_a_cell_that_goes_away_in_the_middle_is_told() -> None:
    async def scenario(desk: Desk) -> None:
        cell = MadeUpCell(desk.cell.servers)
        transport = Socketless(a_desk(desk.server, {DFW: cell}, cell).gateway.dispatch)
        client = Client(transport, prefix=path_prefix(DFW), token=TOKEN, agent="test")
        desk.ways.add(DFW, RemoteCell("dfw", client))
        socket = await desk.exec()
        await transport.ends[0].aclose()
        assert await socket.receive() is None
        assert socket.closed == (FAILED, "the connection to its cell was lost")

    at_a_desk(scenario)


def test_an_image_is_asked_about_with_the_pull_secrets_of_the_project() -> None:
    async def scenario(desk: Desk) -> None:
        config = base64.b64encode(b'{"auths": {}}').decode()
        secret = {
            "metadata": {"name": "pull"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": config},
        }
        await desk.server.json("POST", f"{PROJECT}/api/v1/namespaces/default/secrets", secret)
        question = {"image": "x.example/web:1", "policy": "Always", "secrets": '["pull", "none"]'}
        found = await desk.client().ask(images_path("default"), question)
        assert (found["outcome"], found["words"]) == ("found", "x.example/web:1 Always")
        assert desk.cell.configs == (b'{"auths": {}}',)
        cell = MadeUpCell(())
        other = a_desk(desk.server, {DFW: cell}, cell)
        desk.ways.add(DFW, RemoteCell("dfw", other.client(prefix=path_prefix(DFW))))
        found = await desk.client().ask(images_path("default"), {**question, "city": "DFW"})
        assert found["outcome"] == "found"
        assert cell.configs == (b'{"auths": {}}',)
        with pytest.raises(Forbidden, match='cannot create resource "workloads"'):
            await desk.client(EVE).ask(images_path("default"), question)
        pretended = {**question, "city": "PRETENDED"}
        with pytest.raises(NotFound) as simulated:
            await desk.client().ask(images_path("default"), pretended)
        assert reasons_of(simulated.value) == [GatewayReason.INSTANCES_SIMULATED]

    at_a_desk(scenario)


@pytest.mark.parametrize(
    "query",
    [{}, {"image": ""}, {"image": "a", "secrets": "no"}, {"image": "a", "secrets": '["s"]' * 2}],
)
def test_a_question_about_an_image_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    async def scenario(desk: Desk) -> None:
        with pytest.raises(BadRequest):
            await desk.client().ask(images_path("default"), query)
        with pytest.raises(MethodNotAllowed):
            await desk.client().tell(images_path("default"), {"image": "a"})
        cell = desk.client(prefix=path_prefix(DFW))
        with pytest.raises(BadRequest):
            await cell.tell(images_path("default"), {"image": "a", "configs": ["%"] * 21})

    at_a_desk(scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("what", ["log", "usage", "crashes", "exec", "nonsense"])
def test_a_caller_without_credentials_learns_nothing(method: str, what: str) -> None:
    async def scenario(desk: Desk) -> None:
        paths = (instance_path("default", "web", what), instance_path("nowhere", "none", what))
        for path in (*paths, images_path("default"), drivers_path("default")):
            for plane in (PROJECT, path_prefix(DFW)):
                answer = await desk.gateway.dispatch(
                    Request(method, plane + path, {"tail": "x"}, {})
                )
                assert answer.status == Unauthorized.code

    at_a_desk(scenario)


def test_a_caller_without_the_right_does_not_learn_the_method() -> None:
    async def scenario(desk: Desk) -> None:
        headers = {"authorization": f"Bearer {EVE}"}
        answer = await desk.gateway.dispatch(Request("POST", PROJECT + LOG, {}, headers))
        assert answer.status == Forbidden.code

    at_a_desk(scenario)


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": '{"one/app": {"second": 999999999999999, "lines": 0}}'},
        {"cursor": '{"one/app": {"second": -1, "lines": 0}}'},
        {"cursor": '{"one/app": {"second": 1, "lines": -1}}'},
        {"since": "999999999999"},
        {"since": "nan"},
        {"sinceSeconds": "inf"},
    ],
)
def test_a_place_outside_of_time_is_refused(query: dict[str, str]) -> None:
    async def scenario(desk: Desk) -> None:
        with pytest.raises(BadRequest):
            await desk.client().ask(LOG, query)

    at_a_desk(scenario)


def test_only_so_many_logs_are_read_at_once() -> None:
    async def scenario(desk: Desk) -> None:
        reading, release = 0, asyncio.Event()
        read_page = desk.cell.log_page

        async def wait(server: str, wish: LogQuery) -> LogPage:
            nonlocal reading
            reading += 1
            await release.wait()
            return await read_page(server, wish)

        desk.cell.log_page = wait  # type: ignore[method-assign]
        headers = {"authorization": f"Bearer {TOKEN}"}
        asked = Request("GET", PROJECT + LOG, {}, headers)
        tasks = [asyncio.create_task(desk.gateway.dispatch(asked)) for _ in range(40)]
        await asyncio.sleep(1)
        assert reading == PLANE_LOG_READERS_MAX
        refused = [task.result() for task in tasks if task.done()]
        assert {answer.status for answer in refused} == {429}
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        release.set()
        statuses = [(await task).status for task in tasks]
        assert statuses.count(200) == PLANE_LOG_READERS_MAX
        assert (await desk.gateway.dispatch(asked)).status == 200

    at_a_desk(scenario)


@pytest.mark.parametrize("image", ["../containers", "a\0b", "a b", "/a", "a/../b", "web:1:2", ""])
def test_an_image_that_is_no_image_is_refused(image: str) -> None:
    async def scenario(desk: Desk) -> None:
        with pytest.raises(BadRequest, match="image must be the name of an image"):
            await desk.client().ask(images_path("default"), {"image": image})

    at_a_desk(scenario)
