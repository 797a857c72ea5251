"""Serves the gateway: logs, usage, crash reports, commands, image checks, drivers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from datum_compute.api.core import Namespace
from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unreachable,
)
from datum_compute.api.gateway import (
    COMMAND_WORDS_MAX,
    GROUP,
    INSTANCES,
    PROTOCOL,
    ROOT,
    ExecRequest,
    GatewayReason,
    gateway_not_found,
)
from datum_compute.api.http import Duplex, Request, Response
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE
from datum_compute.api.kinds import INSTANCE, LEASE, NAMESPACE
from datum_compute.api.labels import CELL
from datum_compute.api.meta.codec import DecodeError, decode_as, encode, to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import (
    HUB,
    PlaneName,
    cell_plane,
    federation_namespace,
    plane_role,
    split_path,
)
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import WebSocket, server_handshake
from datum_compute.drivers.driver import DriverError
from datum_compute.drivers.logs import (
    LINES_MAX,
    POSITION_LINES_MAX,
    SECOND_MAX,
    LogLine,
    LogPage,
    LogPosition,
    LogQuery,
    WorkloadLog,
)
from datum_compute.drivers.queries import CrashReportList, ExecSession, NoSuchContainer, NotRunning
from datum_compute.gateway.authorizer import (
    DRIVERS,
    IMAGE,
    LOGS,
    Dispatch,
    GatewayAuthorizer,
    GatewayTarget,
)
from datum_compute.gateway.cells import (
    UNKNOWN_DRIVER,
    CellDriver,
    CellDrivers,
    CellEndpoint,
    CellEndpoints,
    WorkloadLogs,
    read_drivers,
)
from datum_compute.gateway.exec_session import relay_exec
from datum_compute.gateway.image_check import ImageChecker, decode_image_request
from datum_compute.server.encoding.responses import error_response

T = TypeVar("T")

SESSIONS_MAX = 200
LOG_READERS_MAX, PLANE_LOG_READERS_MAX = 64, 16
_INSTANCE_PATH = re.compile(
    r"/gateway/v1alpha/namespaces/([^/]+)/instances/([^/]+)/(log|usage|crashes|exec)"
)
_NAMESPACE_PATH = re.compile(r"/gateway/v1alpha/namespaces/([^/]+)/(images|drivers|logs)")
_PLANES = ("project", "cell")
_TRUE_VALUES = ("1", "true")

_log = logging.getLogger(__name__)


def federation_namespace_of(namespace: Namespace) -> str:
    """Return the namespace on cells for a namespace of a project."""
    return federation_namespace(namespace.metadata.uid)


class Gateway:
    """Serves the paths of the gateway and forwards all other requests to the API server.

    ``cell_namespace_of`` maps a namespace of a project to its namespace on cells.
    """

    def __init__(
        self,
        api_server: Dispatch,
        client_of: Callable[[PlaneName], Client],
        endpoints: CellEndpoints,
        authorizer: GatewayAuthorizer,
        unix_s: Callable[[], float],
        cell_namespace_of: Callable[[Namespace], str] = federation_namespace_of,
    ) -> None:
        self._api_server = api_server
        self._client_of = client_of
        self._endpoints = endpoints
        self._authorizer = authorizer
        self._unix_s = unix_s
        self._cell_namespace_of = cell_namespace_of
        self._sessions = 0
        self._log_readers: Counter[PlaneName] = Counter()
        self._images = ImageChecker(client_of, endpoints)

    def dispatch(self, request: Request) -> Coroutine[Any, Any, Response]:
        target = _parse_target(request.path) if ROOT in request.path else None
        if target is None:
            return self._api_server(request)
        return self._respond(request, target)

    async def _respond(self, request: Request, target: GatewayTarget) -> Response:
        handle = self._check_image if target.operation == IMAGE else self._handle
        try:
            # The HTTP server starts requests without a task, and timeouts need one.
            return await asyncio.create_task(handle(request, target))
        except ApiError as error:
            await self._authorizer.record_denial(request, target, error)
            return error_response(error)
        except Unreachable as error:
            unavailable = ServiceUnavailable(f"cannot reach {target.plane}: {error}")
            return error_response(unavailable)
        except Exception:
            _log.exception("%s: the gateway failed", request.path)
            failed = InternalError("the gateway failed; its log has details")
            return error_response(failed)

    async def _handle(self, request: Request, target: GatewayTarget) -> Response:
        request_id = await self._authorizer.authorize(request, target)
        if request.method != "GET":
            raise MethodNotAllowed("the gateway supports only GET")
        match target.operation:
            case "log":
                query = self._parse_log_query(request.query)
                read = partial(_read_log_page, query=query)
                with self._limit_log_readers(target.plane):
                    found: object = await self._query_cell(target, read)
                    return Response(200, encode(to_json(found)))
            case "usage":
                found = await self._query_cell(target, _read_usage)
            case "crashes":
                found = await self._query_cell(target, _read_crashes)
            case "drivers":
                drivers = await read_drivers(self._endpoints, target.plane)
                found = CellDrivers(items=[await self._with_heartbeat(d) for d in drivers.items])
            case "logs":
                found = await self._list_logs(target, request.query.get("workload", ""))
            case _:
                return await self._open_exec(request, target, request_id)
        return Response(200, encode(to_json(found)))

    async def _check_image(self, request: Request, target: GatewayTarget) -> Response:
        await self._authorizer.authorize(request, target)
        image_request = decode_image_request(request, target.plane)
        try:
            result = await self._images.check(target.plane, target.namespace, image_request)
        except DriverError as error:
            raise ServiceUnavailable(str(error)) from error
        return Response(200, encode(to_json(result)))

    async def _query_cell(
        self, target: GatewayTarget, read: Callable[[list[CellEndpoint], str], Awaitable[T | None]]
    ) -> T:
        """Query the cell that runs, or ran, the instance."""
        endpoints, server = await self._find_cell(target)
        resource = f'{INSTANCES}.{GROUP} "{target.name}"'
        try:
            found = await read(endpoints, server)
        except NoSuchContainer as error:
            message = f"{resource}: {error}"
            raise NotFound(message, name=target.name, group=GROUP, kind=INSTANCES) from error
        except NotRunning as error:
            message = f"{resource}: {error}"
            raise Conflict(message, name=target.name, group=GROUP, kind=INSTANCES) from error
        except DriverError as error:
            why = f"the {target.operation} of {target.name} cannot be had now: {error}"
            raise ServiceUnavailable(why) from error
        if found is None:
            raise gateway_not_found(GatewayReason.INSTANCE_NOT_RUNNING, target.name)
        return found

    async def _with_heartbeat(self, driver: CellDriver) -> CellDriver:
        """Add the time of the last heartbeat of a cell that does not respond."""
        if driver.driver != UNKNOWN_DRIVER:
            return driver
        try:
            hub = self._client_of(HUB)
            lease = await hub.get(LEASE, Ref(CREDENTIALS_NAMESPACE, driver.cell))
        except (ApiError, Unreachable):  # no hub here, no permission, or no heartbeat yet
            return driver
        return replace(driver, last_heartbeat=lease.spec.renew_time or "")

    async def _list_logs(self, target: GatewayTarget, workload: str) -> WorkloadLogs:
        """Return the instances with a log on all cells, and why some cells could not be read."""
        if plane_role(target.plane) == "cell":
            endpoints, namespace = self._endpoints.select(target.plane), target.namespace
        else:
            client = self._client_of(target.plane)
            found = await client.get(NAMESPACE, Ref("", target.namespace))
            endpoints, namespace = self._endpoints.select(None), self._cell_namespace_of(found)
        items: list[WorkloadLog] = []
        problems: list[str] = []
        for endpoint in endpoints:
            try:
                items += await endpoint.workload_logs(namespace, workload)
            except DriverError as error:
                problems.append(str(error))
        return WorkloadLogs(items=items, problems=problems)

    async def _find_cell(self, target: GatewayTarget) -> tuple[list[CellEndpoint], str]:
        """Return the endpoints to query, and the namespace and name of the Server.

        An instance has the same name on all planes.
        """
        if plane_role(target.plane) == "cell":
            return self._endpoints.select(target.plane), f"{target.namespace}/{target.name}"
        client = self._client_of(target.plane)
        namespace = await client.get(NAMESPACE, Ref("", target.namespace))
        try:
            instance = await client.get(INSTANCE, Ref(target.namespace, target.name))
            cell = instance.metadata.labels.get(CELL, "")
        except NotFound:
            cell = ""  # deleted; cells can still have its logs and crash reports
        endpoints = self._endpoints.select(cell_plane(cell) if cell else None)
        return endpoints, f"{self._cell_namespace_of(namespace)}/{target.name}"

    # --- commands

    async def _open_exec(
        self, request: Request, target: GatewayTarget, request_id: str
    ) -> Response:
        headers = server_handshake(request, PROTOCOL)
        exec_request = _parse_exec_request(request.query)
        if self._sessions >= SESSIONS_MAX:
            why = f"{SESSIONS_MAX} commands run in instances already; try again later"
            raise TooManyRequests(why, retry_after_s=5)
        self._sessions += 1
        try:
            start = partial(_start_command, request=exec_request)
            session = await self._query_cell(target, start)
            record = partial(
                self._authorizer.record, request, target, code=101, request_id=request_id
            )
            await record(reason="Begun")
        except BaseException:
            self._sessions -= 1
            raise
        authorize = partial(self._authorizer.authorize, request, target)
        switched = partial(self._relay, session, authorize, record)
        return Response(101, headers=headers, switched=switched)

    async def _relay(
        self,
        session: ExecSession,
        authorize: Callable[[], Coroutine[Any, Any, str]],
        record: Callable[..., Coroutine[Any, Any, None]],
        duplex: Duplex,
    ) -> None:
        async def check_access() -> None:
            await authorize()

        since_s = self._unix_s()
        try:
            reason = await relay_exec(WebSocket(duplex, of_server=True), session, check_access)
        finally:
            self._sessions -= 1
        await record(reason=reason, since_s=since_s)

    # --- limits

    @contextmanager
    def _limit_log_readers(self, plane: PlaneName) -> Iterator[None]:
        """Reject a reader above the limit: each page takes a few megabytes of memory."""
        readers = self._log_readers
        if readers[plane] >= PLANE_LOG_READERS_MAX or readers.total() >= LOG_READERS_MAX:
            raise TooManyRequests(
                "too many logs are read at once; read fewer at once and try again", retry_after_s=1
            )
        readers[plane] += 1
        try:
            yield
        finally:
            readers[plane] -= 1
            if not readers[plane]:
                del readers[plane]

    # --- parameters

    def _parse_log_query(self, query: Mapping[str, str]) -> LogQuery:
        try:
            cursor = decode_as(query.get("cursor", "{}").encode(), dict[str, LogPosition])
            tail = int(query.get("tail", "200"))
            ago_s = float(query.get("sinceSeconds", "0"))
            since_s = float(query.get("since", "0"))
        except (DecodeError, ValueError) as error:
            raise BadRequest(f"the query is invalid: {error}") from error
        if not 0 <= tail <= LINES_MAX or not 0 <= ago_s < 1e9 or not 0 <= since_s <= SECOND_MAX:
            raise BadRequest(f"tail is 0 to {LINES_MAX}, sinceSeconds a number of seconds")
        for position in cursor.values():
            is_valid_second = 0 <= position.second <= SECOND_MAX
            if not is_valid_second or not 0 <= position.lines <= POSITION_LINES_MAX:
                raise BadRequest("cursor is not valid; omit it to read from the last lines")
        return LogQuery(
            container=query.get("container", ""),
            tail=tail,
            since_s=self._unix_s() - ago_s if ago_s else since_s,
            previous=query.get("previous") in _TRUE_VALUES,
            cursor=cursor,
            workload_uid=query.get("workloadUID", ""),
        )


def _parse_target(full_path: str) -> GatewayTarget | None:
    """Return the target of a path of the gateway, or None for other paths."""
    plane, path = split_path(full_path)
    if not path.startswith(ROOT) or plane_role(plane) not in _PLANES:
        return None
    if match := _INSTANCE_PATH.fullmatch(path):
        return GatewayTarget(plane, match[1], match[2], match[3])
    if match := _NAMESPACE_PATH.fullmatch(path):
        operation = {"images": IMAGE, "drivers": DRIVERS, "logs": LOGS}[match[2]]
        return GatewayTarget(plane, match[1], "", operation)
    return None


def _parse_exec_request(query: Mapping[str, str]) -> ExecRequest:
    try:
        command = decode_as(query.get("command", "[]").encode(), list[str])
    except DecodeError as error:
        raise BadRequest(f"command is a JSON list of words: {error}") from error
    if not command or not command[0] or len(command) > COMMAND_WORDS_MAX:
        raise BadRequest(f"command is a JSON list of 1 to {COMMAND_WORDS_MAX} words")
    if any("\0" in word for word in command):
        raise BadRequest("a word of a command cannot hold a zero byte")
    return ExecRequest(
        command=command,
        container=query.get("container", ""),
        stdin=query.get("stdin") in _TRUE_VALUES,
        tty=query.get("tty") in _TRUE_VALUES,
    )


async def _read_log_page(
    endpoints: list[CellEndpoint], server: str, query: LogQuery
) -> LogPage | None:
    lines: list[LogLine] = []
    cursor: dict[str, LogPosition] = {}
    for endpoint in endpoints:
        page = await endpoint.log_page(server, query)
        lines += page.lines
        cursor |= page.cursor
    return LogPage(lines=lines, cursor=cursor) if cursor else None


async def _read_usage(endpoints: list[CellEndpoint], server: str) -> object | None:
    for endpoint in endpoints:
        if (usage := await endpoint.usage(server)) is not None:
            return usage
    return None


async def _read_crashes(endpoints: list[CellEndpoint], server: str) -> CrashReportList | None:
    reports = [report for endpoint in endpoints for report in await endpoint.crashes(server)]
    return (
        CrashReportList(items=sorted(reports, key=lambda report: report.ended_at))
        if reports
        else None
    )


async def _start_command(
    endpoints: list[CellEndpoint], server: str, request: ExecRequest
) -> ExecSession | None:
    for endpoint in endpoints:
        if (session := await endpoint.execute(server, request)) is not None:
            return session
    return None
