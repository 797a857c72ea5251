"""A transport that tries again, as long as that cannot do a thing twice.

Rules it keeps:
- 429 means that the server did nothing: any request may be sent again, after its Retry-After.
- After no answer, 502, 503 or 504 nobody knows whether the write happened. Then only requests
  are sent again that do no harm when done twice: reads, writes of one named object, writes bound
  to a version. A POST that lets the server choose the name is none of them, nor is a JSON patch
  that is not bound to a version.
- If such a second attempt is refused because the first one did happen, the message says so.
- It is bounded, in attempts and in time; the last answer or error is handed on as it came.
- Watches are left alone: ``watching.follow`` resumes them. So is what leaves HTTP: sent twice, it
  might begin something twice.
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

# --- Exponential delays with jitter, so that what failed together does not return together


@dataclass(frozen=True, slots=True)
class Backoff:
    first_s: float = 0.05
    most_s: float = 30.0

    def delay_s(self, failures: int, random: Random | None) -> float:
        """Between half and the whole of first, 2 x first, 4 x first ... up to most.

        Without ``random`` the whole of it.
        """
        grown = min(self.most_s, self.first_s * float(2 ** min(failures - 1, 30)))
        return grown * (0.5 + random.random() / 2) if random is not None else grown


# --- retrying


_REFUSED_UNDONE = 429
_IN_DOUBT = (502, 503, 504)
_BACKOFF = Backoff(first_s=0.2, most_s=5.0)
_DOUBT_TEXT = "an earlier attempt was not answered and may have made this very change"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and for how long, counted from the first attempt."""

    attempts: int = 5
    patience_s: float = 30.0
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
        give_up_s = clock() + self._retries.patience_s
        in_doubt = False
        for attempt in range(1, self._retries.attempts + 1):
            outcome = await self._attempt(request)
            delay_s = self._delay_s(attempt, outcome)
            if (
                not _may_repeat(request, outcome)
                or attempt == self._retries.attempts
                or clock() + delay_s > give_up_s
            ):
                break
            in_doubt = in_doubt or _is_in_doubt(outcome)
            await asyncio.sleep(delay_s)
        if isinstance(outcome, Unreachable):
            raise outcome
        return _with_doubt(request, outcome) if in_doubt else outcome

    async def _attempt(self, request: Request) -> Response | Unreachable:
        try:
            return await self._inner.send(request)
        except Unreachable as error:
            return error

    def _delay_s(self, attempt: int, outcome: Response | Unreachable) -> float:
        delay_s = self._retries.backoff.delay_s(attempt, self._random)
        # Jitter comes on top of what the server asks for, or all would return at once.
        return delay_s + (_retry_after_s(outcome) if isinstance(outcome, Response) else 0.0)


def is_idempotent(request: Request) -> bool:
    """Whether doing it twice is the same as doing it once, apart from the second answer."""
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
    if isinstance(outcome, Response) and outcome.status == _REFUSED_UNDONE:
        return True
    return _is_in_doubt(outcome) and is_idempotent(request)


def _is_in_doubt(outcome: Response | Unreachable) -> bool:
    return isinstance(outcome, Unreachable) or outcome.status in _IN_DOUBT


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
    """Seconds that the server asks us to stay away; a date in that header is not understood."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _with_doubt(request: Request, response: Response) -> Response:
    """A refusal that our own first attempt may have caused, with a word about that."""
    own = {"DELETE": 404}.get(request.method, 409)
    if request.method in ("GET", "HEAD") or response.status != own:
        return response
    try:
        status = decode(response.body)
    except DecodeError:
        return response
    if not isinstance(status, dict):
        return response
    message = f"{status.get('message', '')} ({_DOUBT_TEXT})"
    return replace(response, body=encode({**status, "message": message}))
