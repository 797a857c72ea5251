"""The client of one plane. Typed by the kind; ``*_plain`` for objects of kinds we only carry.

Rules it keeps: an object of a kind that we model only in part is never written back whole (that
would drop the fields we do not know), it is patched or written as plain JSON; a list is whole or
an error, however many pages it takes. Retries and signing in are the business of the transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from datum_compute.api.core import Namespace
from datum_compute.api.errors import Conflict, Expired, InternalError, Invalid, Unreachable
from datum_compute.api.http import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.codec import JsonObject, encode, to_json
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.client.responses import (
    ListResult,
    Page,
    UndecodableObject,
    WatchEvent,
    event_of,
    event_with_unreadable,
    lines_of,
    object_of,
    page_of,
    page_with_unreadable,
    refusal_of,
    version_of,
)
from datum_compute.client.transport.interface import Transport
from datum_compute.client.watch import wait_for
from datum_compute.telemetry.context import TRACEPARENT

if TYPE_CHECKING:
    from datum_compute.client.transport.websocket import WebSocket

T = TypeVar("T", bound=ApiObject)
M = TypeVar("M")
K = TypeVar("K")

BACKGROUND = "Background"

Patch = JsonObject | list[JsonObject]

WATCH_S = 300
# How long a watch may take to begin; what it brings may take longer.
ANSWER_S = 30.0
# How often a list whose pages expired under it begins again before it asks for all at once.
_RESTARTS = 2


class Client:
    """Requests to one plane, as one user; without a token the transport signs in."""

    def __init__(self, transport: Transport, *, prefix: str, token: str, agent: str) -> None:
        self._transport = transport
        self._prefix = prefix
        self._headers = {"accept": JSON, "user-agent": agent}
        if token:
            self._headers["authorization"] = f"Bearer {token}"

    # --- reading

    async def get(self, kind: KindInfo[T], ref: Ref) -> T:
        return object_of(await self._call("GET", _path(kind, ref)), kind.model)

    async def get_plain(self, kind: KindInfo[Any], ref: Ref) -> JsonObject:
        return object_of(await self._call("GET", _path(kind, ref)), JsonObject)

    async def list(
        self,
        kind: KindInfo[T],
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        page_size: int = 0,
    ) -> ListResult[T]:
        """All objects as of one version; with a page size in several requests."""
        query = _selection(labels, fields)
        path = _path(kind, Ref(namespace, ""))
        return await self._listed(path, query, page_size, lambda r: page_of(r, kind.model))

    async def list_plain(
        self,
        kind: KindInfo[Any],
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        page_size: int = 0,
    ) -> ListResult[JsonObject]:
        query = _selection(labels, fields)
        path = _path(kind, Ref(namespace, ""))
        return await self._listed(path, query, page_size, lambda r: page_of(r, JsonObject))

    async def list_mapped(
        self,
        kind: KindInfo[T],
        keep: Callable[[T | UndecodableObject], K],
        *,
        page_size: int,
        labels: Mapping[str, str] | None = None,
    ) -> ListResult[K]:
        """What ``keep`` makes of every object, page by page: never are all of them decoded at
        once, and one that cannot be decoded does not hide the others."""

        def kept(response: Response) -> Page[K]:
            page = page_with_unreadable(response, kind.model)
            return Page([keep(item) for item in page.items], page.version, page.more)

        query = _selection(labels, None)
        return await self._listed(_path(kind, Ref("", "")), query, page_size, kept)

    async def version(
        self,
        kind: KindInfo[Any],
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> str:
        """The version that a list of the kind would have now."""
        query = {**_selection(labels, fields), "limit": "1"}
        return version_of(await self._call("GET", _path(kind, Ref(namespace, "")), query=query))

    def watch(
        self,
        kind: KindInfo[T],
        since: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        timeout_s: int = WATCH_S,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Events after ``since`` until the server ends the stream; an ERROR event is raised.

        ``watching.follow`` is the one that goes on for ever.
        """
        query = {**_selection(labels, fields), **_watching(since, timeout_s)}
        path = _path(kind, Ref(namespace, ""))
        return self._events(path, query, lambda line: event_of(line, kind.model))

    def watch_lenient(
        self,
        kind: KindInfo[T],
        since: str,
        *,
        labels: Mapping[str, str] | None = None,
        timeout_s: int = WATCH_S,
    ) -> AsyncGenerator[WatchEvent[T | UndecodableObject], None]:
        """As ``watch``, for all namespaces; goes on after an object that cannot be decoded."""
        query = {**_selection(labels, None), **_watching(since, timeout_s)}
        path = _path(kind, Ref("", ""))
        return self._events(path, query, lambda line: event_with_unreadable(line, kind.model))

    def watch_plain(
        self,
        kind: KindInfo[Any],
        since: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        timeout_s: int = WATCH_S,
    ) -> AsyncGenerator[WatchEvent[JsonObject], None]:
        query = {**_selection(labels, fields), **_watching(since, timeout_s)}
        path = _path(kind, Ref(namespace, ""))
        return self._events(path, query, lambda line: event_of(line, JsonObject))

    async def wait(
        self,
        kind: KindInfo[T],
        ref: Ref,
        condition: Callable[[T | None], bool],
        *,
        timeout_s: float,
    ) -> T | None:
        """The object (None: absent) as soon as the condition holds of it, else TimeoutError."""
        return await wait_for(self, kind, ref, condition, timeout_s=timeout_s)

    # --- writing

    async def create(
        self, kind: KindInfo[T], obj: T, *, dry_run: bool = False, with_status: bool = False
    ) -> T:
        """``with_status`` asks for its status to be kept; the answer shows whether it was."""
        path = _path(kind, Ref(obj.metadata.namespace, ""))
        query = {"dryRun": "All"} if dry_run else {}
        if with_status:
            query["withStatus"] = "true"
        body = encode(replace(obj, api_version=kind.api_version, kind=kind.kind))
        return object_of(await self._call("POST", path, body=body, query=query), kind.model)

    async def create_plain(
        self, kind: KindInfo[Any], obj: JsonObject, *, dry_run: bool = False, manager: str = ""
    ) -> JsonObject:
        path = _path(kind, Ref(obj["metadata"].get("namespace", ""), ""))
        query = _manner(dry_run, manager)
        return object_of(await self._call("POST", path, body=encode(obj), query=query), JsonObject)

    async def update(self, kind: KindInfo[T], obj: T) -> T:
        """Replace the object as it was read at its own version, or Conflict."""
        assert not kind.partial, f"{kind.kind} is known in part only: patch it"
        assert obj.metadata.resource_version, "an update carries the version it was read at"
        body = encode(manifest(kind, obj))
        response = await self._call("PUT", _path(kind, ref_of(obj)), body=body)
        return object_of(response, kind.model)

    async def update_plain(self, kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
        """Replace an object; its metadata must carry the version it was read at."""
        path = _path(kind, _plain_ref(obj))
        return object_of(await self._call("PUT", path, body=encode(obj)), JsonObject)

    async def apply(
        self, kind: KindInfo[T], obj: T, *, manager: str, force: bool = False, dry_run: bool = False
    ) -> T:
        """Make the fields of ``obj`` ours and drop those we no longer name (server-side apply)."""
        body = manifest(kind, obj)
        return object_of(await self._applied(kind, body, manager, force, dry_run), kind.model)

    async def apply_plain(
        self,
        kind: KindInfo[Any],
        obj: JsonObject,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> JsonObject:
        return object_of(await self._applied(kind, obj, manager, force, dry_run), JsonObject)

    async def patch(self, kind: KindInfo[T], ref: Ref, patch: Patch) -> T:
        """Merge patch for an object, JSON patch for a list of operations."""
        return object_of(await self._patched(_path(kind, ref), patch), kind.model)

    async def patch_plain(
        self,
        kind: KindInfo[Any],
        ref: Ref,
        patch: Patch,
        *,
        dry_run: bool = False,
        manager: str = "",
    ) -> JsonObject:
        query = _manner(dry_run, manager)
        return object_of(await self._patched(_path(kind, ref), patch, query), JsonObject)

    async def patch_status(
        self, kind: KindInfo[T], ref: Ref, status: JsonObject, *, version: str
    ) -> T:
        """Merge ``status`` into the status of the object as read at ``version``, or Conflict."""
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        return object_of(await self._patched(_path(kind, ref) + "/status", patch), kind.model)

    async def delete(
        self,
        kind: KindInfo[Any],
        ref: Ref,
        *,
        uid: str = "",
        version: str = "",
        policy: str = BACKGROUND,
        grace_s: int | None = None,
    ) -> str:
        """Delete, dependents as ``policy`` says; with ``uid`` or ``version`` only that very
        object. The version of what finalizers still hold; empty when it is gone."""
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", version)) if v}
        options: JsonObject = {"propagationPolicy": policy}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return version_of(await self._call("DELETE", _path(kind, ref), body=encode(options)))

    async def finalize_namespace(self, namespace: Namespace) -> None:
        """Release a terminating namespace that has been emptied."""
        body = {**manifest(NAMESPACE, namespace), "spec": {"finalizers": []}}
        path = _path(NAMESPACE, ref_of(namespace)) + "/finalize"
        await self._call("PUT", path, body=encode(body))

    # --- on the wire

    async def _listed(
        self,
        path: str,
        query: Mapping[str, str],
        page_size: int,
        read: Callable[[Response], Page[M]],
    ) -> ListResult[M]:
        for _ in range(_RESTARTS if page_size else 0):
            try:
                return await self._pages(path, {**query, "limit": str(page_size)}, read)
            except Expired:
                continue  # the snapshot behind the pages is gone: begin again
        return await self._pages(path, query, read)

    async def _pages(
        self, path: str, query: Mapping[str, str], read: Callable[[Response], Page[M]]
    ) -> ListResult[M]:
        page = read(await self._call("GET", path, query=query))
        # A watch that goes on from the first page's version misses nothing of the later ones.
        items, version = page.items, page.version
        while more := page.more:
            page = read(await self._call("GET", path, query={**query, "continue": more}))
            if page.more == more:
                raise InternalError("the server gives the same page of a list again and again")
            items += page.items
        return ListResult(items, version)

    async def _events(
        self, path: str, query: Mapping[str, str], read: Callable[[bytes], WatchEvent[M]]
    ) -> AsyncGenerator[WatchEvent[M], None]:
        try:
            async with asyncio.timeout(ANSWER_S):
                response = await self._call("GET", path, query=query)
        except TimeoutError:
            raise Unreachable(f"a watch was not answered within {ANSWER_S:g} s") from None
        if response.stream is None:
            raise InternalError("the server answered a watch with a body instead of a stream")
        async with aclosing(response.stream) as stream:
            async for line in lines_of(stream):
                yield read(line)

    async def _applied(
        self, kind: KindInfo[Any], obj: JsonObject, manager: str, force: bool, dry_run: bool
    ) -> Response:
        query = {"fieldManager": manager}
        if force:
            query["force"] = "true"
        if dry_run:
            query["dryRun"] = "All"
        return await self._call(
            "PATCH",
            _path(kind, _plain_ref(obj)),
            query=query,
            body=encode(obj),  # JSON is YAML
            content_type=APPLY_PATCH,
        )

    async def _patched(
        self, path: str, patch: Patch, query: Mapping[str, str] | None = None
    ) -> Response:
        content_type = MERGE_PATCH if isinstance(patch, dict) else JSON_PATCH
        body = encode(patch)
        try:
            return await self._call(
                "PATCH", path, body=body, content_type=content_type, query=query
            )
        except Invalid as error:
            # Another of its name: Kubernetes says so of a patch in other words than of a deletion.
            if isinstance(patch, dict) and any(c.field == "metadata.uid" for c in error.causes):
                raise Conflict(error.message, name=error.name, kind=error.kind) from error
            raise

    async def ask(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """The JSON at a path of the plane that is no object, such as those of the gateway."""
        return object_of(await self._call("GET", path, query=query), JsonObject)

    async def fetch(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """What is at a path of the plane, as it came."""
        return (await self._call("GET", path, query=query)).body

    async def tell(self, path: str, body: JsonObject) -> JsonObject:
        """The same for a question that has a body; nothing is stored by it."""
        return object_of(await self._call("POST", path, body=encode(body)), JsonObject)

    async def websocket(
        self, path: str, protocol: str, query: Mapping[str, str] | None = None
    ) -> WebSocket:
        """Messages with whoever answers at the path; that may end with a query of its own, for
        names that come more than once."""
        from datum_compute.client.transport.websocket import WebSocket, is_answer, question_headers

        asked = question_headers(protocol)
        request = Request("GET", self._prefix + path, query or {}, {**self._headers, **asked})
        response = await self._transport.send(request)
        if response.status >= 400:
            raise refusal_of(response)
        if response.duplex is None or not is_answer(asked, response.headers):
            raise InternalError("the server does not speak websocket here")
        return WebSocket(response.duplex, of_server=False)

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
        traceparent = TRACEPARENT.get()
        if traceparent:
            headers = {**headers, "traceparent": traceparent}
        request = Request(method, self._prefix + path, query or {}, headers, body)
        response = await self._transport.send(request)
        if response.status >= 400:
            raise refusal_of(response)
        return response


def manifest(kind: KindInfo[Any], obj: ApiObject) -> JsonObject:
    """The plain JSON of an object, with its apiVersion and kind."""
    return {**to_json(obj), "apiVersion": kind.api_version, "kind": kind.kind}


def _plain_ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _path(kind: KindInfo[Any], ref: Ref) -> str:
    assert kind.namespaced or not ref.namespace, f"{kind.kind} has no namespace"
    return kind.path(Ref(_segment(ref.namespace), _segment(ref.name)))


@lru_cache(maxsize=4096)  # the same objects are asked for again and again
def _segment(name: str) -> str:
    return quote(name, safe="")


def _manner(dry_run: bool, manager: str) -> dict[str, str]:
    """How a write is meant: only to be tried, and in whose name its fields are kept."""
    manner = {"dryRun": "All"} if dry_run else {}
    return {**manner, "fieldManager": manager} if manager else manner


def _selection(
    labels: Mapping[str, str] | None, fields: Mapping[str, str] | None
) -> dict[str, str]:
    chosen = (("labelSelector", labels), ("fieldSelector", fields))
    return {name: _selector(pairs) for name, pairs in chosen if pairs}


def _selector(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def _watching(since: str, timeout_s: int) -> dict[str, str]:
    return {
        "watch": "1",
        "resourceVersion": since,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(timeout_s),
    }
