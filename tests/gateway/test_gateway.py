"""Gateway: access, results, limits, and the ends of a command."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
)
from datum_compute.api.gateway import (
    STATUS,
    STDOUT,
    decode_exec_result,
    drivers_path,
    images_path,
    instance_path,
    logs_path,
    resize_message,
)
from datum_compute.api.http import Request
from datum_compute.api.planes import path_prefix
from datum_compute.client.transport.websocket import MESSAGE_BYTES_MAX, POLICY, TOO_LARGE
from datum_compute.drivers.logs import LogPage, LogQuery
from datum_compute.gateway.exec_session import ACCESS_CHECK_S, CLIENT_TIMEOUT_S
from datum_compute.gateway.gateway import PLANE_LOG_READERS_MAX, SESSIONS_MAX
from testkit.api_server.running_server import PROJECT, TOKEN
from tests.gateway.gateway_world import (
    DFW,
    EVE,
    IN,
    LOG,
    USAGE,
    GatewayWorld,
    run_in_world,
)


def test_a_command_gets_input_sends_output_and_its_exit_code_last() -> None:
    async def scenario(world: GatewayWorld) -> None:
        socket = await world.exec(command='["cat", "-n"]', tty="true", container="app")
        await socket.send(IN + b"hello")
        assert await socket.receive() == bytes((STDOUT,)) + b"hello"
        await socket.send(IN + b"42")
        assert await socket.receive() == bytes((STDOUT,)) + b"42"
        ending = await socket.receive()
        assert ending is not None
        assert (ending[0], decode_exec_result(ending[1:]).exit_code) == (STATUS, 42)
        assert await socket.receive() is None
        (session,) = world.cell.sessions
        assert session.request.command == ["cat", "-n"]
        assert session.request.tty
        await asyncio.sleep(1)
        assert [(e.user, e.code, e.reason) for e in world.audit_log] == [
            ("root", 101, "Begun"),
            ("root", 101, "Ended"),
        ]

    run_in_world(scenario)


def test_input_does_not_wait_for_a_resize_of_the_terminal() -> None:
    async def scenario(world: GatewayWorld) -> None:
        socket = await world.exec(tty="true")
        (session,) = world.cell.sessions
        session.never_resizes = True
        for columns in (80, 100):
            await socket.send(resize_message(columns, 24))
        await socket.send(IN + b"hello")
        assert await socket.receive() == bytes((STDOUT,)) + b"hello"
        await socket.close()

    run_in_world(scenario)


def test_a_command_ends_when_its_client_disconnects() -> None:
    async def scenario(world: GatewayWorld) -> None:
        socket = await world.exec()
        await socket.close()
        await asyncio.sleep(1)
        assert world.cell.sessions[0].is_closed
        assert world.audit_log[-1].reason == "ClientGone"

    run_in_world(scenario)


def test_a_command_ends_when_its_client_answers_no_ping() -> None:
    async def scenario(world: GatewayWorld) -> None:
        await world.exec()
        await asyncio.sleep(CLIENT_TIMEOUT_S - 10)
        assert not world.cell.sessions[0].is_closed
        await asyncio.sleep(20)
        assert world.cell.sessions[0].is_closed

    run_in_world(scenario)


def test_a_command_ends_when_its_user_loses_access() -> None:
    async def scenario(world: GatewayWorld) -> None:
        binding = await world.grant_eve("exec", "create")
        socket = await world.exec(EVE)
        await world.server.json("DELETE", binding)
        async with asyncio.timeout(2 * ACCESS_CHECK_S):
            assert await socket.receive() is None
        assert socket.closed is not None
        assert socket.closed.code == POLICY
        assert socket.closed.reason == "you have no access to this instance any more: Forbidden"
        await asyncio.sleep(1)
        assert world.cell.sessions[0].is_closed
        with pytest.raises(Forbidden):
            await world.exec(EVE)
        assert [(e.user, e.code, e.reason, e.verb, e.subresource) for e in world.audit_log] == [
            ("eve", 101, "Begun", "create", "exec"),
            ("eve", 101, "AccessTakenAway", "create", "exec"),
            ("eve", 403, "Forbidden", "create", "exec"),
        ]

    run_in_world(scenario)


def test_the_instances_of_a_workload_with_a_log_are_listed() -> None:
    async def scenario(world: GatewayWorld) -> None:
        path, query = logs_path("default"), {"workload": "web"}
        with pytest.raises(Forbidden):
            await world.client(EVE).get_raw(path, query)
        await world.grant_eve("log", "get")
        found = await world.client(EVE).get_raw(path, query)
        assert found["problems"] == []
        (item,) = found["items"]
        assert (item["instance"], item["workloadUid"], item["city"]) == ("web", "uid-of-web", "DFW")
        world.cell.is_unreachable = True
        found = await world.client(EVE).get_raw(path, query)
        assert found == {"items": [], "problems": ["cannot reach cell iad"]}

    run_in_world(scenario)


def test_logs_can_be_limited_to_one_workload() -> None:
    async def scenario(world: GatewayWorld) -> None:
        found = await world.client().get_raw(LOG, {"workloadUID": "uid-1"})
        assert "workload_uid='uid-1'" in found["lines"][0]["text"]

    run_in_world(scenario)


def test_access_to_logs_does_not_include_commands_or_usage() -> None:
    async def scenario(world: GatewayWorld) -> None:
        await world.grant_eve("log", "get")
        assert (await world.client(EVE).get_raw(LOG))["cursor"] == {
            "one/app": {"second": 1, "lines": 0}
        }
        for refused in (world.exec(EVE), world.client(EVE).get_raw(USAGE)):
            with pytest.raises(Forbidden, match="forbidden: you cannot"):
                await refused
        with pytest.raises(Unauthorized):
            await world.exec("nonsense")

    run_in_world(scenario)


def test_the_audit_log_contains_the_authenticated_and_the_impersonated_user() -> None:
    async def scenario(world: GatewayWorld) -> None:
        headers = {"authorization": "Bearer token-of-root", "impersonate-user": "eve"}
        path = PROJECT + instance_path("default", "web", "exec")
        answer = await world.gateway.dispatch(Request("GET", path, {}, headers))
        assert answer.status == 403
        assert (world.audit_log[0].user, world.audit_log[0].impersonated_user) == ("root", "eve")

    run_in_world(scenario)


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ({"command": "ls"}, BadRequest, "command is a JSON list"),
        ({"command": "[]"}, BadRequest, "1 to 1000 words"),
        ({"command": '[""]'}, BadRequest, "1 to 1000 words"),
        ({"command": '["a\\u0000b"]'}, BadRequest, "zero byte"),
        ({"command": '{"a": 1}'}, BadRequest, "command is a JSON list"),
        ({"container": "other"}, NotFound, "it has no container other"),
        ({"container": "dead"}, Conflict, "does not run: it ended with code 1"),
        ({"name": "other"}, NotFound, 'instances.*"other" not found'),
    ],
)
def test_an_invalid_command_is_refused_with_a_message(
    query: dict[str, str], error: type[ApiError], words: str
) -> None:
    async def scenario(world: GatewayWorld) -> None:
        with pytest.raises(error, match=words):
            await world.exec(**query)
        assert world.cell.sessions == []

    run_in_world(scenario)


def test_a_command_without_a_websocket_is_refused() -> None:
    async def scenario(world: GatewayWorld) -> None:
        exec_path = instance_path("default", "web", "exec")
        with pytest.raises(BadRequest, match="requires a websocket"):
            await world.client().get_raw(exec_path, {"command": '["ls"]'})
        headers = {"authorization": "Bearer token-of-root"}
        answer = await world.gateway.dispatch(Request("POST", PROJECT + exec_path, {}, headers))
        assert answer.status == MethodNotAllowed.code
        with pytest.raises(BadRequest, match="tail is 0 to"):
            await world.client().get_raw(LOG, {"tail": "-1"})

    run_in_world(scenario)


def test_a_message_that_is_too_large_ends_the_connection() -> None:
    async def scenario(world: GatewayWorld) -> None:
        socket = await world.exec()
        await socket.send(IN + b"x" * MESSAGE_BYTES_MAX)
        assert await socket.receive() is None
        assert socket.closed is not None
        assert socket.closed.code == TOO_LARGE

    run_in_world(scenario)


def test_the_number_of_commands_is_limited() -> None:
    async def scenario(world: GatewayWorld) -> None:
        sockets = [await world.exec() for _ in range(SESSIONS_MAX)]
        with pytest.raises(ApiError, match="commands run in instances already"):
            await world.exec()
        await sockets[0].close()
        await asyncio.sleep(1)
        await world.exec()

    run_in_world(scenario)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("what", ["log", "usage", "crashes", "exec", "nonsense"])
def test_a_caller_without_credentials_learns_nothing(method: str, what: str) -> None:
    async def scenario(world: GatewayWorld) -> None:
        paths = (instance_path("default", "web", what), instance_path("missing", "none", what))
        for path in (*paths, images_path("default"), drivers_path("default")):
            for plane in (PROJECT, path_prefix(DFW)):
                answer = await world.gateway.dispatch(
                    Request(method, plane + path, {"tail": "x"}, {})
                )
                assert answer.status == Unauthorized.code

    run_in_world(scenario)


def test_a_caller_without_access_gets_forbidden_for_a_wrong_method() -> None:
    async def scenario(world: GatewayWorld) -> None:
        headers = {"authorization": f"Bearer {EVE}"}
        answer = await world.gateway.dispatch(Request("POST", PROJECT + LOG, {}, headers))
        assert answer.status == Forbidden.code

    run_in_world(scenario)


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
def test_an_invalid_position_in_a_log_is_refused(query: dict[str, str]) -> None:
    async def scenario(world: GatewayWorld) -> None:
        with pytest.raises(BadRequest):
            await world.client().get_raw(LOG, query)

    run_in_world(scenario)


def test_the_number_of_concurrent_log_readers_is_limited() -> None:
    async def scenario(world: GatewayWorld) -> None:
        reading, release = 0, asyncio.Event()
        read_page = world.cell.log_page

        async def wait(server: str, query: LogQuery) -> LogPage:
            nonlocal reading
            reading += 1
            await release.wait()
            return await read_page(server, query)

        world.cell.log_page = wait  # type: ignore[method-assign]
        headers = {"authorization": f"Bearer {TOKEN}"}
        asked = Request("GET", PROJECT + LOG, {}, headers)
        tasks = [asyncio.create_task(world.gateway.dispatch(asked)) for _ in range(40)]
        await asyncio.sleep(1)
        assert reading == PLANE_LOG_READERS_MAX
        refused = [task.result() for task in tasks if task.done()]
        assert {answer.status for answer in refused} == {429}
        assert {answer.headers["retry-after"] for answer in refused} == {"1"}
        release.set()
        statuses = [(await task).status for task in tasks]
        assert statuses.count(200) == PLANE_LOG_READERS_MAX
        assert (await world.gateway.dispatch(asked)).status == 200

    run_in_world(scenario)
