"""The runtime of the instances is shown, and an engine that does not respond is reported."""

from __future__ import annotations

import json

import pytest

from datum_compute.api.errors import ServiceUnavailable, to_status
from datum_compute.api.gateway import GatewayReason, gateway_not_found
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import encode
from datum_compute.cli.workload.cell_reports import ReportedDriver, describe_drivers
from tests.cli.runner import CliRunner
from tests.cli.world import World

SILENCE = "cannot reach the container engine at /run/engine.sock: connection refused"

pytestmark = pytest.mark.usefixtures("local_platform")


def dead_engine(request: Request) -> Response | None:
    if request.path.endswith("/images"):
        error = ServiceUnavailable(SILENCE)
        return Response(error.code, encode(to_status(error)))
    if request.path.endswith("/drivers"):
        row = {"driver": "containers", "engine": "/run/engine.sock", "answers": False}
        cells = [{"cell": cell, **row, "words": SILENCE} for cell in ("dfw", "iad")]
        return Response(200, encode({"items": cells}))
    return None


def test_doctor_reports_an_engine_that_does_not_respond(cli: CliRunner, world: World) -> None:
    world.gateway = dead_engine
    assert cli.run("doctor", "-o", "json") == 20
    (finding,) = [f for f in json.loads(cli.out)["items"] if f["check"] == "driver"]
    assert finding["state"] == "failed"
    assert SILENCE in finding["text"]
    assert finding["next"] == "datumctl compute local status"


def engine_without_init(request: Request) -> Response | None:
    if not request.path.endswith("/drivers"):
        return None
    row = {"driver": "containers", "engine": "/run/engine.sock", "answers": True, "words": "Podman"}
    cells = [{"cell": cell, **row, "withoutInit": n} for cell, n in (("dfw", 2), ("iad", 1))]
    return Response(200, encode({"items": cells}))


def test_doctor_names_the_package_that_the_engine_lacks(cli: CliRunner, world: World) -> None:
    world.gateway = engine_without_init
    assert cli.run("doctor", "-o", "json") == 0
    (finding,) = [f for f in json.loads(cli.out)["items"] if f["check"] == "driver"]
    assert finding["state"] == "warning"
    assert "3 containers" in finding["text"]
    assert finding["text"].count("Runtime") == 1, "two cells of one engine are one driver"
    assert "catatonit" in finding["text"]
    assert finding["next"] == "apt-get install catatonit"


def test_a_platform_without_driver_information_is_no_failure(cli: CliRunner, world: World) -> None:
    world.gateway = lambda _: None
    assert cli.run("doctor", "-o", "json") == 0
    (finding,) = [f for f in json.loads(cli.out)["items"] if f["check"] == "driver"]
    assert finding["state"] == "skipped"


def test_a_plan_reports_that_the_engine_does_not_respond(cli: CliRunner, world: World) -> None:
    world.gateway = dead_engine
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "--dry-run") == 0
    assert f"web:1: not checked: {SILENCE}" in cli.err
    assert "no gateway that can query" not in cli.err


def test_a_plan_reports_that_simulated_instances_pull_no_image(
    cli: CliRunner, world: World
) -> None:
    error = gateway_not_found(GatewayReason.INSTANCES_SIMULATED)
    world.gateway = lambda request: (
        Response(error.code, encode(to_status(error))) if request.path.endswith("/images") else None
    )
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "--dry-run") == 0
    assert "web:1: not checked: instances are simulated here, no image is pulled" in cli.err
    assert "metadata" not in cli.err, "none was given"


def test_a_quoted_message_gets_no_second_period() -> None:
    away = ReportedDriver(
        "unknown", "", "", False, "cell dfw is unreachable. Check the address.", ("dfw",)
    )
    assert describe_drivers([away]) == [
        "Runtime: unknown: cell dfw is unreachable. Check the address"
    ]


def test_cells_are_named_only_where_they_differ() -> None:
    simulated = ReportedDriver("simulated", "as configured", "", True, "", ("dfw",))
    real = ReportedDriver("containers", "", "/run/e.sock", True, "podman 4.9", ("iad", "lhr"))
    assert describe_drivers([simulated]) == ["Runtime: simulated, no process runs (as configured)"]
    assert describe_drivers([simulated, real])[1] == (
        "Runtime of iad, lhr: containers of podman 4.9 at /run/e.sock"
    )
