"""Shutdown on SIGTERM, release of the lease, and the metrics of servers and managers."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from datum_compute.api.core import Lease
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CONFIG_MAP, LEASE, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.local.platform import find_running, is_ready
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import Http1Transport
from testkit.processes.local_platform import BIN, LocalPlatform, eventually

pytestmark = pytest.mark.e2e

STOP_S = 15  # longer than the documented limit, for busy test machines
MANAGEMENT = Ref("kube-system", "compute-manager-management")


@contextmanager
def process(*command: str, log: Path, environment: dict[str, str] | None = None) -> Iterator[Any]:
    with log.open("ab") as sink:
        running = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        yield running
    finally:
        running.kill()
        running.wait(timeout=STOP_S)


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[tuple[LocalPlatform, Any]]:
    """A platform without controllers, and its process, a child of the test."""
    platform = LocalPlatform(tmp_path / "state")
    command = (str(BIN / "python"), "-m", "datum_compute.app.local_server", "--no-controllers")
    flags = ("--state-dir", str(platform.state), "--log-format", "json")
    with process(*command, *flags, log=tmp_path / "server.log") as running:
        eventually(lambda: is_serving(platform), "the planes are served")
        yield platform, running


def is_serving(platform: LocalPlatform) -> bool:
    running = find_running(platform.state)
    return running is not None and asyncio.run(is_ready(platform.state, running))


@contextmanager
def manager(platform: LocalPlatform, name: str, *flags: str) -> Iterator[Any]:
    command = (
        str(BIN / "compute-manager"),
        f"--kubeconfig={platform.manager_kubeconfig}",
        f"--state-dir={platform.state / name}",
        "--enable-management-controllers",
        "--log-format=json",
    )
    with process(*command, *flags, log=platform.state / f"{name}.log") as running:
        yield running


def client_of(platform: LocalPlatform, context: str) -> tuple[Http1Transport, Client]:
    config = load_kubeconfig([platform.manager_kubeconfig])
    connection = connection_of(config, context)
    transport = Http1Transport(connection.server, ca_pem=connection.ca_pem)
    return transport, build_client(replace(connection), transport)


async def read_lease(platform: LocalPlatform) -> Lease | None:
    transport, client = client_of(platform, "hub")
    async with transport:
        try:
            return await client.get(LEASE, MANAGEMENT)
        except (ApiError, Unreachable):
            return None


def lease_holder(platform: LocalPlatform) -> str:
    lease = asyncio.run(read_lease(platform))
    return (lease.spec.holder_identity or "") if lease is not None else ""


def parse_log(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


async def test_the_server_ends_watches_cleanly_and_responds_to_open_requests(
    api_server: tuple[LocalPlatform, Any], tmp_path: Path
) -> None:
    platform, running = api_server
    transport, client = client_of(platform, "hub")
    async with transport:
        begun = asyncio.Semaphore(0)

        async def watch() -> int:
            seen = 0
            async for _ in client.watch(NAMESPACE, "0"):
                if not seen:
                    begun.release()
                seen += 1
            return seen

        async def list_config_maps() -> str:
            try:
                await client.list(CONFIG_MAP)
            except (ApiError, Unreachable) as error:
                return type(error).__name__
            return "answered"

        watching = [asyncio.create_task(watch()) for _ in range(20)]
        for _ in watching:
            await asyncio.wait_for(begun.acquire(), STOP_S)
        requests = [asyncio.create_task(list_config_maps()) for _ in range(50)]
        await asyncio.sleep(0)
        running.send_signal(signal.SIGTERM)
        results = await asyncio.wait_for(asyncio.gather(*requests), STOP_S)
        ended = await asyncio.wait_for(asyncio.gather(*watching), STOP_S)
    assert await asyncio.to_thread(running.wait, STOP_S) == 0
    assert min(ended) >= 1, "every watch ended as a complete stream"
    assert set(results) <= {"answered", "Unreachable", "ServiceUnavailable"}
    assert platform.pid == 0, "the state directory names no process"
    levels = {entry["level"] for entry in parse_log(tmp_path / "server.log")}
    assert levels <= {"info", "warning"}


def test_a_stopped_manager_releases_its_lease_and_the_next_one_leads(
    api_server: tuple[LocalPlatform, Any],
) -> None:
    platform, _ = api_server
    with manager(platform, "one") as one:
        eventually(lambda: bool(lease_holder(platform)), "one leads")
        first = lease_holder(platform)
        with manager(platform, "two") as two:
            log = platform.state / "two.log"
            eventually(lambda: "waiting for lease" in log.read_text(), "two waits")
            one.send_signal(signal.SIGTERM)
            assert one.wait(timeout=STOP_S) == 0
            messages = [entry["message"] for entry in parse_log(platform.state / "one.log")]
            assert any("was released" in message for message in messages)
            eventually(lambda: lease_holder(platform) not in ("", first), "two leads")
            two.send_signal(signal.SIGTERM)
            assert two.wait(timeout=STOP_S) == 0
    assert lease_holder(platform) == ""


def test_a_manager_stops_while_its_planes_are_down(
    api_server: tuple[LocalPlatform, Any],
) -> None:
    platform, server = api_server
    with manager(platform, "one") as one:
        eventually(lambda: bool(lease_holder(platform)), "one leads")
        server.kill()
        server.wait(timeout=STOP_S)
        one.send_signal(signal.SIGTERM)
        assert one.wait(timeout=STOP_S) == 0


def test_a_manager_that_loses_its_lease_exits_with_an_error(
    api_server: tuple[LocalPlatform, Any],
) -> None:
    platform, _ = api_server

    async def take_over() -> None:
        transport, client = client_of(platform, "hub")
        async with transport:
            patch = {"spec": {"holderIdentity": "another process"}}
            await client.patch(LEASE, MANAGEMENT, patch)

    with manager(platform, "one") as one:
        eventually(lambda: bool(lease_holder(platform)), "one leads")
        asyncio.run(take_over())
        assert one.wait(timeout=STOP_S) == 1
    assert "holder: another process" in (platform.state / "one.log").read_text()
    assert lease_holder(platform) == "another process"


def test_a_manager_serves_metrics_on_its_metrics_address(
    api_server: tuple[LocalPlatform, Any],
) -> None:
    platform, _ = api_server
    log = platform.state / "one.log"
    with manager(platform, "one", "--metrics-address=127.0.0.1:0"):
        eventually(
            lambda: log.exists() and "metrics on" in log.read_text(), "the log contains the address"
        )
        (message,) = [e["message"] for e in parse_log(log) if "metrics on" in e["message"]]
        address = message.split()[-1]
        with urllib.request.urlopen(f"{address}/metrics", timeout=STOP_S) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
    names = {family.name for family in families}
    assert {"process_cpu_seconds", "process_open_fds", "datum_build_info", "datum_events"} <= names


def test_the_server_serves_metrics_only_to_authorized_users(
    api_server: tuple[LocalPlatform, Any],
) -> None:
    platform, _ = api_server
    config = load_kubeconfig([platform.kubeconfig])
    connection = connection_of(config, "platform")
    trusted = ssl.create_default_context(cadata=(connection.ca_pem or b"").decode())
    request = urllib.request.Request(f"{connection.server}/metrics")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=STOP_S, context=trusted)
    refused.value.close()
    assert refused.value.code == 401
    request.add_header("authorization", f"Bearer {connection.token}")
    with urllib.request.urlopen(request, timeout=STOP_S, context=trusted) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    names = {family.name for family in families}
    assert {"process_resident_memory_bytes", "datum_store_objects", "datum_build_info"} <= names
