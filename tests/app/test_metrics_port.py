"""The little port for scrapers: two pages, and patience with nobody."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from datum_compute.app.metrics import (
    health_pages,
    metrics_pages,
    pages_port,
    process_registry,
)

LOCAL = ("127.0.0.1", 0)


async def sent(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_the_page_is_valid_and_complete() -> None:
    async with pages_port(LOCAL, metrics_pages(process_registry())) as port:
        head, _, body = (await sent(port, b"GET /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"content-length: {len(body)}".encode() in head
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"datum_build_info", "process_cpu_seconds", "process_open_fds"} <= names


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /metrics?name=x HTTP/1.0\r\nhost: y\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01 not http at all\r\n\r\n", b"405"),
    ],
)
async def test_everything_else_is_answered_shortly(request_: bytes, status: bytes) -> None:
    async with pages_port(LOCAL, metrics_pages(process_registry())) as port:
        answer = await sent(port, request_)
    assert answer.split(b" ")[1] == status


@pytest.mark.parametrize("request_", [b"", b"GET /metrics", b"x" * 100_000])
async def test_a_request_that_never_ends_gets_nothing_and_harms_nobody(request_: bytes) -> None:
    async with pages_port(LOCAL, metrics_pages(process_registry())) as port:
        with contextlib.suppress(ConnectionError):  # it did not wait for the rest
            assert await sent(port, request_) == b""
        assert (await sent(port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"ok")


async def test_without_an_address_nothing_listens() -> None:
    async with pages_port(None, metrics_pages(process_registry())) as port:
        assert port == 0


async def test_readyz_waits_until_nothing_is_missing_and_livez_never_does() -> None:
    missing = ["the planes have not been read yet"]
    async with pages_port(LOCAL, health_pages(lambda: "".join(missing))) as port:
        assert (await sent(port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"ok")
        early = await sent(port, b"GET /readyz HTTP/1.1\r\n\r\n")
        missing.clear()
        late = await sent(port, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert b" 404 " in await sent(port, b"GET /metrics HTTP/1.1\r\n\r\n")
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
async def test_with_a_token_only_who_knows_it_is_let_in(
    tmp_path: Path, header: bytes, code: bytes
) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"secret\n")
    async with pages_port(LOCAL, metrics_pages(process_registry()), token) as port:
        answer = await sent(port, b"GET /metrics HTTP/1.1\r\n" + header + b"\r\n")
    assert answer.split(b" ")[1] == code


async def test_without_the_file_of_the_token_nobody_is_let_in(tmp_path: Path) -> None:
    async with pages_port(LOCAL, metrics_pages(process_registry()), tmp_path / "none") as port:
        answer = await sent(port, b"GET /metrics HTTP/1.1\r\nauthorization: Bearer \r\n\r\n")
    assert answer.split(b" ")[1] == b"401"


async def test_a_port_that_is_taken_is_named_with_what_it_is_for() -> None:
    async with pages_port(LOCAL, health_pages(lambda: "")) as port:
        with pytest.raises(OSError, match=f"/readyz: cannot listen on 127.0.0.1:{port}: Address"):
            await pages_port(("127.0.0.1", port), health_pages(lambda: "")).__aenter__()
