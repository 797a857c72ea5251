"""Watches: GET of a list with ``watch``.

Without a resourceVersion, or with 0, a watch starts with an ADDED event for each object; with
``sendInitialEvents`` a bookmark marks their end. If the watch log no longer contains the version,
the response is one ERROR event with code 410, and the client lists again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from datum_compute.api.errors import Cause, Expired, Invalid, ServiceUnavailable
from datum_compute.api.http import Response
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import parse_choice, parse_flag, parse_number
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
    """Where a watch starts. If ``since`` is None, it starts with an ADDED event for each object,
    and if ``marks_end``, a bookmark follows these events."""

    since: int | None
    marks_end: bool


async def watch(
    context: ServerContext, request: ApiRequest, timeout_max_s: float = TIMEOUT_MAX_S
) -> Response:
    if context.long_requests.is_closed:
        raise ServiceUnavailable("the server is shutting down", retry_after_s=1)
    representation = select_representation(request.kind, request.http, context.clock)
    selection = request.parse_selection()
    requested_s = parse_number(request.query, "timeoutSeconds") or TIMEOUT_S
    timeout_s = min(requested_s, TIMEOUT_MAX_S, timeout_max_s)
    start = _parse_start(context, request)
    encoder = WatchEventEncoder(
        representation, selection.matches, request.resource.conversion, context.encoder
    )
    initial: Iterator[bytes] = iter(())
    since = start.since
    if since is None:
        snapshot = context.store.snapshot(
            request.plane, request.kind.storage, request.route.namespace or None
        )
        snapshot = context.builtin_definitions.add_to(snapshot, request.kind.storage)
        initial, since = (
            _encode_initial(encoder, snapshot, marks_end=start.marks_end),
            snapshot.version,
        )
    stream: WatchStream
    try:
        source = _build_source(context, request, since, selection.wake_filter, timeout_s)
        stream = WatchStream(initial, source, encoder, context.long_requests, request.work)
    except Expired as error:
        error_lines = iter((error_line(error),))
        stream = WatchStream(error_lines, None, encoder, context.long_requests, request.work)
    return Response(200, stream=stream)


def _parse_start(context: ServerContext, request: ApiRequest) -> _Start:
    version = parse_number(request.query, "resourceVersion")
    match = parse_choice(request.query, "resourceVersionMatch", (EXACT, NOT_OLDER))
    has_initial_events = "sendInitialEvents" in request.query
    if match and not has_initial_events:
        raise _forbidden(
            "resourceVersionMatch", "is forbidden for watch unless sendInitialEvents is provided"
        )
    if has_initial_events and match != NOT_OLDER:
        raise _forbidden(
            "resourceVersionMatch", "must be NotOlderThan when sendInitialEvents is provided"
        )
    if has_initial_events and parse_flag(request.query, "sendInitialEvents"):
        check_reached(context.store, request.plane, version or 0)
        return _Start(None, marks_end=parse_flag(request.query, "allowWatchBookmarks"))
    if not version:
        return _Start(
            context.store.version(request.plane) if has_initial_events else None, marks_end=False
        )
    return _Start(version, marks_end=False)


def _encode_initial(
    encoder: WatchEventEncoder, snapshot: Snapshot, *, marks_end: bool
) -> Iterator[bytes]:
    yield from map(encoder.encode_existing, snapshot.records)
    if marks_end:
        yield encoder.encode_bookmark(snapshot.version, initial_events_end=True)


def _build_source(
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
        bookmarks=parse_flag(request.query, "allowWatchBookmarks"),
    )


def _forbidden(field: str, why: str) -> Invalid:
    return Invalid(f"{field} {why}", causes=[Cause.forbidden(field, why)])
