"""Answers what people ask about instances, and what the hub asks its cells for them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

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
from datum_compute.api.kinds import INSTANCE, NAMESPACE
from datum_compute.api.labels import CELL
from datum_compute.api.meta.codec import DecodeError, decode_as, encode, to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import (
    PlaneName,
    cell_plane,
    federation_namespace,
    plane_role,
    split_path,
)
from datum_compute.client.client import Client
from datum_compute.client.transport.websocket import WebSocket, answer_headers
from datum_compute.drivers.driver import DriverError
from datum_compute.drivers.logs import (
    LINES_MAX,
    POSITION_LINES_MAX,
    SECOND_MAX,
    LogLine,
    LogPage,
    LogPosition,
    LogQuery,
)
from datum_compute.drivers.queries import CrashReportList, ExecSession, NoSuchContainer, NotRunning
from datum_compute.gateway.authorizer import DRIVERS, IMAGE, Dispatch, GatewayTarget, Keeper
from datum_compute.gateway.cells import CellEndpoint, CellEndpoints, read_drivers
from datum_compute.gateway.exec_session import relay_exec
from datum_compute.gateway.image_check import ImageDesk, read_question
from datum_compute.server.encoding.responses import error_response

T = TypeVar("T")

SESSIONS_MAX = 200
LOG_READERS_MAX, PLANE_LOG_READERS_MAX = 64, 16
_ASKED = re.compile(
    r"/gateway/v1alpha/namespaces/([^/]+)/instances/([^/]+)/(log|usage|crashes|exec)"
)
_OF_NAMESPACE = re.compile(r"/gateway/v1alpha/namespaces/([^/]+)/(images|drivers)")
_PLANES = ("project", "cell")
_YES = ("1", "true")

_log = logging.getLogger(__name__)


def federated_space(namespace: Namespace) -> str:
    """Where what belongs to a namespace of a project is on its cells."""
    return federation_namespace(namespace.metadata.uid)


class Gateway:
    """``space_of`` a project's namespace is its name on cells."""

    def __init__(
        self,
        inner: Dispatch,
        client_of: Callable[[PlaneName], Client],
        ways: CellEndpoints,
        doorkeeper: Keeper,
        unix_s: Callable[[], float],
        space_of: Callable[[Namespace], str] = federated_space,
    ) -> None:
        self._inner = inner
        self._client_of = client_of
        self._ways = ways
        self._doorkeeper = doorkeeper
        self._unix_s = unix_s
        self._space_of = space_of
        self._sessions = 0
        self._log_readers: Counter[PlaneName] = Counter()
        self._images = ImageDesk(client_of, ways)

    async def dispatch(self, request: Request) -> Response:
        about = _about(request.path) if ROOT in request.path else None
        if about is None:
            return await self._inner(request)
        answer = self._checked if about.what == IMAGE else self._answered
        try:
            # The port drives requests without a task, and timeouts need one.
            return await asyncio.create_task(answer(request, about))
        except ApiError as error:
            await self._doorkeeper.refused(request, about, error)
            return error_response(error)
        except Unreachable as error:
            silent = ServiceUnavailable(f"{about.plane} does not answer: {error}")
            return error_response(silent)
        except Exception:
            _log.exception("%s: the gateway failed", request.path)
            failed = InternalError("the gateway failed; its log says why")
            return error_response(failed)

    async def _answered(self, request: Request, about: GatewayTarget) -> Response:
        request_id = await self._doorkeeper.check(request, about)
        if request.method != "GET":
            raise MethodNotAllowed("the gateway is asked with GET")
        match about.what:
            case "log":
                wish = self._log_wish(request.query)
                with self._log_turn(about.plane):
                    found: object = await self._asked(about, partial(_page, wish=wish))
                    return Response(200, encode(to_json(found)))
            case "usage":
                found = await self._asked(about, _usage)
            case "crashes":
                found = await self._asked(about, _crashes)
            case "drivers":
                found = await read_drivers(self._ways, about.plane)
            case _:
                return await self._opened(request, about, request_id)
        return Response(200, encode(to_json(found)))

    async def _checked(self, request: Request, about: GatewayTarget) -> Response:
        await self._doorkeeper.check(request, about)
        asked = read_question(request, about.plane)
        try:
            verdict = await self._images.answer(about.plane, about.namespace, asked)
        except DriverError as error:
            raise ServiceUnavailable(str(error)) from error
        return Response(200, encode(to_json(verdict)))

    async def _asked(
        self, about: GatewayTarget, ask: Callable[[list[CellEndpoint], str], Awaitable[T | None]]
    ) -> T:
        """Of the cell that has, or had, the instance."""
        ways, server = await self._found(about)
        resource = f'{INSTANCES}.{GROUP} "{about.name}"'
        try:
            found = await ask(ways, server)
        except NoSuchContainer as error:
            message = f"{resource}: {error}"
            raise NotFound(message, name=about.name, group=GROUP, kind=INSTANCES) from error
        except NotRunning as error:
            message = f"{resource}: {error}"
            raise Conflict(message, name=about.name, group=GROUP, kind=INSTANCES) from error
        except DriverError as error:
            why = f"the {about.what} of {about.name} cannot be had now: {error}"
            raise ServiceUnavailable(why) from error
        if found is None:
            raise gateway_not_found(GatewayReason.INSTANCE_NOT_RUNNING, about.name)
        return found

    async def _found(self, about: GatewayTarget) -> tuple[list[CellEndpoint], str]:
        """Whom to ask, and its Server's name; an instance has the same name on every plane."""
        if plane_role(about.plane) == "cell":
            return self._ways.to(about.plane), f"{about.namespace}/{about.name}"
        client = self._client_of(about.plane)
        namespace = await client.get(NAMESPACE, Ref("", about.namespace))
        try:
            instance = await client.get(INSTANCE, Ref(about.namespace, about.name))
            cell = instance.metadata.labels.get(CELL, "")
        except NotFound:
            cell = ""  # gone, and may have left something to read
        ways = self._ways.to(cell_plane(cell) if cell else None)
        return ways, f"{self._space_of(namespace)}/{about.name}"

    # --- commands

    async def _opened(self, request: Request, about: GatewayTarget, request_id: str) -> Response:
        headers = answer_headers(request, PROTOCOL)
        wish = _exec_wish(request.query)
        if self._sessions >= SESSIONS_MAX:
            why = f"{SESSIONS_MAX} commands run in instances already; try again later"
            raise TooManyRequests(why, retry_after_s=5)
        self._sessions += 1
        try:
            session = await self._asked(about, partial(_execution, wish=wish))
            noted = partial(self._doorkeeper.note, request, about, code=101, request_id=request_id)
            await noted(reason="Begun")
        except BaseException:
            self._sessions -= 1
            raise
        check = partial(self._doorkeeper.check, request, about)
        switched = partial(self._talk, session, check, noted)
        return Response(101, headers=headers, switched=switched)

    async def _talk(
        self,
        session: ExecSession,
        check: Callable[[], Coroutine[Any, Any, str]],
        noted: Callable[..., Coroutine[Any, Any, None]],
        duplex: Duplex,
    ) -> None:
        async def still_allowed() -> None:
            await check()

        since_s = self._unix_s()
        try:
            reason = await relay_exec(WebSocket(duplex, of_server=True), session, still_allowed)
        finally:
            self._sessions -= 1
        await noted(reason=reason, since_s=since_s)

    # --- limits

    @contextmanager
    def _log_turn(self, plane: PlaneName) -> Iterator[None]:
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

    # --- what is asked for

    def _log_wish(self, query: Mapping[str, str]) -> LogQuery:
        try:
            cursor = decode_as(query.get("cursor", "{}").encode(), dict[str, LogPosition])
            tail = int(query.get("tail", "200"))
            ago_s = float(query.get("sinceSeconds", "0"))
            since_s = float(query.get("since", "0"))
        except (DecodeError, ValueError) as error:
            raise BadRequest(f"the query is not understood: {error}") from error
        if not 0 <= tail <= LINES_MAX or not 0 <= ago_s < 1e9 or not 0 <= since_s <= SECOND_MAX:
            raise BadRequest(f"tail is 0 to {LINES_MAX}, sinceSeconds a number of seconds")
        for place in cursor.values():
            if not 0 <= place.second <= SECOND_MAX or not 0 <= place.lines <= POSITION_LINES_MAX:
                raise BadRequest("cursor is not valid; omit it to read from the last lines")
        return LogQuery(
            container=query.get("container", ""),
            tail=tail,
            since_s=self._unix_s() - ago_s if ago_s else since_s,
            previous=query.get("previous") in _YES,
            cursor=cursor,
        )


def _about(whole_path: str) -> GatewayTarget | None:
    """What is asked, if it is for the gateway."""
    plane, path = split_path(whole_path)
    if not path.startswith(ROOT) or plane_role(plane) not in _PLANES:
        return None
    if asked := _ASKED.fullmatch(path):
        return GatewayTarget(plane, asked[1], asked[2], asked[3])
    if asked := _OF_NAMESPACE.fullmatch(path):
        return GatewayTarget(plane, asked[1], "", IMAGE if asked[2] == "images" else DRIVERS)
    return None


def _exec_wish(query: Mapping[str, str]) -> ExecRequest:
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
        stdin=query.get("stdin") in _YES,
        tty=query.get("tty") in _YES,
    )


async def _page(ways: list[CellEndpoint], server: str, wish: LogQuery) -> LogPage | None:
    lines: list[LogLine] = []
    cursor: dict[str, LogPosition] = {}
    for way in ways:
        page = await way.log_page(server, wish)
        lines += page.lines
        cursor |= page.cursor
    return LogPage(lines=lines, cursor=cursor) if cursor else None


async def _usage(ways: list[CellEndpoint], server: str) -> object | None:
    for way in ways:
        if (usage := await way.usage(server)) is not None:
            return usage
    return None


async def _crashes(ways: list[CellEndpoint], server: str) -> CrashReportList | None:
    cards = [card for way in ways for card in await way.crashes(server)]
    return CrashReportList(items=sorted(cards, key=lambda card: card.ended_at)) if cards else None


async def _execution(
    ways: list[CellEndpoint], server: str, wish: ExecRequest
) -> ExecSession | None:
    for way in ways:
        if (session := await way.execute(server, wish)) is not None:
            return session
    return None
