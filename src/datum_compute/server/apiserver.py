"""One request from start to end: plane, authentication, authorisation, verb, answer.

Everything that is not an ApiError is a defect: it is logged here, and the caller gets a plain
500 that tells nothing of the inside.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api.errors import ApiError, BadRequest, InternalError, MethodNotAllowed
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import KINDS
from datum_compute.api.meta import KindInfo
from datum_compute.api.plane import PlaneName, split_path
from datum_compute.server.answer import error_answer, json_answer, page_not_found
from datum_compute.server.authentication import Authenticator, User
from datum_compute.server.authorization import authorize
from datum_compute.server.call import Call
from datum_compute.server.catalogue import Catalogue
from datum_compute.server.catalogues import Catalogues, PlaneApi
from datum_compute.server.create import create
from datum_compute.server.creations import CreationsUnderWay
from datum_compute.server.definitions import is_definition
from datum_compute.server.delete import delete, delete_collection
from datum_compute.server.discovery import discovery_answer
from datum_compute.server.fieldvalidation import warning_header
from datum_compute.server.health import PATHS, health_answer
from datum_compute.server.holdings import PlaneHoldings
from datum_compute.server.options import flag
from datum_compute.server.owndefinitions import OwnDefinitions
from datum_compute.server.patch import patch
from datum_compute.server.ports import Ports
from datum_compute.server.read import get, list_objects
from datum_compute.server.route import Route, find_route
from datum_compute.server.streams import OpenStreams
from datum_compute.server.update import update
from datum_compute.server.watch import watch
from datum_compute.store.store import Store

logger = logging.getLogger(__name__)

_READS = ("GET", "HEAD")


def always_ready() -> bool:
    return True


class ApiServer:
    """All planes of a store. Waits only for the store, and takes time and ids from outside."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        new_uid: Callable[[], str],
        new_suffix: Callable[[], str],
        authenticator: Authenticator,
        is_ready: Callable[[], bool] = always_ready,
        kinds: Iterable[KindInfo[Any]] = KINDS,
    ) -> None:
        kinds = tuple(kinds)
        own = OwnDefinitions(kinds, clock())
        self._ports = Ports(
            store, clock, new_uid, new_suffix, OpenStreams(), CreationsUnderWay(), own
        )
        self._authenticator = authenticator
        self._is_ready = is_ready
        self._catalogues = Catalogues(store, kinds)
        self._definition_writes = asyncio.Lock()

    @property
    def streams(self) -> OpenStreams:
        return self._ports.streams

    def holdings(self, plane: PlaneName) -> PlaneHoldings:
        """What a plane holds, for those who clean up in this process."""
        return PlaneHoldings(
            self._ports.store, plane, lambda plane: self._catalogues.of(plane).catalogue
        )

    def close_streams(self) -> None:
        """End every watch and refuse new ones; call it when shutdown begins."""
        self._ports.streams.close()

    async def dispatch(self, request: Request) -> Response:
        try:
            _check_text(request)
            return await self._answer(request)
        except ApiError as error:
            return error_answer(error)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return error_answer(InternalError("an internal error occurred; the log has details"))

    async def _answer(self, request: Request) -> Response:
        plane, path = split_path(request.path)
        path = path.removesuffix("/") or "/"  # kr8s asks for /version/, as Kubernetes allows
        if path in PATHS and request.method in _READS:
            self._check_health_caller(request, plane)
            return health_answer(path, self._is_ready)
        user = self._authenticator.user_of(request.headers)
        # Whoever may not reach a plane learns nothing of the kinds it has defined.
        reachable = user.may_reach(plane)
        served = self._catalogues.of(plane) if reachable else self._catalogues.platform
        route = find_route(served.catalogue, path)
        verb = _verb(request, route)
        authorize(user, plane, verb, route, path)
        self._ports.store.version(plane)  # raises NotFound when there is no such plane
        if route is None:
            return self._non_resource(served, request, plane, path)
        call = Call(user, plane, route, request)
        if is_definition(call.kind) and request.method not in _READS:
            # One after the other, so that two cannot be promised the same name.
            async with self._definition_writes:
                return await self._resource(verb, served.catalogue, call)
        return _warned(await self._resource(verb, served.catalogue, call), call.kind.deprecation)

    def _check_health_caller(self, request: Request, plane: PlaneName) -> None:
        """Anonymous callers learn how the process is; those who may see the plane, whether it
        is there at all."""
        if "authorization" not in request.headers:
            return
        user: User = self._authenticator.user_of(request.headers)
        if user.may_reach(plane):
            self._ports.store.version(plane)

    def _non_resource(
        self, served: PlaneApi, request: Request, plane: PlaneName, path: str
    ) -> Response:
        found = discovery_answer(served.catalogue, request, path) or served.openapi.answer(
            plane, path
        )
        if path == "/":
            found = json_answer({"paths": ["/api", "/apis", *PATHS, "/openapi/v3"]})
        if found is None:
            return page_not_found()
        if request.method == "OPTIONS":
            return _allowed(_READS)
        if request.method not in _READS:
            raise _not_allowed(request.method)
        return found

    async def _resource(self, verb: str, catalogue: Catalogue, call: Call) -> Response:
        ports = self._ports
        handlers: dict[str, Callable[[], Awaitable[Response]]] = {
            "get": lambda: get(ports, call),
            "list": lambda: list_objects(ports, call),
            "watch": lambda: watch(ports, call),
            "create": lambda: create(ports, catalogue, call),
            "update": lambda: update(ports, catalogue, call),
            "patch": lambda: patch(ports, catalogue, call),
            "delete": lambda: delete(ports, catalogue, call),
            "deletecollection": lambda: delete_collection(ports, catalogue, call),
        }
        handler = handlers.get(verb)
        if handler is not None:
            return await handler()
        methods = tuple(call.route.verbs_by_method)
        if call.request.method == "OPTIONS":
            return _allowed(methods)
        answer = error_answer(_not_allowed(call.request.method))
        return dataclasses.replace(answer, headers={"allow": ", ".join(methods)})


def _warned(response: Response, deprecation: str) -> Response:
    """The answer with a warning for users of a deprecated version."""
    if not deprecation:
        return response
    told = [warning_header([deprecation]), response.headers.get("warning", "")]
    headers = {**response.headers, "warning": ", ".join(filter(None, told))}
    return dataclasses.replace(response, headers=headers)


def _verb(request: Request, route: Route | None) -> str:
    """The Kubernetes verb; for a method that the route does not answer, the method itself."""
    method = "GET" if request.method == "HEAD" else request.method
    if route is None:
        return method.lower()
    verb = route.verbs_by_method.get(method, method.lower())
    if verb == "list" and request.method == "GET" and flag(request.query, "watch"):
        return "watch"
    # A method such as DELETE must not pass for the verb of the same name.
    return verb if method in route.verbs_by_method else f"{method.lower()} (not allowed)"


def _check_text(request: Request) -> None:
    """Half a surrogate pair has no bytes; it must not get into an error or an object."""
    query, headers = request.query, request.headers
    try:
        "".join((request.path, *query, *query.values(), *headers.values())).encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the path, the query or a header is not valid text") from error


def _allowed(methods: Iterable[str]) -> Response:
    return Response(200, b"", headers={"allow": ", ".join(methods)})


def _not_allowed(method: str) -> MethodNotAllowed:
    return MethodNotAllowed(
        f"the server does not allow this method on the requested resource: {method[:20]}"
    )
