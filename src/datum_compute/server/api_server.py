"""One request from start to end: plane, authentication, authorisation, verb, answer.

Everything that is not an ApiError is a defect: it is logged here, and the caller gets a plain
500 that tells nothing of the inside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    Unauthorized,
)
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import KINDS
from datum_compute.api.membership import CELL_JOIN
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PLATFORM, PlaneName, split_path
from datum_compute.server.access.attributes import Attributes, attributes_of
from datum_compute.server.access.audit import AuditContext, Auditor, AuditSink, discard
from datum_compute.server.access.authentication import Authenticator, User, authenticated
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.cell_join import (
    REGISTRAR,
    CellJoinHandler,
    Certify,
    authenticate_join_token,
)
from datum_compute.server.access.request_authenticator import (
    Principal,
    RequestAuthenticator,
    has_credentials,
)
from datum_compute.server.access.reviews import ReviewHandler, review, token_request
from datum_compute.server.access.service_accounts import AccountTokens, TokenSigner
from datum_compute.server.access.watch_limits import PER_USER_MAX, OpenWatches
from datum_compute.server.context import InFlightCreates, ServerContext
from datum_compute.server.discovery.builtin_definitions import BuiltinDefinitions
from datum_compute.server.discovery.discovery import PATHS, discovery_answer, health_answer
from datum_compute.server.discovery.openapi import openapi_v2_answer
from datum_compute.server.discovery.plane_resources import PlaneRegistries, PlaneResources
from datum_compute.server.discovery.resources import ResourceRegistry
from datum_compute.server.encoding.request_options import flag, warning_header
from datum_compute.server.encoding.responses import error_answer, json_answer, page_not_found
from datum_compute.server.flowcontrol.control import (
    FlowControl,
    FlowLimits,
    LoopWork,
    run_measured,
    stopped_clock,
)
from datum_compute.server.inventory import COLLECTOR, PlaneInventory
from datum_compute.server.metrics import METRICS_PATH, ServerMetrics
from datum_compute.server.routing import ResourceRequest, Route, check_subresource, find_route
from datum_compute.server.verbs.create import create
from datum_compute.server.verbs.definitions import is_definition
from datum_compute.server.verbs.delete import delete, delete_collection
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.server.verbs.patch import patch
from datum_compute.server.verbs.read import get, list_objects
from datum_compute.server.verbs.update import update
from datum_compute.server.verbs.watch import watch
from datum_compute.server.verbs.watch_stream import WatchStream
from datum_compute.store.dump import dumped
from datum_compute.store.store import Store
from datum_compute.telemetry.context import REQUEST_ID, Tracer

# --- ``GET /backup``: everything the process holds, as of one moment over all its planes
# The database belongs to the process that serves it (store/sqlite.py), so a platform that runs
# makes its backup itself. Writes go on meanwhile: the moment is that of the answer, and bodies are
# never
# changed, only replaced.
#
# Secrets are in it. No role names the path; only those who may do everything may ask, on the
# platform plane, or on its one plane where a process serves a cell of its own. Discovery does not
# tell of
# it.


BACKUP_PATH = "/backup"
CONTENT_TYPE = "application/jsonl"


def is_home(store: Store, plane: PlaneName) -> bool:
    """Whether a process is asked as a whole through this plane."""
    planes = store.planes()
    return plane == PLATFORM if PLATFORM in planes else planes == [plane]


def backup_answer(store: Store) -> Response:
    return Response(200, dumped(store.contents()), content_type=CONTENT_TYPE)


# --- apiserver


logger = logging.getLogger(__name__)

_READS = ("GET", "HEAD")
_NOT_ALLOWED = " (not allowed)"  # after a method that is no verb of the route
_HANDLERS: Mapping[
    str, Callable[[ServerContext, ResourceRegistry, ResourceRequest], Awaitable[Response]]
] = {
    "get": lambda ports, _, call: get(ports, call),
    "list": lambda ports, _, call: list_objects(ports, call),
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}


def always() -> bool:
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
        is_ready: Callable[[], bool] = always,
        signer: TokenSigner | None = None,
        audit: AuditSink = discard,
        new_request_id: Callable[[], str] | None = None,
        watches_per_user_max: int = PER_USER_MAX,
        metrics: ServerMetrics | None = None,
        tracer: Tracer | None = None,
        kinds: Iterable[KindInfo[Any]] = KINDS,
        deprecation_grace_s: float = DEPRECATION_GRACE_S,
        certify: Certify | None = None,
        work_s: Callable[[], float] = stopped_clock,
        flow_limits: FlowLimits | None = None,
    ) -> None:
        kinds = tuple(kinds)
        own = BuiltinDefinitions(kinds, clock())
        self._catalogues = PlaneRegistries(store, kinds)
        self._definition_writes = asyncio.Lock()
        self._watches = OpenWatches(watches_per_user_max)
        self._auditor = Auditor(audit, clock, new_request_id or _counted())
        self._metrics = metrics or ServerMetrics(CollectorRegistry())
        self._metrics.watch_open_watches(self._watches.__len__)
        self._metrics.watch_store(store)
        self._flows = FlowControl(work_s, flow_limits)
        self._metrics.watch_flows(self._flows)
        self._tracer = tracer
        groups = self._catalogues.platform.catalogue.groups()
        authorizer = Authorizer(store, groups, self._watches.grants_changed)
        self._accounts = AccountTokens(store, signer, clock) if signer is not None else None
        self._gate = RequestAuthenticator(
            authenticator,
            authorizer,
            self._accounts,
            clock,
            partial(authenticate_join_token, store),
        )
        self._desk = ReviewHandler(self._gate, authorizer)
        self._joins = CellJoinHandler(store, clock, partial(self.dispatch_as, REGISTRAR), certify)
        self._ports = ServerContext(
            store,
            clock,
            new_uid,
            new_suffix,
            LongRequests(),
            InFlightCreates(),
            own,
            authorizer,
            deprecation_grace_s,
        )
        self._metrics.watch_encoder(self._ports.encoder)
        self._is_ready = is_ready

    @property
    def watches(self) -> OpenWatches:
        return self._watches

    @property
    def event_encoder(self) -> EventEncoder:
        return self._ports.encoder

    @property
    def streams(self) -> LongRequests:
        return self._ports.streams

    def holdings(self, plane: PlaneName) -> PlaneInventory:
        """What a plane holds, for those who clean up in this process."""
        return PlaneInventory(
            self._ports.store,
            plane,
            lambda plane: self._catalogues.of(plane).catalogue,
            partial(self.dispatch_as, COLLECTOR),
        )

    @property
    def authorizer(self) -> Authorizer:
        return self._ports.authorizer

    def close_streams(self) -> None:
        """End every watch and refuse new ones; call it when shutdown begins."""
        self._ports.streams.close()

    # A coroutine that does nothing but wait for another one costs every write that passes it when
    # it begins, when it goes on after the commit and when it ends. So it is handed on instead, here
    # and further down.

    def dispatch(self, request: Request) -> Coroutine[Any, Any, Response]:
        return self._dispatch(request, None)

    def dispatch_as(self, user: User, request: Request) -> Coroutine[Any, Any, Response]:
        """For code of this process that needs no credentials: bringing up a plane, before there
        are roles that could let anybody in."""
        known = authenticated(user)
        return self._dispatch(request, Principal(known, known))

    async def _dispatch(self, request: Request, known: Principal | None) -> Response:
        begun_s = self._metrics.begun()
        trail = self._auditor.begun()
        outer = REQUEST_ID.set(trail.request_id)
        try:
            work = LoopWork(self._flows)
            if self._tracer is None:
                handling = self._handle(request, known, trail, work)
            else:
                handling = self._traced(self._tracer, request, known, trail, work)
            response = await run_measured(work, handling)
        except BaseException:
            self._metrics.abandoned()
            raise
        finally:
            REQUEST_ID.reset(outer)
        self._metrics.ended(trail.wanted, response, begun_s)
        return response

    async def _traced(
        self,
        tracer: Tracer,
        request: Request,
        known: Principal | None,
        trail: AuditContext,
        work: LoopWork,
    ) -> Response:
        attributes = {"http.request.method": request.method, "datum.request": trail.request_id}
        parent = request.headers.get("traceparent", "")
        with tracer("request", attributes, parent) as span:
            response = await self._handle(request, known, trail, work)
            span.set_attribute("http.response.status_code", response.status)
            span.set_attribute("datum.plane", trail.plane or "")
            if trail.wanted is not None:
                span.set_attribute("datum.verb", trail.wanted.verb)
                span.set_attribute("datum.resource", trail.wanted.full_resource)
        return response

    async def _handle(
        self, request: Request, known: Principal | None, trail: AuditContext, work: LoopWork
    ) -> Response:
        try:
            _check_text(request)
            response = await self._answer(request, known, trail, work)
        except ApiError as error:
            trail.reason = error.reason
            response = error_answer(error)
        except Exception:
            logger.exception("%r %r failed", request.method, request.path)
            trail.reason = InternalError.reason
            response = error_answer(
                InternalError("an internal error occurred; the log has details")
            )
        return self._auditor.ended(trail, response)

    async def _answer(
        self, request: Request, known: Principal | None, trail: AuditContext, work: LoopWork
    ) -> Response:
        plane, path = split_path(request.path)
        path = path.removesuffix("/") or "/"  # kr8s asks for /version/, as Kubernetes allows
        trail.plane = plane
        if path in PATHS and request.method in _READS:
            self._check_health_caller(request, plane, path)
            return health_answer(path, self._is_ready, verbose="verbose" in request.query)
        platform = self._catalogues.platform
        route = resolve_route(trail, platform.catalogue, request, path)
        try:
            caller = self._identified(request, known, trail)
        except Unauthorized:
            work.flow = self._flows.flow_of(None, PLATFORM)
            await self._flows.admit(work, len(request.body))
            raise
        assert trail.wanted is not None
        # The share of a plane is for those who may reach it: others could invent planes.
        is_real = self._ports.store.has_plane(plane) and caller.user.may_reach(plane)
        share = plane if is_real else PLATFORM
        flow = work.flow = self._flows.flow_of(caller.behind, share, trail.wanted.resource)
        if flow is not None and not self._flows.can_run(flow):
            await self._flows.admit(work, len(request.body))
        # Whoever may not reach a plane learns nothing of the kinds it has defined.
        served = self._catalogues.of(plane) if caller.user.may_reach(plane) else platform
        if served is not platform:
            route = resolve_route(trail, served.catalogue, request, path)
        self._ports.authorizer.check(
            caller.user, plane, attributes_to_authorize(trail.wanted, route)
        )
        self._ports.store.version(plane)  # raises NotFound when there is no such plane
        if route is None:
            return self._non_resource(served, request, plane, path)
        call = ResourceRequest(
            caller.user, plane, route, request, route.served, route.served.kind, work
        )
        if trail.wanted.verb == "watch":
            still_open = self._gate.recheck(request, plane, trail.wanted)
            return await self._watch(call, caller.until_s, always if known else still_open)
        if is_definition(call.kind) and request.method not in _READS:
            # One after the other, so that two cannot be promised the same name.
            async with self._definition_writes:
                # Another write may have changed them while this one waited.
                catalogue = self._catalogues.of(plane).catalogue
                return await self._resource(trail.wanted.verb, catalogue, call)
        response = await self._resource(trail.wanted.verb, served.catalogue, call)
        return _warned(response, call.kind.deprecation or empty_kind_warning(call))

    def _identified(
        self, request: Request, known: Principal | None, trail: AuditContext
    ) -> Principal:
        if known is None:
            assert trail.plane is not None
            return self._gate.identify(request, trail.plane, trail)
        trail.behind = trail.user = known.user
        return known

    def _check_health_caller(self, request: Request, plane: PlaneName, path: str) -> None:
        """Anonymous callers learn how the process is; those who may see the plane, whether it
        is there at all."""
        if not has_credentials(request):
            return
        user = self._gate.identify(request, plane).user
        wanted = Attributes("get", path=path)
        if user.may_reach(plane) and self._ports.authorizer.allows(user, plane, wanted):
            self._ports.store.version(plane)

    async def _watch(
        self, call: ResourceRequest, until_s: float, may_stay: Callable[[], bool]
    ) -> Response:
        """A watch stays open only as long as the same request would be let through."""
        self._watches.check_room(call.plane, call.user.name)
        left_s = max(0.0, until_s - self._ports.clock())
        response = await watch(self._ports, call, left_s)
        assert isinstance(response.stream, WatchStream)
        self._watches.add(call.plane, call.user.name, response.stream, may_stay)
        return response

    def _non_resource(
        self, served: PlaneResources, request: Request, plane: PlaneName, path: str
    ) -> Response:
        found = (
            discovery_answer(served.catalogue, request, path)
            or served.openapi.answer(plane, path)
            or openapi_v2_answer(request, path)
        )
        if path == "/":
            known = ["/api", "/apis", *PATHS, METRICS_PATH, "/openapi/v2", "/openapi/v3"]
            found = json_answer({"paths": known})
        if path == METRICS_PATH and self._speaks_for_process(plane):
            found = self._metrics.page()
        if path == BACKUP_PATH and is_home(self._ports.store, plane) and request.method == "GET":
            found = backup_answer(self._ports.store)
        if found is None:
            check_subresource(served.catalogue, path)
            return page_not_found()
        if request.method == "OPTIONS":
            return _allowed(_READS)
        if request.method not in _READS:
            raise _not_allowed(request.method)
        return found

    def _speaks_for_process(self, plane: PlaneName) -> bool:
        """The platform does, and where that is elsewhere the only plane there is: a cell."""
        return plane == PLATFORM or PLATFORM not in self._ports.store.planes()

    async def _resource(
        self, verb: str, catalogue: ResourceRegistry, call: ResourceRequest
    ) -> Response:
        ports = self._ports
        if verb == "create" and call.kind is CELL_JOIN:
            return await self._joins.answer(call)
        if verb == "create" and not call.served.stored:
            return review(self._desk, call)
        if verb == "create" and call.route.subresource == "token":
            return token_request(ports, self._accounts, call)
        handler = _HANDLERS.get(verb)
        if handler is not None:
            return await handler(ports, catalogue, call)
        methods = tuple(call.route.verbs_by_method)
        if call.request.method == "OPTIONS":
            return _allowed(methods)
        answer = error_answer(_not_allowed(call.request.method, call.kind.unsupported_message))
        return replace(answer, headers={"allow": ", ".join(methods)})


def empty_kind_warning(call: ResourceRequest) -> str:
    """For who looks at a list that is always empty. With a selector a program looks for something,
    as ``kubectl cluster-info`` does, and finding nothing is the answer."""
    lists = call.request.method in _READS and not call.route.name
    return call.kind.unsupported_message if lists and not call.query.get("labelSelector") else ""


def _warned(response: Response, text: str) -> Response:
    """The answer with a warning, if there is one."""
    if not text:
        return response
    told = [warning_header([text]), response.headers.get("warning", "")]
    headers = {**response.headers, "warning": ", ".join(filter(None, told))}
    return replace(response, headers=headers)


def _counted() -> Callable[[], str]:
    """Ids for requests where they need to be unique in this process only."""
    numbers = count(1)
    return lambda: f"request-{next(numbers)}"


def resolve_route(
    trail: AuditContext, catalogue: ResourceRegistry, request: Request, path: str
) -> Route | None:
    """The route of a request; the trail hears what is wanted."""
    route = find_route(catalogue, path)
    trail.wanted = attributes_of(_verb(request, route), route, path, request.query)
    trail.stores = route is not None and route.served.stored
    return route


def attributes_to_authorize(wanted: Attributes, route: Route | None) -> Attributes:
    """What is not there may be asked for in any way by whoever may see that it is not: nothing
    happens, and "not found" is an answer that helps. So is that there is no such way."""
    if route is not None and wanted.verb.endswith(_NOT_ALLOWED):
        return replace(wanted, verb="get" if route.name else "list")
    if wanted.path.startswith(("/api/", "/apis/")):
        return replace(wanted, verb="get")
    return wanted


def _verb(request: Request, route: Route | None) -> str:
    """The Kubernetes verb; for a method that the route does not answer, the method itself."""
    method = "GET" if request.method == "HEAD" else request.method
    if route is None:
        return method.lower()
    verb = route.verbs_by_method.get(method)
    if verb is None:
        # A method such as DELETE must not pass for the verb of the same name.
        return f"{method.lower()}{_NOT_ALLOWED}"
    if verb == "list" and request.method == "GET" and flag(request.query, "watch"):
        return "watch"
    return verb


def _check_text(request: Request) -> None:
    """Half a surrogate pair has no bytes; it must not get into an error or an object."""
    query, headers = request.query, request.headers
    text = "".join((request.path, *query, *query.values(), *headers.values()))
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the path, the query or a header is not valid text") from error


def _allowed(methods: Iterable[str]) -> Response:
    return Response(200, b"", headers={"allow": ", ".join(methods)})


def _not_allowed(method: str, why: str = "") -> MethodNotAllowed:
    said = f"the server does not allow this method on the requested resource: {method[:20]}"
    return MethodNotAllowed(f"{said}; {why}" if why else said)
