"""Which requests are retried, when, and how often."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, Request, Response
from datum_compute.api.meta.codec import decode, encode
from datum_compute.client.transport.retry import Retries, RetryingTransport
from tests.client.replay_transport import (
    ReplayTransport,
    ResponseOrError,
    in_virtual_time,
    json_response,
    status,
    unreachable,
)

DONE = json_response({"done": True})
GET = Request("GET", "/a")
NAMED = {"metadata": {"name": "a"}}
GENERATED = {"metadata": {"generateName": "a-"}}
BOUND = [{"op": "test", "path": "/metadata/resourceVersion", "value": "5"}]


def write(method: str, body: Any, content_type: str = JSON) -> Request:
    return Request(method, "/a", {}, {"content-type": content_type}, encode(body))


def send_with_retries(transport: ReplayTransport, request: Request, **bounds: Any) -> Response:
    async def test() -> Response:
        retrying = RetryingTransport(transport, Random(1), Retries(**bounds))
        return await retrying.send(request)

    return in_virtual_time(test)


def count_attempts(failure: ResponseOrError, request: Request) -> int:
    transport = ReplayTransport(failure, DONE)
    try:
        send_with_retries(transport, request)
    except Unreachable:
        assert len(transport.requests) == 1
    return len(transport.requests)


@pytest.mark.parametrize("failure", [unreachable(), status(502), status(503), status(504)])
@pytest.mark.parametrize(
    "request_",
    [
        GET,
        Request("DELETE", "/a"),
        write("POST", NAMED),
        write("PUT", NAMED),
        write("PATCH", {"spec": {}}, MERGE_PATCH),
        write("PATCH", NAMED, APPLY_PATCH),
        write("PATCH", [*BOUND, {"op": "add", "path": "/spec/a/-", "value": 1}], JSON_PATCH),
    ],
    ids=lambda r: f"{r.method} {r.headers.get('content-type', '')}",
)
def test_idempotent_requests_are_retried(failure: ResponseOrError, request_: Request) -> None:
    assert count_attempts(failure, request_) == 2


@pytest.mark.parametrize("failure", [unreachable(), status(502), status(503), status(504)])
@pytest.mark.parametrize(
    "request_",
    [
        write("POST", GENERATED),
        write("POST", {"spec": {"user": "a review has no name"}}),
        Request("POST", "/a", {}, {}, b"not json"),
        write("PATCH", [{"op": "add", "path": "/spec/a/-", "value": 1}], JSON_PATCH),
    ],
    ids=["generateName", "nameless", "not json", "unbound JSON patch"],
)
def test_requests_that_are_not_idempotent_are_not_retried(
    failure: ResponseOrError, request_: Request
) -> None:
    assert count_attempts(failure, request_) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 500])
def test_other_status_codes_are_not_retried(code: int) -> None:
    assert count_attempts(status(code), GET) == 1


def test_every_request_is_retried_after_code_429() -> None:
    assert count_attempts(status(429), write("POST", GENERATED)) == 2


def test_the_delay_is_retry_after_plus_jitter() -> None:
    transport = ReplayTransport(status(429, retry_after="7"), status(503, retry_after="2"), DONE)
    assert send_with_retries(transport, GET) == DONE
    first, second, third = transport.sent_at_s
    assert 7 < second - first < 7.5
    assert 2 < third - second < 3


def test_a_long_retry_after_is_not_awaited() -> None:
    transport = ReplayTransport(status(429, retry_after="600"), DONE)
    assert send_with_retries(transport, GET).status == 429
    assert len(transport.requests) == 1


@pytest.mark.parametrize("retry_after", ["Wed, 21 Oct 2015 07:28:00 GMT", "-1", "\u00b2", ""])
def test_an_invalid_retry_after_is_ignored(retry_after: str) -> None:
    transport = ReplayTransport(status(429, retry_after=retry_after), DONE)
    assert send_with_retries(transport, GET) == DONE


def test_attempts_are_limited_and_the_last_result_is_returned() -> None:
    transport = ReplayTransport(*(status(503) for _ in range(9)))
    assert send_with_retries(transport, GET, attempts=3).status == 503
    assert len(transport.requests) == 3
    silent = ReplayTransport(*(unreachable(f"number {n}") for n in range(9)))
    with pytest.raises(Unreachable, match="number 2"):
        send_with_retries(silent, GET, attempts=3)


def test_delays_grow_and_differ_between_clients() -> None:
    def delays(seed: int) -> list[float]:
        transport = ReplayTransport(*(status(503) for _ in range(5)))

        async def test() -> None:
            await RetryingTransport(transport, Random(seed)).send(GET)

        in_virtual_time(test)
        moments = transport.sent_at_s
        return [later - earlier for earlier, later in pairwise(moments)]

    assert delays(1) != delays(2)
    assert all(later > earlier for earlier, later in pairwise(delays(1)))


def test_a_watch_is_not_retried() -> None:
    assert count_attempts(status(503), Request("GET", "/a", {"watch": "1"})) == 1


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (write("POST", NAMED), status(409, "AlreadyExists", "a exists")),
        (write("PUT", NAMED), status(409, "Conflict", "changed meanwhile")),
        (Request("DELETE", "/a"), status(404, "NotFound", "no a")),
    ],
    ids=["create", "update", "delete"],
)
def test_the_error_of_a_retry_states_that_the_first_attempt_may_have_succeeded(
    request_: Request, refusal: Response
) -> None:
    after_unknown_result = decode(
        send_with_retries(ReplayTransport(unreachable(), refusal), request_).body
    )
    assert "may have made this very change" in after_unknown_result["message"]
    assert after_unknown_result["reason"] == decode(refusal.body)["reason"]
    assert send_with_retries(ReplayTransport(status(429), refusal), request_) == refusal
    assert send_with_retries(ReplayTransport(refusal), request_) == refusal
