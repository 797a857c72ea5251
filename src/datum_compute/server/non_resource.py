"""Responds to paths outside of resources: discovery, OpenAPI, metrics, health and backup.

To add a path: write a handler and list it in ``NonResourceHandlers``. Health and version respond
without credentials, so ``api_server.py`` handles them before authentication.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from datum_compute.api.errors import MethodNotAllowed
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.server.discovery.discovery import HEALTH_PATHS, discovery_response
from datum_compute.server.discovery.openapi import openapi_v2_response
from datum_compute.server.discovery.plane_resources import PlaneResources
from datum_compute.server.encoding.responses import json_response, page_not_found
from datum_compute.server.metrics import METRICS_PATH, ServerMetrics
from datum_compute.server.routing import check_subresource
from datum_compute.store.dump import encode_dump
from datum_compute.store.store import Store

READ_METHODS = ("GET", "HEAD")
BACKUP_PATH = "/backup"
BACKUP_CONTENT_TYPE = "application/jsonl"
_INDEX = ["/api", "/apis", *HEALTH_PATHS, METRICS_PATH, "/openapi/v2", "/openapi/v3"]


class NonResourceRequest(msgspec.Struct, frozen=True):
    """An authorized request for a path of a plane."""

    http: Request
    plane: PlaneName
    path: str
    resources: PlaneResources


# Returns None for the paths of other handlers.
NonResourceHandler = Callable[[NonResourceRequest], Response | None]


class NonResourceHandlers:
    def __init__(self, store: Store, metrics: ServerMetrics) -> None:
        self._store = store
        self._metrics = metrics
        self._handlers: tuple[NonResourceHandler, ...] = (
            _index,
            _discovery,
            _openapi,
            self._metrics_page,
            self._backup,
        )

    def respond(self, request: NonResourceRequest) -> Response:
        for handler in self._handlers:
            response = handler(request)
            if response is not None:
                break
        else:
            check_subresource(request.resources.registry, request.path)
            return page_not_found()
        if request.http.method == "OPTIONS":
            return allowed_methods(READ_METHODS)
        if request.http.method not in READ_METHODS:
            raise method_not_allowed(request.http.method)
        return response

    def _metrics_page(self, request: NonResourceRequest) -> Response | None:
        """Return the metrics of the process, on the platform plane. In a process without it, every
        plane has them."""
        if request.path != METRICS_PATH:
            return None
        if request.plane != PLATFORM and self._store.has_plane(PLATFORM):
            return None
        return self._metrics.page()

    def _backup(self, request: NonResourceRequest) -> Response | None:
        """Return all objects of all planes, as of one moment.

        Only the process that has the database open can read it, so a running server creates its
        own backup. Writes continue meanwhile: stored bodies are replaced, never changed. The backup
        contains Secrets. No role names the path, so only users with all permissions can read it,
        and discovery does not list it. It is served on the platform plane or, in a process without
        it, on its only plane.
        """
        if request.path != BACKUP_PATH or request.http.method != "GET":
            return None
        has_platform = self._store.has_plane(PLATFORM)
        process_planes = [PLATFORM] if has_platform else self._store.planes()
        if process_planes != [request.plane]:
            return None
        return Response(
            200, encode_dump(self._store.snapshot_all()), content_type=BACKUP_CONTENT_TYPE
        )


def _index(request: NonResourceRequest) -> Response | None:
    return json_response({"paths": _INDEX}) if request.path == "/" else None


def _discovery(request: NonResourceRequest) -> Response | None:
    return discovery_response(request.resources.registry, request.http, request.path)


def _openapi(request: NonResourceRequest) -> Response | None:
    document = request.resources.openapi.respond(request.plane, request.path)
    return document or openapi_v2_response(request.http, request.path)


def allowed_methods(methods: Iterable[str]) -> Response:
    """Return the response to OPTIONS."""
    return Response(200, b"", headers={"allow": ", ".join(methods)})


def method_not_allowed(method: str, hint: str = "") -> MethodNotAllowed:
    message = f"the server does not allow this method on the requested resource: {method[:20]}"
    return MethodNotAllowed(f"{message}; {hint}" if hint else message)
