"""The ports of metrics and health probes."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from datum_compute.app.listener import PortHandler, open_port
from datum_compute.app.metrics import health_dispatch, metrics_dispatch, process_registry
from datum_compute.server.http.connection import Dispatch

LOOPBACK = ("127.0.0.1", 0)


def serve(dispatch: Dispatch, name: str = "metrics") -> AbstractAsyncContextManager[int]:
    return open_port(LOOPBACK, PortHandler(name, dispatch, lambda: 0.0))


def serve_metrics(token: Path | None = None) -> AbstractAsyncContextManager[int]:
    return serve(metrics_dispatch(process_registry(), token))


async def send_bytes(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_the_metrics_page_is_valid_and_complete() -> None:
    async with serve_metrics() as port:
        head, _, body = (
            await send_bytes(port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        ).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"content-length: {len(body)}".encode() in head
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"datum_build_info", "process_cpu_seconds", "process_open_fds"} <= names


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n", b"200"),
        (b"GET /metrics?name=x HTTP/1.0\r\nhost: y\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n", b"405"),
        (b"\x16\x03\x01 not http at all\r\n\r\n", b"400"),
    ],
)
async def test_other_requests_have_short_responses(request_: bytes, status: bytes) -> None:
    async with serve_metrics() as port:
        answer = await send_bytes(port, request_)
    assert answer.split(b" ")[1] == status


@pytest.mark.parametrize(
    ("request_", "answer"), [(b"", b""), (b"GET /metrics", b""), (b"x" * 100_000, b"HTTP/1.1 400")]
)
async def test_an_incomplete_request_does_not_affect_other_clients(
    request_: bytes, answer: bytes
) -> None:
    async with serve_metrics() as port:
        with contextlib.suppress(
            ConnectionError
        ):  # the server closed the connection before it read the whole request
            assert (await send_bytes(port, request_)).partition(b" Bad")[0] == answer
        healthy = await send_bytes(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert healthy.endswith(b"ok")


async def test_readyz_fails_until_nothing_is_missing_and_healthz_never_fails() -> None:
    missing = ["the planes have not been read yet"]
    async with serve(health_dispatch(lambda: "".join(missing))) as port:
        assert (
            await send_bytes(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        ).endswith(b"ok")
        early = await send_bytes(port, b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        missing.clear()
        late = await send_bytes(port, b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b" 404 " in await send_bytes(
            port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
    assert early.startswith(b"HTTP/1.1 503 ")
    assert b"not been read" in early
    assert late.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"authorization: Bearer secret\r\n", b"200"),
        (b"Authorization: bearer secret\r\n", b"200"),
        (b"authorization: Bearer other\r\n", b"401"),
        (b"authorization: Basic secret\r\n", b"401"),
        (b"authorization: Bearer\r\n", b"401"),
        (b"", b"401"),
    ],
)
async def test_requests_without_the_token_are_rejected(
    tmp_path: Path, header: bytes, code: bytes
) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"secret\n")
    async with serve_metrics(token) as port:
        answer = await send_bytes(
            port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n"
        )
    assert answer.split(b" ")[1] == code


async def test_all_requests_are_rejected_if_the_token_file_is_missing(tmp_path: Path) -> None:
    async with serve_metrics(tmp_path / "none") as port:
        answer = await send_bytes(
            port, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \r\n\r\n"
        )
    assert answer.split(b" ")[1] == b"401"


async def test_a_port_in_use_is_reported_with_its_purpose() -> None:
    async with serve_metrics() as port:
        handler = PortHandler("health", health_dispatch(lambda: ""), lambda: 0.0)
        with pytest.raises(OSError, match=f"health: cannot listen: port {port} of 127.0.0.1"):
            await open_port(("127.0.0.1", port), handler).__aenter__()
