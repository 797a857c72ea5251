"""What a server confirms: I10, it is durable; I11, it replaced what it said it would.

A reader that replays a watch and compares every event with the log of commits (I9).

Its own link is sound; hosts may die under it, and histories may be gone. Whatever happens, the
events it gets are exactly the commits after the version it asked for: none missing, none twice,
none out of order.

Hears what the product logs while a world runs.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from datum_compute.api.codec import ApiStruct, DecodeError, JsonObject, decode_as
from datum_compute.api.errors import ApiError, Expired, Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName, split_path
from datum_compute.client.answers import WatchEvent
from datum_compute.client.client import Client
from datum_compute.drivers.driver import DriverError
from testkit.sim.checks.state import Truth


def broken_promises(truth: Truth, request: Request, response: Response) -> Iterator[str]:
    if request.method == "GET" or response.status >= 300:
        return
    answered = _version_in(response.body)
    if not answered:
        return
    plane = split_path(request.path)[0]
    if int(answered) > truth.versions.get(plane, 0):
        yield f"I10: {request.path} confirmed at {answered}, not yet durable"
    if request.method in ("PATCH", "PUT"):
        asked = _version_in(request.body)
        replaced = truth.replaced.get((plane, int(answered)))
        if asked and asked != answered and replaced not in (None, asked):
            yield f"I11: {request.path} at {answered} meant {asked} and replaced {replaced}"


class _Metadata(ApiStruct, frozen=True):
    resource_version: str = ""


class _Versioned(ApiStruct, frozen=True):
    """The one thing that is looked at in every answer; the rest is not even made into objects."""

    metadata: _Metadata = _Metadata()


def _version_in(body: bytes) -> str:
    """Of an object; nothing in what is none."""
    try:
        return decode_as(body, _Versioned).metadata.resource_version
    except DecodeError:
        return ""


class Mirror:
    def __init__(
        self,
        client: Client,
        plane: PlaneName,
        kind: KindInfo[Any],
        truth: Truth,
        complain: Callable[[str], None],
    ) -> None:
        self._client = client
        self.plane = plane
        self._kind = kind
        self._truth = truth
        self._complain = complain
        self._shown: dict[Ref, str] = {}

    async def run(self) -> None:
        since = 0
        while True:
            try:
                since = since or await self._list()
                async for event in self._client.watch_plain(self._kind, str(since)):
                    since = self._take(event, since)
            except Expired:
                since = 0
            except (ApiError, Unreachable):
                await asyncio.sleep(0.5)

    def what_is_missing(self) -> str:
        """What it shows after the calm, compared with the rows."""
        rows = {
            Ref(key.namespace, key.name): row["metadata"]["resourceVersion"]
            for key, row in self._truth.of_resource(self.plane, self._kind.resource)
        }
        if rows == self._shown:
            return ""
        return f"I9: a watch of {self._kind.plural} on {self.plane} does not show what is there"

    async def _list(self) -> int:
        listed = await self._client.list_plain(self._kind)
        self._shown = {_ref(item): item["metadata"]["resourceVersion"] for item in listed.items}
        return int(listed.version)

    def _take(self, event: WatchEvent[JsonObject], since: int) -> int:
        version = int(event.version)
        if event.object is None or event.type == "BOOKMARK":
            return max(since, version)
        log = self._truth.log.get((self.plane, self._kind.resource), [])
        place = bisect_right(log, since)
        if place >= len(log) or log[place] != version:
            awaited = log[place] if place < len(log) else None
            self._complain(
                f"I9: a watch of {self._kind.plural} on {self.plane} told {version} after {since}"
                f", the next commit was {awaited}"
            )
        if event.type == "DELETED":
            self._shown.pop(_ref(event.object), None)
        else:
            self._shown[_ref(event.object)] = event.version
        return version


def _ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


class Listening(logging.Handler):
    """Hears what the product logs: an exception that nobody expected is a bug (I20, F27), and no
    line may hold a token (I18)."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._complain = complain
        self._logger = logging.getLogger("datum_compute")

    def __enter__(self) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "token-of-" in text:
            self._complain(f"I18: a log line holds a token: {record.name}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, ApiError | DriverError):
            self._complain(f"I20: unexpected: {text}: {error!r}")
