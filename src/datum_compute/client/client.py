"""The client of one plane. Methods are typed by the kind; ``*_plain`` methods use plain JSON.

Rules:
- An object of a kind that is modeled only in part is patched or written as plain JSON. A typed
  write of the whole object would drop the other fields.
- A list returns all of its pages or raises an error.
- The transport retries and authenticates.
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
    warnings_of,
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
# How long the response headers of a watch may take. Its events have no limit.
ANSWER_S = 30.0
# How often a paged list starts over after its snapshot expired. After that, it omits the limit.
_RESTARTS = 2


class Client:
    """Requests to one plane, as one user; without a token the transport signs in.

    ``on_warning`` is called with each warning that the server adds to a response.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        prefix: str,
        token: str,
        agent: str,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._transport = transport
        self._on_warning = on_warning
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
        query = _selector_query(labels, fields)
        path = _path(kind, Ref(namespace, ""))
        return await self._list_pages(path, query, page_size, lambda r: page_of(r, kind.model))

    async def list_plain(
        self,
        kind: KindInfo[Any],
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        page_size: int = 0,
    ) -> ListResult[JsonObject]:
        query = _selector_query(labels, fields)
        path = _path(kind, Ref(namespace, ""))
        return await self._list_pages(path, query, page_size, lambda r: page_of(r, JsonObject))

    async def list_mapped(
        self,
        kind: KindInfo[T],
        keep: Callable[[T | UndecodableObject], K],
        *,
        page_size: int,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> ListResult[K]:
        """List one namespace or all, and return the result of ``keep`` for each object.

        ``keep`` is applied page by page, so that not all objects are in memory at once. It receives
        an UndecodableObject for an object that cannot be decoded.
        """

        def read_page(response: Response) -> Page[K]:
            page = page_with_unreadable(response, kind.model)
            return Page([keep(item) for item in page.items], page.version, page.more)

        query = _selector_query(labels, None)
        return await self._list_pages(_path(kind, Ref(namespace, "")), query, page_size, read_page)

    async def version(
        self,
        kind: KindInfo[Any],
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> str:
        """Return the current version of a list of the kind."""
        query = {**_selector_query(labels, fields), "limit": "1"}
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
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield the events after ``since`` until the server ends the stream. Raise ERROR events.

        ``on_open`` is called when the server has accepted the watch. ``client.watch.follow``
        resumes the stream instead of ending.
        """
        query = {**_selector_query(labels, fields), **_watch_query(since, timeout_s)}
        path = _path(kind, Ref(namespace, ""))
        return self._events(path, query, lambda line: event_of(line, kind.model), on_open)

    def watch_lenient(
        self,
        kind: KindInfo[T],
        since: str,
        *,
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        timeout_s: int = WATCH_S,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[T | UndecodableObject], None]:
        """Watch one namespace or all. An object that cannot be decoded is an UndecodableObject."""
        query = {**_selector_query(labels, None), **_watch_query(since, timeout_s)}
        path = _path(kind, Ref(namespace, ""))
        return self._events(
            path, query, lambda line: event_with_unreadable(line, kind.model), on_open
        )

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
        query = {**_selector_query(labels, fields), **_watch_query(since, timeout_s)}
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
        """Return the object (None: absent) when the condition holds, or raise TimeoutError."""
        return await wait_for(self, kind, ref, condition, timeout_s=timeout_s)

    # --- writing

    async def create(
        self, kind: KindInfo[T], obj: T, *, dry_run: bool = False, with_status: bool = False
    ) -> T:
        """Create the object and return it as stored.

        With ``with_status``, the server also stores the status if the user may write it.
        """
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
        query = _write_query(dry_run, manager)
        return object_of(await self._call("POST", path, body=encode(obj), query=query), JsonObject)

    async def update(self, kind: KindInfo[T], obj: T) -> T:
        """Replace the object. Raise Conflict if its version is not the current one."""
        assert not kind.partial, f"{kind.kind} is modeled only in part: use a patch"
        assert obj.metadata.resource_version, "an update requires a resourceVersion"
        body = encode(manifest(kind, obj))
        response = await self._call("PUT", _path(kind, ref_of(obj)), body=body)
        return object_of(response, kind.model)

    async def update_plain(self, kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
        """Replace an object. Its metadata must contain a resourceVersion."""
        path = _path(kind, _plain_ref(obj))
        return object_of(await self._call("PUT", path, body=encode(obj)), JsonObject)

    async def apply(
        self, kind: KindInfo[T], obj: T, *, manager: str, force: bool = False, dry_run: bool = False
    ) -> T:
        """Server-side apply: own the fields of ``obj`` and remove those that it no longer has."""
        body = manifest(kind, obj)
        return object_of(await self._send_apply(kind, body, manager, force, dry_run), kind.model)

    async def apply_plain(
        self,
        kind: KindInfo[Any],
        obj: JsonObject,
        *,
        manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> JsonObject:
        return object_of(await self._send_apply(kind, obj, manager, force, dry_run), JsonObject)

    async def patch(self, kind: KindInfo[T], ref: Ref, patch: Patch) -> T:
        """Send an object as merge patch, and a list of operations as JSON patch."""
        return object_of(await self._send_patch(_path(kind, ref), patch), kind.model)

    async def patch_plain(
        self,
        kind: KindInfo[Any],
        ref: Ref,
        patch: Patch,
        *,
        dry_run: bool = False,
        manager: str = "",
    ) -> JsonObject:
        query = _write_query(dry_run, manager)
        return object_of(await self._send_patch(_path(kind, ref), patch, query), JsonObject)

    async def patch_status(
        self, kind: KindInfo[T], ref: Ref, status: JsonObject, *, version: str
    ) -> T:
        """Merge ``status`` into the status. Raise Conflict if ``version`` is outdated."""
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        return object_of(await self._send_patch(_path(kind, ref) + "/status", patch), kind.model)

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
        """Delete the object. ``policy`` decides what happens to its dependents.

        With ``uid`` or ``version``, the object must match. Return the version of the terminating
        object if it has finalizers, or an empty string if it is removed.
        """
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", version)) if v}
        options: JsonObject = {"propagationPolicy": policy}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return version_of(await self._call("DELETE", _path(kind, ref), body=encode(options)))

    async def finalize_namespace(self, namespace: Namespace) -> None:
        """Remove the finalizers of a terminating namespace without objects."""
        body = {**manifest(NAMESPACE, namespace), "spec": {"finalizers": []}}
        path = _path(NAMESPACE, ref_of(namespace)) + "/finalize"
        await self._call("PUT", path, body=encode(body))

    # --- on the wire

    async def _list_pages(
        self,
        path: str,
        query: Mapping[str, str],
        page_size: int,
        read: Callable[[Response], Page[M]],
    ) -> ListResult[M]:
        for _ in range(_RESTARTS if page_size else 0):
            try:
                return await self._list_once(path, {**query, "limit": str(page_size)}, read)
            except Expired:
                continue  # the snapshot of the pages has expired
        return await self._list_once(path, query, read)

    async def _list_once(
        self, path: str, query: Mapping[str, str], read: Callable[[Response], Page[M]]
    ) -> ListResult[M]:
        page = read(await self._call("GET", path, query=query))
        # All pages have the version of the first, so a watch from there misses no change.
        items, version = page.items, page.version
        while more := page.more:
            page = read(await self._call("GET", path, query={**query, "continue": more}))
            if page.more == more:
                raise InternalError("the server repeats a page of a list")
            items += page.items
        return ListResult(items, version)

    async def _events(
        self,
        path: str,
        query: Mapping[str, str],
        read: Callable[[bytes], WatchEvent[M]],
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[M], None]:
        try:
            async with asyncio.timeout(ANSWER_S):
                response = await self._call("GET", path, query=query)
        except TimeoutError:
            raise Unreachable(f"a watch was not answered within {ANSWER_S:g} s") from None
        if response.stream is None:
            raise InternalError("the server answered a watch with a body instead of a stream")
        if on_open is not None:
            on_open()
        async with aclosing(response.stream) as stream:
            async for line in lines_of(stream):
                yield read(line)

    async def _send_apply(
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

    async def _send_patch(
        self, path: str, patch: Patch, query: Mapping[str, str] | None = None
    ) -> Response:
        content_type = MERGE_PATCH if isinstance(patch, dict) else JSON_PATCH
        body = encode(patch)
        try:
            return await self._call(
                "PATCH", path, body=body, content_type=content_type, query=query
            )
        except Invalid as error:
            # Another object has this name. Kubernetes reports this as Invalid, not Conflict.
            if isinstance(patch, dict) and any(c.field == "metadata.uid" for c in error.causes):
                raise Conflict(error.message, name=error.name, kind=error.kind) from error
            raise

    async def get_raw(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Return the JSON at a path that is not an object of a kind, such as one of the gateway."""
        return object_of(await self._call("GET", path, query=query), JsonObject)

    async def get_bytes(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the response body at a path of the plane."""
        return (await self._call("GET", path, query=query)).body

    async def post_raw(self, path: str, body: JsonObject) -> JsonObject:
        """Post JSON to a path that is not an object of a kind, and return the JSON response."""
        return object_of(await self._call("POST", path, body=encode(body)), JsonObject)

    async def websocket(
        self, path: str, protocol: str, query: Mapping[str, str] | None = None
    ) -> WebSocket:
        """Open a websocket. The path may contain a query, for parameters that occur repeatedly."""
        from datum_compute.client.transport.websocket import (
            WebSocket,
            accepts_upgrade,
            client_handshake,
        )

        handshake = client_handshake(protocol)
        request = Request("GET", self._prefix + path, query or {}, {**self._headers, **handshake})
        response = await self._transport.send(request)
        if response.status >= 400:
            raise refusal_of(response)
        if response.duplex is None or not accepts_upgrade(handshake, response.headers):
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
        if self._on_warning is not None:
            for text in warnings_of(response):
                self._on_warning(text)
        if response.status >= 400:
            raise refusal_of(response)
        return response


def manifest(kind: KindInfo[Any], obj: ApiObject) -> JsonObject:
    """Return the JSON of an object, with its apiVersion and kind."""
    return {**to_json(obj), "apiVersion": kind.api_version, "kind": kind.kind}


def _plain_ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _path(kind: KindInfo[Any], ref: Ref) -> str:
    assert kind.namespaced or not ref.namespace, f"{kind.kind} has no namespace"
    return kind.path(Ref(_segment(ref.namespace), _segment(ref.name)))


@lru_cache(maxsize=4096)  # the same names are requested repeatedly
def _segment(name: str) -> str:
    return quote(name, safe="")


def _write_query(dry_run: bool, manager: str) -> dict[str, str]:
    query = {"dryRun": "All"} if dry_run else {}
    return {**query, "fieldManager": manager} if manager else query


def _selector_query(
    labels: Mapping[str, str] | None, fields: Mapping[str, str] | None
) -> dict[str, str]:
    chosen = (("labelSelector", labels), ("fieldSelector", fields))
    return {name: _selector(pairs) for name, pairs in chosen if pairs}


def _selector(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def _watch_query(since: str, timeout_s: int) -> dict[str, str]:
    return {
        "watch": "1",
        "resourceVersion": since,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(timeout_s),
    }
