"""Checks of what clients observe: confirmed writes, watch streams and log lines.

- I10: a confirmed write is durable.
- I11: a write replaced the version that the client specified.
- I9: a watch returns exactly the commits after its resume version: none missing, none repeated, in
  order. The link of the watching client is sound; hosts may crash and histories may be compacted.
- I18, I20: no log line contains a token, and no exception is unexpected.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from datum_compute.api.errors import ApiError, Expired, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import ApiStruct, DecodeError, JsonObject, decode_as
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import PlaneName, split_path
from datum_compute.client.client import Client
from datum_compute.client.responses import WatchEvent
from datum_compute.drivers.driver import DriverError
from testkit.sim.checks.state import ClusterState


def find_confirmation_violations(
    state: ClusterState, request: Request, response: Response
) -> Iterator[str]:
    if request.method == "GET" or response.status >= 300:
        return
    confirmed_version = _version_in(response.body)
    if not confirmed_version:
        return
    plane = split_path(request.path)[0]
    if int(confirmed_version) > state.versions.get(plane, 0):
        yield f"I10: {request.path} was confirmed at {confirmed_version} before it was durable"
    if request.method in ("PATCH", "PUT"):
        named_version = _version_in(request.body)
        replaced = state.replaced.get((plane, int(confirmed_version)))
        if (
            named_version
            and named_version != confirmed_version
            and replaced not in (None, named_version)
        ):
            yield (
                f"I11: {request.path} at {confirmed_version} named version {named_version} "
                f"and replaced {replaced}"
            )


class _Metadata(ApiStruct, frozen=True):
    resource_version: str = ""


class _ObjectWithVersion(ApiStruct, frozen=True):
    """The only field that is decoded of each response: this check runs for every request."""

    metadata: _Metadata = _Metadata()


def _version_in(body: bytes) -> str:
    """Return the version of an object, or the empty string if the body is not an object."""
    try:
        return decode_as(body, _ObjectWithVersion).metadata.resource_version
    except DecodeError:
        return ""


class WatchMirror:
    def __init__(
        self,
        client: Client,
        plane: PlaneName,
        kind: KindInfo[Any],
        state: ClusterState,
        report_violation: Callable[[str], None],
    ) -> None:
        self._client = client
        self.plane = plane
        self._kind = kind
        self._state = state
        self._report_violation = report_violation
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

    def find_missing(self) -> str:
        """Compare the state of the watch with the rows of a settled world."""
        rows = {
            Ref(key.namespace, key.name): row["metadata"]["resourceVersion"]
            for key, row in self._state.rows_of(self.plane, self._kind.resource)
        }
        if rows == self._shown:
            return ""
        return f"I9: a watch of {self._kind.plural} on {self.plane} differs from the rows"

    async def _list(self) -> int:
        listed = await self._client.list_plain(self._kind)
        self._shown = {_ref(item): item["metadata"]["resourceVersion"] for item in listed.items}
        return int(listed.version)

    def _take(self, event: WatchEvent[JsonObject], since: int) -> int:
        version = int(event.version)
        if event.object is None or event.type == "BOOKMARK":
            return max(since, version)
        commit_log = self._state.commit_log.get((self.plane, self._kind.resource), [])
        place = bisect_right(commit_log, since)
        if place >= len(commit_log) or commit_log[place] != version:
            expected_version = commit_log[place] if place < len(commit_log) else None
            self._report_violation(
                f"I9: a watch of {self._kind.plural} on {self.plane} received {version} after "
                f"{since}, the next commit was {expected_version}"
            )
        if event.type == "DELETED":
            self._shown.pop(_ref(event.object), None)
        else:
            self._shown[_ref(event.object)] = event.version
        return version


def _ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


class LogChecker(logging.Handler):
    """Checks each log record: an unexpected exception is a bug (I20, F27), and no line may contain
    a token (I18)."""

    def __init__(self, report_violation: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._report_violation = report_violation
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
            self._report_violation(f"I18: a log line contains a token: {record.name}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, ApiError | DriverError):
            self._report_violation(f"I20: unexpected: {text}: {error!r}")
