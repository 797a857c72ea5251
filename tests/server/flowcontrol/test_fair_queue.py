"""The order in which waiting work is served. Costs are given, so every order is exact."""

from __future__ import annotations

from collections import Counter

import pytest

from datum_compute.server.access.authentication import User
from datum_compute.server.flowcontrol import fair_queue
from datum_compute.server.flowcontrol.fair_queue import (
    ANONYMOUS,
    EXEMPT,
    LEADER_ELECTION,
    SYSTEM,
    USERS,
    FairQueue,
    Flow,
    PriorityLevel,
    level_of,
)

Queue = FairQueue[str]


def flow(queue: Queue, plane: str, user: str = "ann") -> Flow[str]:
    return queue.flow(USERS, plane, user)


def fill(queue: Queue, of: Flow[str], count: int) -> None:
    for _ in range(count):
        queue.push(of, of.plane if of.level is USERS else of.level.name)


def serve(queue: Queue, count: int, costs_s: dict[str, float] | None = None) -> list[str]:
    """Return the served items. Each costs the time that belongs to its name."""
    served = []
    for _ in range(count):
        found = queue.pop()
        if found is None:
            break
        of, item = found
        estimate_s = of.estimate_s
        queue.settle(of, estimate_s, (costs_s or {}).get(item, 1.0))
        served.append(item)
    return served


def test_two_planes_with_equal_costs_take_turns() -> None:
    queue = Queue()
    fill(queue, flow(queue, "a"), 100)
    fill(queue, flow(queue, "b"), 100)
    assert Counter(serve(queue, 100)) == {"a": 50, "b": 50}


def test_a_plane_with_expensive_requests_gets_as_much_time_and_not_as_many_requests() -> None:
    queue = Queue()
    fill(queue, flow(queue, "lists"), 1000)
    fill(queue, flow(queue, "gets"), 1000)
    served = Counter(serve(queue, 440, {"lists": 0.010, "gets": 0.001}))
    assert 38 <= served["lists"] <= 42, served


def test_a_newcomer_is_served_next_however_many_planes_are_waiting() -> None:
    queue = Queue()
    for number in range(200):
        fill(queue, flow(queue, f"p{number}"), 50)
    serve(queue, 1000)
    fill(queue, flow(queue, "quiet"), 1)
    assert serve(queue, 2).count("quiet") == 1


def test_ten_thousand_requests_of_one_plane_delay_another_plane_by_one_request() -> None:
    queue = Queue()
    fill(queue, flow(queue, "flood"), 10_000)
    serve(queue, 10)
    for _ in range(100):  # one at a time, as a client that waits for each response
        fill(queue, flow(queue, "quiet"), 1)
        assert "quiet" in serve(queue, 2)


def test_idle_time_gives_no_credit() -> None:
    queue = Queue()
    busy, idle = flow(queue, "busy"), flow(queue, "idle")
    fill(queue, busy, 1000)
    serve(queue, 500)
    fill(queue, idle, 100)
    assert Counter(serve(queue, 100)) == {"busy": 50, "idle": 50}


def test_many_users_of_one_plane_share_the_part_of_that_plane() -> None:
    queue = Queue()
    for number in range(50):
        fill(queue, flow(queue, "crowd", f"bot-{number}"), 20)
    fill(queue, flow(queue, "alone"), 100)
    assert Counter(serve(queue, 100)) == {"crowd": 50, "alone": 50}


def test_users_of_a_plane_take_turns() -> None:
    queue = Queue()
    flood, quiet = flow(queue, "p", "flood"), flow(queue, "p", "quiet")
    for _ in range(100):
        queue.push(flood, "flood")
    serve(queue, 20)
    for _ in range(10):
        queue.push(quiet, "quiet")
    assert serve(queue, 20).count("quiet") == 10


def test_levels_share_by_weight_and_lend_what_they_do_not_use() -> None:
    queue = Queue()
    fill(queue, queue.flow(SYSTEM, "hub", "manager"), 2000)
    fill(queue, flow(queue, "a"), 2000)
    fill(queue, queue.flow(ANONYMOUS, "a", "anonymous"), 2000)
    served = Counter(serve(queue, 910))
    assert abs(served["system"] - 600) <= 2, served
    assert abs(served["a"] - 300) <= 2, served
    assert abs(served["anonymous"] - 10) <= 2, served
    only_anonymous = Queue()
    fill(only_anonymous, only_anonymous.flow(ANONYMOUS, "a", "anonymous"), 10)
    assert len(serve(only_anonymous, 20)) == 10


def test_a_flow_that_used_less_than_its_share_has_no_debt() -> None:
    queue = Queue()
    flood, quiet = flow(queue, "flood"), flow(queue, "quiet")
    queue.charge(quiet, 1.0)
    for _ in range(3):
        queue.charge(flood, 1.0)
    assert queue.is_over_share(flood)
    assert not queue.is_over_share(quiet)


def test_a_busy_period_does_not_count_what_was_used_before_it() -> None:
    queue = Queue()
    before, quiet = flow(queue, "a"), flow(queue, "b")
    queue.charge(before, 5.0)
    queue.charge(quiet, 1.0)
    assert queue.is_over_share(before)
    queue.start_busy_period()
    assert not queue.is_over_share(before)
    queue.charge(quiet, 1.0)
    assert queue.is_over_share(quiet)
    fill(queue, quiet, 1)
    fill(queue, before, 1)
    assert serve(queue, 2) == ["a", "b"]


def test_a_busy_period_does_not_count_what_a_user_of_a_plane_used_before_it() -> None:
    queue = Queue()
    ann, bob = flow(queue, "a", "ann"), flow(queue, "a", "bob")
    queue.charge(ann, 5.0)
    queue.start_busy_period()
    queue.charge(bob, 1.0)
    queue.push(bob, "bob")
    queue.push(ann, "ann")
    assert serve(queue, 2) == ["ann", "bob"]


def test_the_rest_of_begun_work_comes_before_new_work_of_its_flow() -> None:
    queue = Queue()
    own = flow(queue, "p")
    queue.push(own, "new")
    queue.push(own, "rest", first=True)
    assert serve(queue, 2) == ["rest", "new"]


def push_request(queue: Queue, of: Flow[str], item: str) -> None:
    queue.push(of, item)
    of.requests += 1


def is_request(item: str) -> bool:
    return not item.startswith("begun")


def test_a_full_level_loses_the_newest_request_of_its_longest_queue() -> None:
    queue = Queue()
    flood, quiet = flow(queue, "flood"), flow(queue, "quiet")
    for number in range(5):
        push_request(queue, flood, f"flood-{number}")
    push_request(queue, quiet, "quiet-0")
    assert queue.pop_newest(USERS, is_request) == (flood, "flood-4")
    assert queue.pop_newest(SYSTEM, is_request) is None
    assert sorted(serve(queue, 10)) == [*(f"flood-{n}" for n in range(4)), "quiet-0"]
    assert len(queue) == 0
    flood.requests = quiet.requests = 0
    push_request(queue, quiet, "last")
    assert queue.pop_newest(USERS, is_request) == (quiet, "last")
    assert queue.pop() is None


def test_work_that_has_begun_stays_in_a_full_level() -> None:
    queue = Queue()
    watches, requests = flow(queue, "watches"), flow(queue, "requests")
    for _ in range(10):
        queue.push(watches, "begun")
    assert queue.pop_newest(USERS, is_request) is None
    push_request(queue, requests, "request")
    queue.push(requests, "begun")
    assert queue.pop_newest(USERS, is_request) == (requests, "request")
    assert serve(queue, 20) == ["begun"] * 11


def test_a_flow_that_was_dropped_while_idle_is_found_when_it_waits_again() -> None:
    queue = Queue()
    dropped, kept = flow(queue, "p", "dropped"), flow(queue, "p", "kept")
    queue.push(kept, "begun")
    for number in range(fair_queue.FLOWS_MAX):
        flow(queue, f"p{number}")
    assert flow(queue, "p", "dropped") is not dropped
    push_request(queue, dropped, "request")
    assert queue.pop_newest(USERS, is_request) == (dropped, "request")


def test_work_that_cost_less_than_estimated_counts_with_its_cost() -> None:
    queue = Queue()
    mixed, even = flow(queue, "p", "mixed"), flow(queue, "p", "even")
    mixed.estimate_s = even.estimate_s = 0.3
    for _ in range(400):
        queue.push(mixed, "mixed")
        queue.push(even, "even")
    used_s = {"mixed": 0.0, "even": 0.0}
    for number in range(400):
        found = queue.pop()
        assert found is not None
        of, item = found
        cost_s = 3.0 if item == "mixed" and number % 10 == 0 else 0.3
        queue.settle(of, of.estimate_s, cost_s)
        used_s[item] += cost_s
    assert abs(used_s["mixed"] - used_s["even"]) <= 6.0, used_s


def test_idle_flows_are_dropped_and_waiting_ones_are_kept() -> None:
    queue = Queue()
    waiting = flow(queue, "waiting")
    queue.push(waiting, "waiting")
    for number in range(3 * fair_queue.FLOWS_MAX):
        flow(queue, f"p{number}")
    assert queue.count_flows() <= fair_queue.FLOWS_MAX
    assert flow(queue, "waiting") is waiting
    assert serve(queue, 2) == ["waiting"]


# --- the priority level of a request


@pytest.mark.parametrize(
    ("name", "groups", "resource", "level"),
    [
        ("root", ("system:masters",), "workloads", EXEMPT),
        ("system:compute-manager", (), "instances", SYSTEM),
        ("system:compute-manager", (), "leases", LEADER_ELECTION),
        ("system:operator", (), "projects", SYSTEM),
        ("system:hub", (), "workloaddeployments", SYSTEM),
        ("system:cell:dfw", ("system:cells",), "instances", SYSTEM),
        ("system:cell:dfw", ("system:cells",), "leases", LEADER_ELECTION),
        ("ann", ("system:authenticated",), "workloads", USERS),
        ("ann", ("system:authenticated",), "leases", USERS),
        ("system:serviceaccount:default:bot", ("system:serviceaccounts",), "workloads", USERS),
        ("system:joiner:join-1", ("system:joiners",), "celljoins", USERS),
    ],
)
def test_the_sender_and_the_resource_decide_the_level(
    name: str, groups: tuple[str, ...], resource: str, level: PriorityLevel
) -> None:
    assert level_of(User(name, groups), resource) is level


def test_a_request_without_valid_credentials_is_anonymous() -> None:
    assert level_of(None) is ANONYMOUS
