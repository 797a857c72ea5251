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
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import choice, flag, number
from datum_compute.server.encoding.responses import field_forbidden
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.event_encoder import WatchEventEncoder, error_line
from datum_compute.server.verbs.read import EXACT, NOT_OLDER, check_reached
from datum_compute.server.verbs.watch_stream import WatchSource, WatchStream
from datum_compute.store.store import Snapshot
from datum_compute.store.watch_log import EventFilter

TIMEOUT_S = 45 * 60
TIMEOUT_MAX_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class _Start:
    """``since`` is None for a watch that begins with the present state."""

    since: int | None
    marks_end: bool


async def watch(
    context: ServerContext, request: ApiRequest, timeout_max_s: float = TIMEOUT_MAX_S
) -> Response:
    if context.long_requests.closed:
        raise ServiceUnavailable("the server is shutting down", retry_after_s=1)
    representation = select_representation(request.kind, request.http, context.clock)
    selection = request.parse_selection()
    asked_s = number(request.query, "timeoutSeconds") or TIMEOUT_S
    timeout_s = min(asked_s, TIMEOUT_MAX_S, timeout_max_s)
    start = _start(context, request)
    lines = WatchEventEncoder(
        representation, selection.matches, request.resource.conversion, context.encoder
    )
    initial: Iterator[bytes] = iter(())
    since = start.since
    if since is None:
        snapshot = context.store.snapshot(
            request.plane, request.kind.storage, request.route.namespace or None
        )
        snapshot = context.builtin_definitions.added_to(snapshot, request.kind.storage)
        initial, since = _initial(lines, snapshot, marks_end=start.marks_end), snapshot.version
    stream: WatchStream
    try:
        source = _source(context, request, since, selection.wake_filter, timeout_s)
        stream = WatchStream(initial, source, lines, context.long_requests, request.work)
    except Expired as error:
        failed = iter((error_line(error),))
        stream = WatchStream(failed, None, lines, context.long_requests, request.work)
    return Response(200, stream=stream)


def _start(context: ServerContext, request: ApiRequest) -> _Start:
    version = number(request.query, "resourceVersion")
    match = choice(request.query, "resourceVersionMatch", (EXACT, NOT_OLDER))
    asked = "sendInitialEvents" in request.query
    if match and not asked:
        raise _forbidden(
            "resourceVersionMatch", "is forbidden for watch unless sendInitialEvents is provided"
        )
    if asked and match != NOT_OLDER:
        raise _forbidden(
            "resourceVersionMatch", "must be NotOlderThan when sendInitialEvents is provided"
        )
    if asked and flag(request.query, "sendInitialEvents"):
        check_reached(context.store, request.plane, version or 0)
        return _Start(None, marks_end=flag(request.query, "allowWatchBookmarks"))
    if not version:
        return _Start(context.store.version(request.plane) if asked else None, marks_end=False)
    return _Start(version, marks_end=False)


def _initial(lines: WatchEventEncoder, snapshot: Snapshot, *, marks_end: bool) -> Iterator[bytes]:
    yield from map(lines.added, snapshot.records)
    if marks_end:
        yield lines.bookmark(snapshot.version, initial_events_end=True)


def _source(
    context: ServerContext,
    request: ApiRequest,
    since: int,
    wake_filter: EventFilter | None,
    timeout_s: float,
) -> WatchSource:
    store, plane = context.store, request.plane
    return WatchSource(
        watch=store.watch(plane, request.kind.storage, since, wake_filter),
        version=lambda: store.version(plane),
        timeout_s=timeout_s,
        bookmarks=flag(request.query, "allowWatchBookmarks"),
    )


def _forbidden(field: str, why: str) -> Invalid:
    return Invalid(f"{field} {why}", causes=[field_forbidden(field, why)])
