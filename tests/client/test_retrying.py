"""What is sent again, what is not, when, and how often."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, Request, Response
from datum_compute.api.meta.codec import decode, encode
from datum_compute.client.transport.retry import Retries, RetryingTransport
from tests.client.recorded import Answer, Recorded, answer, in_virtual_time, lost, status

DONE = answer({"done": True})
GET = Request("GET", "/a")
NAMED = {"metadata": {"name": "a"}}
GENERATED = {"metadata": {"generateName": "a-"}}
BOUND = [{"op": "test", "path": "/metadata/resourceVersion", "value": "5"}]


def write(method: str, body: Any, content_type: str = JSON) -> Request:
    return Request(method, "/a", {}, {"content-type": content_type}, encode(body))


def sent(transport: Recorded, request: Request, **bounds: Any) -> Response:
    async def test() -> Response:
        retrying = RetryingTransport(transport, Random(1), Retries(**bounds))
        return await retrying.send(request)

    return in_virtual_time(test)


def attempts(failure: Answer, request: Request) -> int:
    transport = Recorded(failure, DONE)
    try:
        sent(transport, request)
    except Unreachable:
        assert len(transport.asked) == 1
    return len(transport.asked)


@pytest.mark.parametrize("failure", [lost(), status(502), status(503), status(504)])
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
def test_what_does_no_harm_when_done_twice_is_sent_again(
    failure: Answer, request_: Request
) -> None:
    assert attempts(failure, request_) == 2


@pytest.mark.parametrize("failure", [lost(), status(502), status(503), status(504)])
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
def test_what_might_happen_twice_is_not_sent_again(failure: Answer, request_: Request) -> None:
    assert attempts(failure, request_) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 500])
def test_an_answer_is_an_answer(code: int) -> None:
    assert attempts(status(code), GET) == 1


def test_too_many_requests_means_that_nothing_was_done_so_everything_is_sent_again() -> None:
    assert attempts(status(429), write("POST", GENERATED)) == 2


def test_retry_after_is_honoured_with_jitter_on_top() -> None:
    transport = Recorded(status(429, retry_after="7"), status(503, retry_after="2"), DONE)
    assert sent(transport, GET) == DONE
    first, second, third = transport.asked_at_s
    assert 7 < second - first < 7.5
    assert 2 < third - second < 3


def test_a_server_that_wants_more_patience_than_there_is_gets_the_last_word() -> None:
    transport = Recorded(status(429, retry_after="600"), DONE)
    assert sent(transport, GET).status == 429
    assert len(transport.asked) == 1


@pytest.mark.parametrize("retry_after", ["Wed, 21 Oct 2015 07:28:00 GMT", "-1", "\u00b2", ""])
def test_a_retry_after_that_is_no_number_is_passed_over(retry_after: str) -> None:
    transport = Recorded(status(429, retry_after=retry_after), DONE)
    assert sent(transport, GET) == DONE


def test_attempts_are_bounded_and_the_last_outcome_is_handed_on() -> None:
    transport = Recorded(*(status(503) for _ in range(9)))
    assert sent(transport, GET, attempts=3).status == 503
    assert len(transport.asked) == 3
    silent = Recorded(*(lost(f"number {n}") for n in range(9)))
    with pytest.raises(Unreachable, match="number 2"):
        sent(silent, GET, attempts=3)


def test_delays_grow_and_two_clients_do_not_come_back_together() -> None:
    def delays(seed: int) -> list[float]:
        transport = Recorded(*(status(503) for _ in range(5)))

        async def test() -> None:
            await RetryingTransport(transport, Random(seed)).send(GET)

        in_virtual_time(test)
        moments = transport.asked_at_s
        return [later - earlier for earlier, later in pairwise(moments)]

    assert delays(1) != delays(2)
    assert all(later > earlier for earlier, later in pairwise(delays(1)))


def test_a_watch_is_left_to_those_who_resume_it() -> None:
    assert attempts(status(503), Request("GET", "/a", {"watch": "1"})) == 1


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (write("POST", NAMED), status(409, "AlreadyExists", "a exists")),
        (write("PUT", NAMED), status(409, "Conflict", "changed meanwhile")),
        (Request("DELETE", "/a"), status(404, "NotFound", "no a")),
    ],
    ids=["create", "update", "delete"],
)
def test_a_refusal_that_our_own_first_attempt_may_have_caused_says_so(
    request_: Request, refusal: Response
) -> None:
    after_doubt = decode(sent(Recorded(lost(), refusal), request_).body)
    assert "may have made this very change" in after_doubt["message"]
    assert after_doubt["reason"] == decode(refusal.body)["reason"]
    assert sent(Recorded(status(429), refusal), request_) == refusal
    assert sent(Recorded(refusal), request_) == refusal
