"""A transport that retries requests if a retry cannot apply a write twice.

Rules:
- After 429 the server did not process the request, so any request is retried after Retry-After.
- After no response, 502, 503 or 504 it is unknown whether the write was applied. Only idempotent
  requests are retried: reads, writes of a named object, and writes with a resourceVersion. A POST
  with a generated name and a JSON patch without a resourceVersion are not idempotent.
- If a retry fails because the first attempt was applied, the error message mentions that.
- Attempts and time are limited. The last response or error is returned unchanged.
- Watches are not retried, because ``client.watch.follow`` resumes them. Upgrade requests are not
  retried, because a second one could start a second session.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec.structs import replace

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import JSON_PATCH, Request, Response, is_upgrade
from datum_compute.api.meta.codec import DecodeError, decode, encode
from datum_compute.client.transport.interface import Transport, is_watch

# --- Exponential backoff with jitter, so that clients do not retry at the same time


@dataclass(frozen=True, slots=True)
class Backoff:
    first_s: float = 0.05
    most_s: float = 30.0

    def delay_s(self, failures: int, random: Random | None) -> float:
        """Return the delay after so many failures: first, 2 x first, 4 x first ... up to most.

        With ``random``, the delay is between half of that and all of it.
        """
        grown = min(self.most_s, self.first_s * float(2 ** min(failures - 1, 30)))
        return grown * (0.5 + random.random() / 2) if random is not None else grown


# --- retrying


_NOT_PROCESSED = 429
_OUTCOME_UNKNOWN = (502, 503, 504)
_BACKOFF = Backoff(first_s=0.2, most_s=5.0)
_HINT = "an earlier attempt was not answered and may have made this very change"


@dataclass(frozen=True, slots=True)
class Retries:
    """The limits of attempts and of time since the first attempt."""

    attempts: int = 5
    time_limit_s: float = 30.0
    backoff: Backoff = _BACKOFF


class RetryingTransport:
    def __init__(self, inner: Transport, random: Random, retries: Retries | None = None) -> None:
        self._inner = inner
        self._random = random
        self._retries = retries or Retries()

    async def send(self, request: Request) -> Response:
        if is_watch(request) or is_upgrade(request):
            return await self._inner.send(request)
        clock = asyncio.get_running_loop().time
        give_up_s = clock() + self._retries.time_limit_s
        is_unknown = False  # whether an earlier attempt was applied
        for attempt in range(1, self._retries.attempts + 1):
            outcome = await self._attempt(request)
            delay_s = self._delay_s(attempt, outcome)
            if (
                not _may_repeat(request, outcome)
                or attempt == self._retries.attempts
                or clock() + delay_s > give_up_s
            ):
                break
            is_unknown = is_unknown or _is_unknown(outcome)
            await asyncio.sleep(delay_s)
        if isinstance(outcome, Unreachable):
            raise outcome
        return _with_hint(request, outcome) if is_unknown else outcome

    async def _attempt(self, request: Request) -> Response | Unreachable:
        try:
            return await self._inner.send(request)
        except Unreachable as error:
            return error

    def _delay_s(self, attempt: int, outcome: Response | Unreachable) -> float:
        delay_s = self._retries.backoff.delay_s(attempt, self._random)
        # Add jitter to Retry-After, so that not all clients return at the same time.
        return delay_s + (_retry_after_s(outcome) if isinstance(outcome, Response) else 0.0)


def is_idempotent(request: Request) -> bool:
    """Return True if sending the request twice has the same effect as sending it once."""
    match request.method:
        case "GET" | "HEAD" | "PUT" | "DELETE":
            return True
        case "POST":
            return _names_its_object(_body(request))
        case "PATCH" if request.headers.get("content-type", "").startswith(JSON_PATCH):
            return _is_bound_to_a_version(_body(request))
        case "PATCH":
            return True
        case _:
            return False


def _may_repeat(request: Request, outcome: Response | Unreachable) -> bool:
    if isinstance(outcome, Response) and outcome.status == _NOT_PROCESSED:
        return True
    return _is_unknown(outcome) and is_idempotent(request)


def _is_unknown(outcome: Response | Unreachable) -> bool:
    return isinstance(outcome, Unreachable) or outcome.status in _OUTCOME_UNKNOWN


def _names_its_object(body: Any) -> bool:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return isinstance(metadata, dict) and bool(metadata.get("name"))


def _is_bound_to_a_version(operations: Any) -> bool:
    return isinstance(operations, list) and any(
        isinstance(step, dict)
        and step.get("path") == "/metadata/resourceVersion"
        and step.get("op") in ("test", "replace", "add")
        for step in operations
    )


def _body(request: Request) -> Any:
    try:
        return decode(request.body)
    except DecodeError:
        return None


def _retry_after_s(response: Response) -> float:
    """Return the seconds of the Retry-After header. A date in that header is ignored."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _with_hint(request: Request, response: Response) -> Response:
    """Add a hint to an error that our own earlier attempt may have caused."""
    expected = {"DELETE": 404}.get(request.method, 409)
    if request.method in ("GET", "HEAD") or response.status != expected:
        return response
    try:
        status = decode(response.body)
    except DecodeError:
        return response
    if not isinstance(status, dict):
        return response
    message = f"{status.get('message', '')} ({_HINT})"
    return replace(response, body=encode({**status, "message": message}))
