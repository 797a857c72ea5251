"""Messages of the engine are shown without host paths, and timeouts with their length."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from datum_compute.api.meta.codec import encode
from datum_compute.drivers.containers.engine import (
    CONCURRENT_REQUESTS_MAX,
    Engine,
    EngineTimeout,
    EngineVersion,
    parse_error_message,
)
from tests.stream_servers import serve_unix


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            'error mounting "/var/lib/docker/overlay2/ab/merged" to rootfs',
            'error mounting "(path on the host)" to rootfs',
        ),
        (
            "crun: open /srv/me/.local/share/containers/storage/overlay/x/etc: denied",
            "crun: open (path on the host): denied",
        ),
        ("dial unix /run/user/1000/podman/podman.sock: no", "dial unix (path on the host): no"),
        ("dial unix /var/run/docker.sock: no", "dial unix (path on the host): no"),
        ("open /proc/4242/ns/net", "open (path on the host)"),
        ('exec: "/app/server": no such file', 'exec: "/app/server": no such file'),
        ("/opt/app/run.sh: permission denied", "/opt/app/run.sh: permission denied"),
        ("/run/dockerfiles/x: not found", "/run/dockerfiles/x: not found"),
    ],
)
def test_error_messages_contain_no_host_paths(message: str, shown: str) -> None:
    assert parse_error_message(encode({"message": message})) == shown


VERSION = encode({"Version": "5.1", "Components": [{"Name": "Podman Engine"}]})


async def answer_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests for the version. All other requests wait for ever."""
    head = await reader.readuntil(b"\r\n\r\n")
    if b"/version " in head.splitlines()[0]:
        length = f"content-length: {len(VERSION)}\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + VERSION)
    await reader.read()


async def test_the_version_needs_no_request_slot(tmp_path: Path) -> None:
    """A busy engine that answers is not reported as silent."""
    socket = str(tmp_path / "engine.sock")
    engine = Engine(socket)
    async with serve_unix(answer_versions, socket):
        slow = [
            asyncio.create_task(engine.request("GET", "/containers/json"))
            for _ in range(CONCURRENT_REQUESTS_MAX)
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await engine.read_version() == EngineVersion("Podman", "5.1")
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)
        await engine.aclose()


async def test_a_timeout_states_how_long_the_engine_had_time(tmp_path: Path) -> None:
    socket = str(tmp_path / "engine.sock")
    engine = Engine(socket)
    async with serve_unix(answer_versions, socket):
        with pytest.raises(
            EngineTimeout, match=r"cannot reach the container engine: no response within 0\.1 s"
        ):
            await engine.request("GET", "/containers/json", timeout_s=0.1)
        await engine.aclose()
