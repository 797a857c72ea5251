"""Handles a request from start to end: route, authentication, flow control, authorization, verb.

Errors other than ApiError are defects: they are logged, and the caller receives a 500 without
details.
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

from datum_compute.api.errors import ApiError, BadRequest, InternalError, Unauthorized
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PLATFORM, PlaneName, split_path
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.audit import AuditContext, Auditor
from datum_compute.server.access.authentication import User, with_authenticated_group
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.request_authenticator import (
    Principal,
    RequestAuthenticator,
    has_credentials,
)
from datum_compute.server.access.service_accounts import ServiceAccountTokens
from datum_compute.server.access.watch_limits import OpenWatches
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.builtin_definitions import BuiltinDefinitions
from datum_compute.server.discovery.discovery import HEALTH_PATHS, health_response
from datum_compute.server.discovery.plane_resources import PlaneRegistries, PlaneResources
from datum_compute.server.encoding.request_options import warning_header
from datum_compute.server.encoding.responses import error_response
from datum_compute.server.flowcontrol.control import FlowControl, LoopWork, run_measured
from datum_compute.server.inventory import COLLECTOR, PlaneInventory
from datum_compute.server.metrics import ServerMetrics
from datum_compute.server.non_resource import (
    READ_METHODS,
    NonResourceHandlers,
    NonResourceRequest,
    allowed_methods,
    method_not_allowed,
)
from datum_compute.server.options import (
    AdmissionOptions,
    AuthenticationOptions,
    ServerEnvironment,
    ServerTelemetry,
)
from datum_compute.server.routing import ApiRequest, Route, attributes_to_authorize, resolve_route
from datum_compute.server.verbs.create import create
from datum_compute.server.verbs.delete import delete, delete_collection
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.server.verbs.patch import patch
from datum_compute.server.verbs.read import get, list_objects
from datum_compute.server.verbs.update import update
from datum_compute.server.verbs.watch import watch
from datum_compute.server.verbs.watch_stream import WatchStream
from datum_compute.server.virtual.cell_join import REGISTRAR
from datum_compute.server.virtual.handlers import VirtualKinds
from datum_compute.store.store import Store
from datum_compute.telemetry.context import REQUEST_ID, Tracer

_log = logging.getLogger(__name__)

_HANDLERS: Mapping[str, Callable[[ServerContext, ApiRequest], Awaitable[Response]]] = {
    "get": get,
    "list": list_objects,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
_READ_VERBS = ("get", "list")
_DEFAULT_TELEMETRY = ServerTelemetry()
_DEFAULT_ADMISSION = AdmissionOptions()


def _always_permitted() -> bool:
    return True


class ApiServer:
    """Serves all planes of a store. It waits only for the store."""

    def __init__(
        self,
        store: Store,
        environment: ServerEnvironment,
        authentication: AuthenticationOptions,
        *,
        telemetry: ServerTelemetry = _DEFAULT_TELEMETRY,
        admission: AdmissionOptions = _DEFAULT_ADMISSION,
        kinds: Iterable[KindInfo[Any]] = KINDS,
    ) -> None:
        kinds, clock = tuple(kinds), environment.clock
        self._store = store
        self._is_ready = environment.is_ready
        self._tracer = telemetry.tracer
        self._registries = PlaneRegistries(store, kinds)
        self._definition_writes = asyncio.Lock()
        self._watches = OpenWatches(admission.watches_per_user_max)
        self._flow_control = FlowControl(environment.work_clock, admission.flow_limits)
        self._new_request_id = environment.new_request_id or _request_id_source()
        self._auditor = Auditor(telemetry.audit, clock)
        groups = self._registries.platform.registry.groups()
        self._authorizer = Authorizer(store, groups, self._watches.recheck_plane)
        signer = authentication.signer
        service_accounts = ServiceAccountTokens(store, signer, clock) if signer else None
        self._authenticator = RequestAuthenticator(
            authentication.static_tokens, service_accounts, store, self._authorizer, clock
        )
        self._context = ServerContext(
            store,
            clock,
            environment.new_uid,
            environment.new_suffix,
            self._authorizer,
            BuiltinDefinitions(kinds, clock()),
            admission.deprecation_grace_s,
        )
        self._virtual_kinds = VirtualKinds(
            self._context,
            self._authenticator,
            service_accounts,
            authentication.certify,
            partial(self.dispatch_as, REGISTRAR),
        )
        self._metrics = telemetry.metrics or ServerMetrics(CollectorRegistry())
        self._metrics.register_server(
            store, self._flow_control, self._context.encoder, self._watches.__len__
        )
        self._non_resource = NonResourceHandlers(store, self._metrics)

    @property
    def watches(self) -> OpenWatches:
        return self._watches

    @property
    def event_encoder(self) -> EventEncoder:
        return self._context.encoder

    @property
    def long_requests(self) -> LongRequests:
        return self._context.long_requests

    @property
    def authenticator(self) -> RequestAuthenticator:
        return self._authenticator

    @property
    def authorizer(self) -> Authorizer:
        return self._authorizer

    def inventory(self, plane: PlaneName) -> PlaneInventory:
        """Return what a plane contains, for controllers of this process that remove objects."""
        return PlaneInventory(
            self._store,
            plane,
            lambda plane: self._registries.get(plane).registry,
            partial(self.dispatch_as, COLLECTOR),
        )

    def close_streams(self) -> None:
        """End every watch and reject new ones. Call this when shutdown begins."""
        self._context.long_requests.close()

    def dispatch_as(self, user: User, request: Request) -> Coroutine[Any, Any, Response]:
        """Run a request of this process as a user, without credentials: a new plane, for example,
        has no roles yet that could permit its setup."""
        user = with_authenticated_group(user)
        return self.dispatch(request, internal=Principal(user, user))

    async def dispatch(self, request: Request, *, internal: Principal | None = None) -> Response:
        """Respond to a request. ``internal`` is the principal of a request of this process; all
        other requests are authenticated."""
        started_s = self._metrics.request_started()
        audit = AuditContext(self._new_request_id(), self._context.clock())
        outer_id = REQUEST_ID.set(audit.request_id)
        try:
            work = LoopWork(self._flow_control)
            if self._tracer is None:
                handling = self._handle(request, internal, audit, work)
            else:
                handling = self._handle_traced(self._tracer, request, internal, audit, work)
            response = await run_measured(work, handling)
        except BaseException:
            self._metrics.request_cancelled()
            raise
        finally:
            REQUEST_ID.reset(outer_id)
        self._metrics.request_finished(audit.attributes, response, started_s)
        return response

    async def _handle_traced(
        self,
        tracer: Tracer,
        request: Request,
        internal: Principal | None,
        audit: AuditContext,
        work: LoopWork,
    ) -> Response:
        attributes = {"http.request.method": request.method, "datum.request": audit.request_id}
        parent = request.headers.get("traceparent", "")
        with tracer("request", attributes, parent) as span:
            response = await self._handle(request, internal, audit, work)
            span.set_attribute("http.response.status_code", response.status)
            span.set_attribute("datum.plane", audit.plane or "")
            if audit.attributes is not None:
                span.set_attribute("datum.verb", audit.attributes.verb)
                span.set_attribute("datum.resource", audit.attributes.full_resource)
        return response

    async def _handle(
        self, request: Request, internal: Principal | None, audit: AuditContext, work: LoopWork
    ) -> Response:
        try:
            _check_encodable(request)
            response = await self._respond(request, internal, audit, work)
        except ApiError as error:
            audit.reason = error.reason
            response = error_response(error)
        except Exception:
            _log.exception("%r %r failed", request.method, request.path)
            audit.reason = InternalError.reason
            response = error_response(
                InternalError("an internal error occurred; the log has details")
            )
        return self._auditor.finish(audit, response)

    async def _respond(
        self, request: Request, internal: Principal | None, audit: AuditContext, work: LoopWork
    ) -> Response:
        plane, path = split_path(request.path)
        path = path.removesuffix("/") or "/"  # kr8s requests /version/
        audit.plane = plane
        if path in HEALTH_PATHS and request.method in READ_METHODS:
            self._check_health_caller(request, plane, path)
            return health_response(path, self._is_ready, verbose="verbose" in request.query)
        principal = await self._authenticate(request, internal, audit, path, work)
        may_reach = principal.user.may_reach(plane)
        # Callers that may not reach a plane do not learn which kinds it defines.
        resources = self._registries.get(plane) if may_reach else self._registries.platform
        route, attributes = self._resolve(resources, request, path, audit)
        # Others share the flow of the platform plane, because they could invent planes.
        flow_plane = plane if may_reach and self._store.has_plane(plane) else PLATFORM
        flow = work.flow = self._flow_control.flow_of(
            principal.authenticated_user, flow_plane, attributes.resource
        )
        if flow is not None and not self._flow_control.can_run(flow):
            await self._flow_control.admit(work, len(request.body))
            if may_reach:  # definitions may have changed while the request waited
                resources = self._registries.get(plane)
                route, attributes = self._resolve(resources, request, path, audit)
        needed = attributes
        if route is None or not attributes.allowed_method:
            needed = attributes_to_authorize(attributes, route)
        self._authorizer.check(principal.user, plane, needed)
        self._store.version(plane)  # raises NotFound if the plane does not exist
        if route is None:
            return self._non_resource.respond(NonResourceRequest(request, plane, path, resources))
        api_request = ApiRequest(
            principal.user,
            plane,
            route,
            request,
            request.query,
            resources.registry,
            route.resource,
            route.resource.kind,
            work,
        )
        if attributes.verb == "watch":
            is_permitted = (
                _always_permitted
                if internal is not None
                else self._authenticator.recheck(request, plane, attributes)
            )
            return await self._watch(api_request, principal.until_s, is_permitted)
        response = await self._run_verb(api_request, attributes)
        kind = api_request.kind
        if kind.deprecation or kind.unsupported_message:
            response = _add_warning(response, kind.deprecation or empty_kind_warning(api_request))
        return response

    async def _authenticate(
        self,
        request: Request,
        internal: Principal | None,
        audit: AuditContext,
        path: str,
        work: LoopWork,
    ) -> Principal:
        assert audit.plane is not None
        if internal is not None:
            audit.authenticated_user = audit.user = internal.user
            return internal
        try:
            return self._authenticator.identify(request, audit.plane, audit)
        except ApiError as error:
            # The audit event of a rejected request names its resource. The kinds of the platform
            # plane are sufficient for that.
            self._resolve(self._registries.platform, request, path, audit)
            if isinstance(error, Unauthorized):
                work.flow = self._flow_control.flow_of(None, PLATFORM)
                await self._flow_control.admit(work, len(request.body))
            raise

    def _resolve(
        self, resources: PlaneResources, request: Request, path: str, audit: AuditContext
    ) -> tuple[Route | None, Attributes]:
        route, attributes = resolve_route(resources.registry, request, path)
        audit.attributes = attributes
        audit.is_stored = route is not None and route.resource.is_stored
        return route, attributes

    def _check_health_caller(self, request: Request, plane: PlaneName, path: str) -> None:
        """Health and version respond to everyone. Only callers that may read the path on the plane
        get a 404 if the plane does not exist."""
        if not has_credentials(request):
            return
        user = self._authenticator.identify(request, plane).user
        attributes = Attributes("get", path=path)
        if user.may_reach(plane) and self._authorizer.allows(user, plane, attributes):
            self._store.version(plane)

    async def _watch(
        self, request: ApiRequest, until_s: float, is_permitted: Callable[[], bool]
    ) -> Response:
        """Open a watch. It ends when its credentials expire or permissions are removed."""
        self._watches.check_limit(request.plane, request.user.name)
        valid_s = max(0.0, until_s - self._context.clock())
        response = await watch(self._context, request, valid_s)
        assert isinstance(response.stream, WatchStream)
        self._watches.add(request.plane, request.user.name, response.stream, is_permitted)
        return response

    async def _write_definition(self, request: ApiRequest, attributes: Attributes) -> Response:
        """Write definitions one at a time, so that no two are accepted for the same names."""
        async with self._definition_writes:
            # Another write may have changed the definitions while this one waited.
            registry = self._registries.get(request.plane).registry
            current = replace(request, registry=registry)
            return await _HANDLERS[attributes.verb](self._context, current)

    def _run_verb(self, request: ApiRequest, attributes: Attributes) -> Awaitable[Response]:
        """Respond to an authorized request that is not a watch."""
        verb = attributes.verb
        if not attributes.allowed_method:
            return _respond_method_not_allowed(request)
        if verb == "create" and (request.route.subresource or not request.resource.is_stored):
            return self._virtual_kinds.create(request)
        if request.resource.is_definition and verb not in _READ_VERBS:
            return self._write_definition(request, attributes)
        return _HANDLERS[verb](self._context, request)


async def _respond_method_not_allowed(request: ApiRequest) -> Response:
    methods = tuple(request.route.verbs_by_method)
    if request.http.method == "OPTIONS":
        return allowed_methods(methods)
    error = method_not_allowed(request.http.method, request.kind.unsupported_message)
    return replace(error_response(error), headers={"allow": ", ".join(methods)})


def empty_kind_warning(request: ApiRequest) -> str:
    """Return the warning for a list of a kind that this server never stores, such as Service.

    A list with a selector gets no warning: ``kubectl cluster-info`` sends one and expects that it
    may find nothing.
    """
    is_list = request.http.method in READ_METHODS and not request.route.name
    return (
        request.kind.unsupported_message
        if is_list and not request.query.get("labelSelector")
        else ""
    )


def _add_warning(response: Response, text: str) -> Response:
    if not text:
        return response
    warnings = [warning_header([text]), response.headers.get("warning", "")]
    headers = {**response.headers, "warning": ", ".join(filter(None, warnings))}
    return replace(response, headers=headers)


def _request_id_source() -> Callable[[], str]:
    """Return a function that numbers requests. The ids are unique in this process only."""
    numbers = count(1)
    return lambda: f"request-{next(numbers)}"


def _check_encodable(request: Request) -> None:
    """Reject text with half a surrogate pair: it has no UTF-8 form, so it must not get into an
    error message or an object."""
    query, headers = request.query, request.headers
    text = "".join((request.path, *query, *query.values(), *headers.values()))
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the path, the query or a header is not valid text") from error
