"""The client of one plane. Typed by the kind; ``*_plain`` for objects of kinds we only carry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec

from datum_compute.api.codec import (
    DecodeError,
    JsonObject,
    decode,
    decode_as,
    encode,
    plain,
)
from datum_compute.api.errors import InternalError, from_status
from datum_compute.api.exchange import JSON, JSON_PATCH, MERGE_PATCH, Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.client.transport import Transport

T = TypeVar("T", bound=ApiObject)
M = TypeVar("M")

BACKGROUND = "Background"

Patch = JsonObject | list[JsonObject]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    items: list[T]
    version: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """``object`` is the new (or last) state, and None for a bookmark."""

    type: EventType
    version: str
    object: T | None


class _WireEvent(msgspec.Struct, frozen=True):
    type: EventType
    object: msgspec.Raw


class _WireMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _WireObject(msgspec.Struct, frozen=True):
    metadata: _WireMeta = _WireMeta()


class _WireList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]
    metadata: _WireMeta = _WireMeta()


class Client:
    """Requests to one plane, as one user."""

    def __init__(self, transport: Transport, *, prefix: str, token: str, agent: str) -> None:
        self._transport = transport
        self._prefix = prefix
        self._headers = {"authorization": f"Bearer {token}", "accept": JSON, "user-agent": agent}

    async def get(self, kind: KindInfo[T], ref: Ref) -> T:
        return _typed(await self._call("GET", _path(kind, ref)), kind)

    async def get_plain(self, kind: KindInfo[Any], ref: Ref) -> JsonObject:
        return _plain_body(await self._call("GET", _path(kind, ref)))

    async def list(
        self, kind: KindInfo[T], namespace: str = "", *, labels: Mapping[str, str] | None = None
    ) -> Listed[T]:
        query = {"labelSelector": _selector(labels)} if labels else {}
        response = await self._call("GET", _path(kind, Ref(namespace, "")), query=query)
        listed = _decoded(response, _WireList)
        items = [_readable(bytes(raw), kind) for raw in listed.items]
        return Listed(items, listed.metadata.resource_version)

    async def create(self, kind: KindInfo[T], obj: T, *, dry_run: bool = False) -> T:
        ref = Ref(obj.metadata.namespace, "")
        query = {"dryRun": "All"} if dry_run else {}
        body = encode(manifest(kind, obj))
        return _typed(await self._call("POST", _path(kind, ref), body=body, query=query), kind)

    async def create_plain(self, kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
        path = _path(kind, Ref(obj["metadata"].get("namespace", ""), ""))
        return _plain_body(await self._call("POST", path, body=encode(obj)))

    async def update_plain(self, kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
        """Replace an object; its metadata must carry the version it was read at."""
        ref = Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return _plain_body(await self._call("PUT", _path(kind, ref), body=encode(obj)))

    async def patch(self, kind: KindInfo[T], ref: Ref, patch: Patch) -> T:
        """Merge patch for an object, JSON patch for a list of operations."""
        return _typed(await self._patched(_path(kind, ref), patch), kind)

    async def patch_status(
        self, kind: KindInfo[T], ref: Ref, status: JsonObject, *, version: str
    ) -> T:
        """Merge ``status`` into the status of the object as read at ``version``, or Conflict."""
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        return _typed(await self._patched(_path(kind, ref) + "/status", patch), kind)

    async def delete(
        self,
        kind: KindInfo[Any],
        ref: Ref,
        *,
        uid: str = "",
        version: str = "",
        policy: str = BACKGROUND,
    ) -> None:
        """Delete, dependents as ``policy`` says; with ``uid`` or ``version`` only that very
        object."""
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", version)) if v}
        options: JsonObject = {"propagationPolicy": policy}
        if preconditions:
            options["preconditions"] = preconditions
        await self._call("DELETE", _path(kind, ref), body=encode(options))

    async def finalize_namespace(self, namespace: Namespace) -> None:
        """Release a terminating namespace that has been emptied."""
        body = {**manifest(NAMESPACE, namespace), "spec": {"finalizers": []}}
        path = _path(NAMESPACE, ref_of(namespace)) + "/finalize"
        await self._call("PUT", path, body=encode(body))

    async def watch(
        self, kind: KindInfo[T], since: str, *, namespace: str = "", timeout_s: int = 300
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Events after ``since`` until the server ends the stream; an ERROR event is raised."""
        query = {
            "watch": "1",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }
        response = await self._call("GET", _path(kind, Ref(namespace, "")), query=query)
        assert response.stream is not None, "a watch is answered by a stream"
        async with aclosing(response.stream) as stream:
            async for line in _lines(stream):
                yield _event(line, kind)

    async def _patched(self, path: str, patch: Patch) -> Response:
        content_type = JSON_PATCH if isinstance(patch, list) else MERGE_PATCH
        return await self._call("PATCH", path, body=encode(patch), content_type=content_type)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
    ) -> Response:
        headers = {**self._headers, "content-type": content_type} if body else self._headers
        request = Request(method, self._prefix + path, query or {}, headers, body)
        response = await self._transport.send(request)
        if response.status >= 400:
            raise from_status(response.status, _status_body(response))
        return response


def manifest(kind: KindInfo[Any], obj: ApiObject) -> JsonObject:
    """The plain JSON of an object, with its apiVersion and kind."""
    return {**plain(obj), "apiVersion": kind.api_version, "kind": kind.kind}


def _path(kind: KindInfo[Any], ref: Ref) -> str:
    base = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    if ref.namespace:
        assert kind.namespaced, f"{kind.kind} has no namespace"
        base += f"/namespaces/{quote(ref.namespace, safe='')}"
    base += f"/{kind.plural}"
    return f"{base}/{quote(ref.name, safe='')}" if ref.name else base


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _typed(response: Response, kind: KindInfo[T]) -> T:
    return _decoded(response, kind.model)


def _plain_body(response: Response) -> JsonObject:
    body: JsonObject = decode(response.body)
    return body


def _decoded(response: Response, model: type[M]) -> M:
    try:
        return decode_as(response.body, model)
    except DecodeError as error:
        raise InternalError(f"the server's answer cannot be read: {error}") from error


def _status_body(response: Response) -> JsonObject:
    try:
        body = decode(response.body)
    except DecodeError:
        body = None
    if isinstance(body, dict):
        return body
    return {"message": response.body[:200].decode(errors="replace").strip()}


async def _lines(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines of a chunked stream, however it was cut."""
    parts: list[bytes] = []  # of a line that has not ended yet
    async for chunk in stream:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            line = b"".join(parts)
            if line:
                yield line
            parts = [other]


def _event(line: bytes, kind: KindInfo[T]) -> WatchEvent[T]:
    event = decode_as(line, _WireEvent)
    body = bytes(event.object)
    if event.type == "ERROR":
        status = decode(body)
        raise from_status(int(status.get("code", 500)), status)
    version = decode_as(body, _WireObject).metadata.resource_version
    if event.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", version, None)
    return WatchEvent(event.type, version, _readable(body, kind))


def _readable(body: bytes, kind: KindInfo[T]) -> T:
    """An object of the plane; one that our model cannot read is the plane's error, not a crash."""
    try:
        return decode_as(body, kind.model)
    except DecodeError as error:
        raise InternalError(f"a {kind.kind} of the plane cannot be read: {error}") from error
