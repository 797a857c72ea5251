"""GET of a list with ``watch``: the state or a version to start from, then every change.

Without a version (or with 0) a watch begins with the present objects as ADDED events; with
``sendInitialEvents`` a bookmark says where those end. A version that is no longer known, or never
was, gives one ERROR event with code 410, after which clients list again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from datum_compute.api.errors import Expired, Invalid, ServiceUnavailable
from datum_compute.api.http import Response
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.representation import representation_of
from datum_compute.server.encoding.request_options import choice, flag, number
from datum_compute.server.encoding.responses import field_forbidden
from datum_compute.server.encoding.selectors import build_matcher, build_wake_filter
from datum_compute.server.routing import ResourceRequest
from datum_compute.server.verbs.event_encoder import WatchEventEncoder, error_line
from datum_compute.server.verbs.read import EXACT, NOT_OLDER, check_reached
from datum_compute.server.verbs.watch_stream import WatchSource, WatchStream
from datum_compute.store.store import Snapshot

TIMEOUT_S = 45 * 60
TIMEOUT_MAX_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class _Start:
    """``since`` is None for a watch that begins with the present state."""

    since: int | None
    marks_end: bool


async def watch(
    ports: ServerContext, call: ResourceRequest, timeout_max_s: float = TIMEOUT_MAX_S
) -> Response:
    if ports.streams.closed:
        raise ServiceUnavailable("the server is shutting down", retry_after_s=1)
    shown = representation_of(call, ports.clock)
    matches = build_matcher(call.served, call.query, namespace=call.route.namespace)
    asked_s = number(call.query, "timeoutSeconds") or TIMEOUT_S
    timeout_s = min(asked_s, TIMEOUT_MAX_S, timeout_max_s)
    start = _start(ports, call)
    lines = WatchEventEncoder(shown, matches, call.served.conversion, ports.encoder)
    initial: Iterator[bytes] = iter(())
    since = start.since
    if since is None:
        snapshot = ports.store.snapshot(call.plane, call.kind.storage, call.route.namespace or None)
        snapshot = ports.own.added_to(snapshot, call.kind.storage)
        initial, since = _initial(lines, snapshot, marks_end=start.marks_end), snapshot.version
    stream: WatchStream
    try:
        source = _source(ports, call, since, timeout_s)
        stream = WatchStream(initial, source, lines, ports.streams, call.work)
    except Expired as error:
        failed = iter((error_line(error),))
        stream = WatchStream(failed, None, lines, ports.streams, call.work)
    return Response(200, stream=stream)


def _start(ports: ServerContext, call: ResourceRequest) -> _Start:
    version = number(call.query, "resourceVersion")
    match = choice(call.query, "resourceVersionMatch", (EXACT, NOT_OLDER))
    asked = "sendInitialEvents" in call.query
    if match and not asked:
        raise _forbidden(
            "resourceVersionMatch", "is forbidden for watch unless sendInitialEvents is provided"
        )
    if asked and match != NOT_OLDER:
        raise _forbidden(
            "resourceVersionMatch", "must be NotOlderThan when sendInitialEvents is provided"
        )
    if asked and flag(call.query, "sendInitialEvents"):
        check_reached(ports.store, call.plane, version or 0)
        return _Start(None, marks_end=flag(call.query, "allowWatchBookmarks"))
    if not version:
        return _Start(ports.store.version(call.plane) if asked else None, marks_end=False)
    return _Start(version, marks_end=False)


def _initial(lines: WatchEventEncoder, snapshot: Snapshot, *, marks_end: bool) -> Iterator[bytes]:
    yield from map(lines.added, snapshot.records)
    if marks_end:
        yield lines.bookmark(snapshot.version, initial_events_end=True)


def _source(
    ports: ServerContext, call: ResourceRequest, since: int, timeout_s: float
) -> WatchSource:
    store, plane = ports.store, call.plane
    concerns = build_wake_filter(call.query, namespace=call.route.namespace)
    return WatchSource(
        watch=store.watch(plane, call.kind.storage, since, concerns),
        version=lambda: store.version(plane),
        timeout_s=timeout_s,
        bookmarks=flag(call.query, "allowWatchBookmarks"),
    )


def _forbidden(field: str, why: str) -> Invalid:
    return Invalid(f"{field} {why}", causes=[field_forbidden(field, why)])
