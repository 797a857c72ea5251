"""A registry on a loopback address is asked for the manifest of an image, without a pull."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable

from datum_compute.drivers.containers.registry import check_registry
from datum_compute.drivers.queries import ImageCheck

# Returns status, headers and body for a path and an authorization.
Respond = Callable[[str, str], tuple[int, dict[str, str], bytes]]


async def check(respond: Respond, pull_configs: Callable[[int], list[bytes]]) -> ImageCheck:
    """Check the image ``team/web:1`` of a registry that responds as given."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n") if await _is_http(reader) else b""
        if head:
            lines = head.decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            sent = next((line for line in lines if line.lower().startswith("authorization")), "")
            assert "host" in fields
            status, headers, body = respond(lines[0].split(" ")[1], sent.partition(": ")[2])
            shown = {"content-length": str(len(body)), "connection": "close", **headers}
            writer.write(f"HTTP/1.1 {status} X\r\n".encode())
            writer.write("".join(f"{k}: {v}\r\n" for k, v in shown.items()).encode())
            writer.write(b"\r\n" + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await check_registry(f"127.0.0.1:{port}/team/web:1", pull_configs(port))


async def _is_http(reader: asyncio.StreamReader) -> bool:
    """Return False for a TLS handshake: this registry serves only HTTP."""
    first = await reader.read(1)
    if first == b"\x16" or not first:
        return False
    reader._buffer[:0] = first  # type: ignore[attr-defined]
    return True


def no_secrets(_port: int) -> list[bytes]:
    return []


def a_pull_secret(port: int) -> list[bytes]:
    auths = {f"127.0.0.1:{port}": {"username": "ann", "password": "secret"}}
    return [json.dumps({"auths": auths}).encode()]


async def test_an_image_that_exists_is_found_with_its_digest() -> None:
    paths = []

    def respond(path: str, _authorization: str) -> tuple[int, dict[str, str], bytes]:
        paths.append(path)
        return 200, {"docker-content-digest": "sha256:abc"}, b"{}"

    found = await check(respond, no_secrets)
    assert (found.outcome, found.digest) == ("found", "sha256:abc")
    assert paths[-1] == "/v2/team/web/manifests/1"


async def test_a_missing_image_has_the_message_of_the_registry() -> None:
    def respond(_path: str, _authorization: str) -> tuple[int, dict[str, str], bytes]:
        return 404, {}, b'{"errors": [{"code": "X", "message": "manifest unknown"}]}'

    found = await check(respond, no_secrets)
    assert (found.outcome, found.words) == ("missing", "manifest unknown")


async def test_a_pull_secret_is_used_when_the_registry_demands_credentials() -> None:
    expected = "Basic " + base64.b64encode(b"ann:secret").decode()

    def respond(_path: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        if authorization == expected:
            return 200, {}, b"{}"
        return 401, {"www-authenticate": 'Basic realm="registry"'}, b"{}"

    assert (await check(respond, no_secrets)).outcome == "denied"
    assert (await check(respond, a_pull_secret)).outcome == "found"


async def test_an_unexpected_response_is_no_verdict() -> None:
    def respond(_path: str, _authorization: str) -> tuple[int, dict[str, str], bytes]:
        return 503, {}, b"not JSON"

    found = await check(respond, no_secrets)
    assert (found.outcome, found.words) == ("unknown", "the registry answers 503")
