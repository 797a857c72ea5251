"""Logs of several instances; some or all cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from datum_compute.api.errors import ApiError, ServiceUnavailable, to_status
from datum_compute.api.gateway import GatewayReason, gateway_not_found
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import encode
from tests.cli.runner import CliRunner
from tests.cli.world import World

pytestmark = pytest.mark.usefixtures("local_platform")

DEPLOY = ("deploy", "web", "--image=web:1", "--city=DFW", "--city=IAD", "-y")
PAGE = encode({"cursor": {}, "lines": [{"time": "2027-01-15T08:00:00Z", "text": "hello"}]})


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
