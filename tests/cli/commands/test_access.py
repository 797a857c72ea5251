"""``access``: the states of the entitlement of a project, and requests for access."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datum_compute.api.http import Request
from datum_compute.api.kinds import ENTITLEMENT, SERVICE
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM
from datum_compute.api.services import Service, ServiceEntitlement
from datum_compute.cli.environment import CliTimeouts
from datum_compute.cli.workload.access import AccessState, classify_entitlement
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner
from tests.cli.world import World, no_controllers, write_kubeconfig

COMPUTE = Ref("", "compute")
DEPLOY = ("deploy", "web", "--image=web:1", "--city=DFW", "-y", "--no-wait")


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "owner")
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    cli.timeouts = CliTimeouts(first_status_s=0.05)
    return cli


def offered(world: World, mode: str) -> None:
    """Compute is in the catalogue of the platform."""
    spec = {
        "serviceName": "compute.datumapis.com",
        "phase": "Draft",
        "owner": {"producerProjectRef": {"name": "datum-cloud"}},
        "enablementPolicy": {"mode": mode},
    }

    async def create(client: Client) -> None:
        service = from_json({"metadata": {"name": "compute"}, "spec": spec}, Service)
        await client.create(SERVICE, service)
        await client.patch(SERVICE, COMPUTE, {"spec": {"phase": "Published"}})

    world.do(create, PLATFORM)


def status(phase: str | None, reason: str = "", message: str = "", **more: Any) -> JsonObject:
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": message}
    conditions = [ready] if phase else []
    return {"phase": phase, "conditions": conditions, **more} if phase else {}


def entitled(**entitlement_status: Any) -> ServiceEntitlement:
    document = {
        "metadata": {"name": "compute"},
        "spec": {"serviceRef": {"name": "compute"}},
        "status": entitlement_status,
    }
    return from_json(document, ServiceEntitlement)


STATES = [
    (status(None), AccessState.PROCESSING, 12),
    (status("Active", "EntitlementActive"), AccessState.ACTIVE, 0),
    (status("PendingApproval", "EntitlementPendingApproval", "ask Bo"), AccessState.PENDING, 12),
    (status("Rejected", "ConsumerDenied", "not you"), AccessState.DENIED, 11),
    (
        status("Rejected", "ConsumerDenied", "enough", entitledAt="2026-01-01T00:00:00Z"),
        AccessState.REVOKED,
        11,
    ),
    (status("Rejected", "ServiceNotPublished", "gone"), AccessState.UNAVAILABLE, 13),
]


@pytest.mark.parametrize(("reported", "state", "_code"), STATES)
def test_an_entitlement_is_read_as_one_state(
    reported: JsonObject, state: AccessState, _code: int
) -> None:
    assert classify_entitlement(entitled(**reported)) is state


def test_no_entitlement_and_one_without_a_ready_condition() -> None:
    assert classify_entitlement(None) is AccessState.NOT_REQUESTED
    assert classify_entitlement(entitled(phase="Active")) is AccessState.PROCESSING


def write_entitlement(world: World, reported: JsonObject) -> None:
    async def write(client: Client) -> None:
        made = await client.create(ENTITLEMENT, entitled())
        if reported:
            version = made.metadata.resource_version
            await client.patch_status(ENTITLEMENT, COMPUTE, reported, version=version)

    world.do(write)


@pytest.mark.parametrize(("reported", "_state", "code"), STATES)
def test_each_access_state_has_an_exit_code_and_shows_the_message(
    cli: CliRunner, world: World, reported: JsonObject, _state: AccessState, code: int
) -> None:
    offered(world, "GatedByProvider")
    write_entitlement(world, reported)
    world.writes.clear()
    assert cli.run(*DEPLOY) == code
    if code:
        assert world.writes == []
        message = reported["conditions"][0]["message"] if reported else ""
        assert message in cli.err
        assert "ntitlement" not in cli.err  # no name of an internal object
        assert ("error:" in cli.err) == (code != 12)  # a pending request is information
        assert cli.run(*DEPLOY, "-o", "json") == code
        assert json.loads(cli.err)["error"]["retryable"] is (code == 12)
    assert cli.run("access", "-o", "json") == 0  # the status itself is never an error
    assert json.loads(cli.out)["state"] == str(_state)


def test_a_gated_service_is_not_requested_without_a_terminal(cli: CliRunner, world: World) -> None:
    offered(world, "GatedByProvider")
    assert cli.run(*DEPLOY) == 10
    assert "Request it: datumctl compute access request" in cli.err
    assert world.writes == []


def test_a_gated_service_is_requested_after_confirmation(cli: CliRunner, world: World) -> None:
    offered(world, "GatedByProvider")
    cli.is_terminal, cli.environ, cli.typed = True, {"NO_COLOR": "1"}, "n\n"
    assert cli.run(*DEPLOY) == 9
    assert world.writes == []
    cli.typed = "yes\n"
    assert cli.run(*DEPLOY) == 12
    (request,) = world.writes
    assert request.path.endswith("/serviceentitlements")
    assert cli.run(*DEPLOY) == 12, "asked once, calm from then on"
    assert len(world.writes) == 1
    assert "[y/N]" not in cli.err


def test_self_service_is_enabled_without_confirmation_and_reported(
    cli: CliRunner, world: World
) -> None:
    offered(world, "SelfService")

    async def activate(client: Client) -> None:
        async for event in client.watch(ENTITLEMENT, "", timeout_s=600):
            found = event.object
            if found is not None and found.status.phase is None:
                reported = status("Active", "EntitlementActive")
                version = found.metadata.resource_version
                await client.patch_status(ENTITLEMENT, COMPUTE, reported, version=version)

    world.player = activate
    cli.timeouts = CliTimeouts(first_status_s=5)
    assert cli.run(*DEPLOY) == 0
    assert "Enabling Compute for project/default." in cli.err


@pytest.mark.parametrize("command", [("status", "web"), ("workloads",), ("instances",), ("quota",)])
def test_commands_that_read_print_one_line_if_the_project_has_no_access(
    cli: CliRunner, world: World, command: tuple[str, ...]
) -> None:
    offered(world, "GatedByProvider")
    write_entitlement(world, status("PendingApproval", "EntitlementPendingApproval", "ask Bo"))
    assert cli.run(*command) == (3 if command[0] == "status" else 0)
    line = "No access to Compute in project/default: requested, waiting for approval. Next: "
    assert cli.err.splitlines()[0].startswith(line)
    if command[0] != "status":
        assert len(cli.err.splitlines()) == 1


def test_doctor_skips_what_a_project_gets_with_its_access(cli: CliRunner, world: World) -> None:
    offered(world, "GatedByProvider")
    write_entitlement(world, status("PendingApproval", "EntitlementPendingApproval", "ask Bo"))
    cli.run("doctor", "-o", "json")
    states = {item["check"]: item["state"] for item in json.loads(cli.out)["items"]}
    assert (states["access"], states["quota"], states["cities"]) == (
        "warning",
        "skipped",
        "skipped",
    )


@pytest.mark.parametrize("command", ["workloads", "instances", "quota"])
def test_commands_that_read_do_not_mention_access_if_the_project_has_it(
    cli: CliRunner, world: World, command: str
) -> None:
    offered(world, "GatedByProvider")
    write_entitlement(world, status("Active", "EntitlementActive"))
    assert cli.run(command) == 0
    assert "access" not in cli.err


def test_an_existing_request_is_accepted(cli: CliRunner, world: World) -> None:
    offered(world, "SelfService")

    async def race(request: Request, client: Client) -> None:
        if request.method == "POST" and request.path.endswith("serviceentitlements"):
            world.before = None
            made = await client.create(ENTITLEMENT, entitled())
            version = made.metadata.resource_version
            reported = status("Active", "EntitlementActive")
            await client.patch_status(ENTITLEMENT, COMPUTE, reported, version=version)

    world.before = race
    assert cli.run(*DEPLOY) == 0
    assert "already exists" not in cli.err


def test_without_access_management_the_server_decides(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY) == 0
    assert cli.run("access") == 0
    assert "not managed on this platform" in cli.out
    assert cli.run("access", "request") == 13


def test_on_a_single_cluster_no_access_is_requested(
    cli: CliRunner, world: World, tmp_path: Path
) -> None:
    offered(world, "SelfService")
    alone = write_kubeconfig(tmp_path / "alone", "operator", planes=(PLATFORM,))
    there = (f"--kubeconfig={alone}", "--context=platform")
    assert cli.run("access", *there) == 0
    assert "not managed on this platform" in cli.out
    assert cli.run("access", "request", *there) == 13
    assert world.writes == []


def test_a_request_is_idempotent_and_can_be_renewed(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    offered(world, "GatedByProvider")
    assert cli.run("access", "request", "--message=for the shop") == 0
    assert cli.out == "access/compute requested, being activated\n"
    assert cli.run("access", "request") == 0
    assert cli.run("access", "request", "--wait", "--timeout=0s") == 12
    assert cli.run("access", "renew") == 2, "confirmation is required"
    world.writes.clear()
    assert cli.run("access", "renew", "-y") == 0
    assert [w.method for w in world.writes] == ["DELETE", "POST"]


def test_reading_needs_no_access(cli: CliRunner, world: World) -> None:
    offered(world, "GatedByProvider")
    assert cli.run("workloads") == 0
    assert cli.run("doctor") == 20
    assert "not enabled; no request was made yet" in cli.out
