"""Logs of several instances; some or all cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from datum_compute.api.errors import ApiError, ServiceUnavailable, to_status
from datum_compute.api.gateway import GatewayReason, gateway_not_found
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.cli.render.documents import LogEntry
from tests.cli.runner import CliRunner
from tests.cli.world import World

pytestmark = pytest.mark.usefixtures("local_platform")

ONE_CITY = ("deploy", "web", "--image=web:1", "--city=DFW", "-y")
DEPLOY = ("deploy", "web", "--image=web:1", "--city=DFW", "--city=IAD", "-y")
PAGE = encode({"cursor": {}, "lines": [{"time": "2027-01-15T08:00:00Z", "text": "hello"}]})
LINE = {"container": "web", "stream": "out"}
TWO_LINES = encode(
    {
        "cursor": {},
        "lines": [
            {"time": "2027-01-15T08:00:00.5Z", "text": "first", **LINE},
            {"time": "2027-01-15T08:00:01.5Z", "text": "second", **LINE},
        ],
    }
)


def refused(error: ApiError) -> Response:
    return Response(error.code, encode(to_status(error)))


def gateway(answer: Callable[[str], Response]) -> Callable[[Request], Response | None]:
    def asked(request: Request) -> Response | None:
        return answer(request.path.split("/")[-2]) if request.path.endswith("/log") else None

    return asked


def test_logs_fail_if_no_instance_can_be_read(cli: CliRunner, world: World) -> None:
    assert cli.run(*DEPLOY) == 0
    world.gateway = gateway(lambda name: refused(ServiceUnavailable(f"{name} is out of reach")))
    assert cli.run("logs", "web") == 1
    assert cli.out == ""
    assert cli.err.count("is out of reach") == 2, "each is named"
    assert "cannot read the log of any of the 2 instances of 'web'" in cli.err


def test_logs_of_readable_instances_are_shown_with_a_warning(cli: CliRunner, world: World) -> None:
    assert cli.run(*DEPLOY) == 0
    seen: list[str] = []

    def first_only(name: str) -> Response:
        seen.append(name)
        away = name != seen[0]
        return refused(ServiceUnavailable(f"{name} is away")) if away else Response(200, PAGE)

    world.gateway = gateway(first_only)
    assert cli.run("logs", "web") == 0
    assert cli.out.endswith("| hello\n")
    assert f"Warning: {seen[1]} is away" in cli.err


def test_logs_of_an_unknown_instance_are_an_error(cli: CliRunner, world: World) -> None:
    assert cli.run(*DEPLOY) == 0
    world.gateway = gateway(
        lambda _: refused(gateway_not_found(GatewayReason.INSTANCE_NOT_RUNNING))
    )
    assert cli.run("logs", "web", "--instance=web-missing-0") == 3
    assert "there is no log of instance 'web-missing-0'" in cli.err
    assert cli.run("logs", "web") == 0, "instances that do not run yet have no logs"


def test_logs_print_times_and_json_on_request(cli: CliRunner, world: World) -> None:
    assert cli.run(*ONE_CITY) == 0
    world.gateway = gateway(lambda _: Response(200, TWO_LINES))
    assert cli.run("logs", "web", "--timestamps") == 0
    assert cli.out.splitlines()[0] == "2027-01-15T08:00:00.5Z first"
    assert cli.run("logs", "web", "-o", "json") == 0
    entry = json.loads(cli.out.splitlines()[1])
    assert list(entry) == list(LogEntry.__struct_encode_fields__)
    assert (entry["text"], entry["container"]) == ("second", "web")


def test_since_time_omits_earlier_lines(cli: CliRunner, world: World) -> None:
    assert cli.run(*ONE_CITY) == 0
    world.gateway = gateway(lambda _: Response(200, TWO_LINES))
    assert cli.run("logs", "web", "--since-time=2027-01-15T08:00:01Z") == 0
    assert cli.out == "second\n"
    assert cli.run("logs", "web", "--since-time=yesterday") == 2
    assert "'yesterday' is not a time" in cli.err
    assert cli.run("logs", "web", "--since=1h", "--since-time=2027-01-15T08:00:01Z") == 2
    assert "cannot be used together" in cli.err


def test_a_city_without_instances_of_the_workload_is_an_error(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY) == 0
    assert cli.run("logs", "web", "--city=ZZZ") == 2
    assert "workload 'web' does not run in ZZZ" in cli.err
    assert "It runs in: DFW, IAD" in cli.err


def deleted_log(instance: str, uid: str, written_at: str, city: str = "DFW") -> JsonObject:
    return {"instance": instance, "workloadUid": uid, "city": city, "writtenAt": written_at}


def deleted_gateway(
    items: list[JsonObject], seen: list[Request], problems: Sequence[str] = ()
) -> Callable[[Request], Response | None]:
    """Return a gateway that keeps logs of deleted workloads, and records the reads of logs."""

    def respond(request: Request) -> Response | None:
        if request.path.endswith("/logs"):
            assert request.query == {"workload": "web"}
            return Response(200, encode({"items": items, "problems": list(problems)}))
        if request.path.endswith("/log"):
            seen.append(request)
            return Response(200, PAGE)
        return None

    return respond


def test_logs_of_the_last_deleted_workload_are_shown(cli: CliRunner, world: World) -> None:
    seen: list[Request] = []
    items = [
        deleted_log("web-default-dfw-0", "old", "2027-01-15T08:00:00Z"),
        deleted_log("web-default-dfw-0", "new", "2027-01-15T09:00:00Z"),
        deleted_log("web-default-iad-0", "new", "2027-01-15T08:59:00Z", "IAD"),
    ]
    world.gateway = deleted_gateway(items, seen, ["cannot reach cell syd"])
    assert cli.run("logs", "web") == 0
    assert cli.out.splitlines() == [
        "web-default-dfw-0 | hello",
        "web-default-iad-0 | hello",
    ]
    assert "Workload 'web' is deleted. Its logs are kept for a day." in cli.err
    assert "Warning: cannot reach cell syd" in cli.err
    assert {request.query["workloadUID"] for request in seen} == {"new"}
    assert cli.run("logs", "web", "--city=iad", "-f") == 0, "no more lines are written"
    assert cli.out == "hello\n"
    assert cli.run("logs", "web", "--city=ZZZ") == 2
    assert "It runs in: DFW, IAD" in cli.err
    assert cli.run("logs", "web", "--instance=web-default-syd-0") == 3
    assert "there is no log of instance 'web-default-syd-0'" in cli.err


def test_a_workload_without_kept_logs_is_unknown(cli: CliRunner, world: World) -> None:
    world.gateway = deleted_gateway([], [])
    assert cli.run("logs", "web") == 3
    assert "there is no workload 'web'" in cli.err

    def simulated(request: Request) -> Response | None:
        error = gateway_not_found(GatewayReason.INSTANCES_SIMULATED)
        return refused(error) if request.path.endswith("/logs") else None

    world.gateway = simulated
    assert cli.run("logs", "web") == 3
    assert "there is no workload 'web'" in cli.err


def test_logs_of_an_existing_workload_exclude_deleted_ones_of_the_name(
    cli: CliRunner, world: World
) -> None:
    assert cli.run(*ONE_CITY) == 0
    seen: list[Request] = []
    world.gateway = deleted_gateway([], seen)
    assert cli.run("logs", "web") == 0
    assert cli.run("status", "web", "-o", "json") == 0
    assert len(seen) == 1
    (uid,) = {request.query["workloadUID"] for request in seen}
    assert uid not in ("", "old")


def test_ctrl_c_ends_following_without_a_message(cli: CliRunner, world: World) -> None:
    assert cli.run(*ONE_CITY) == 0

    def interrupt(name: str) -> Response:
        raise KeyboardInterrupt

    world.gateway = gateway(interrupt)
    assert cli.run("logs", "web", "-f") == 130
    assert cli.err == ""
