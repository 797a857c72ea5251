"""The order and the number of steps that one pass of the event loop runs."""

from __future__ import annotations

import asyncio
from functools import partial

from datum_compute.server.http.response_writer import STEPS_PER_PASS, ConnectionBatcher


class Batches:
    """Records the steps of each user that a batcher runs, in order."""

    def __init__(self) -> None:
        self.batcher = ConnectionBatcher()
        self.ran: list[str] = []

    def schedule(self, user: str, count: int) -> None:
        for number in range(count):
            self.batcher.schedule(partial(self.ran.append, f"{user}-{number}"), user)

    async def run_pass(self) -> list[str]:
        """Run one pass of the event loop and return the steps that it ran."""
        before = len(self.ran)
        await asyncio.sleep(0)
        return self.ran[before:]


def steps_of(user: str, numbers: range) -> list[str]:
    return [f"{user}-{number}" for number in numbers]


async def test_a_pass_runs_a_limited_number_of_steps() -> None:
    batches = Batches()
    batches.schedule("ann", 2 * STEPS_PER_PASS + 1)
    assert await batches.run_pass() == steps_of("ann", range(STEPS_PER_PASS))
    assert await batches.run_pass() == steps_of("ann", range(STEPS_PER_PASS, 2 * STEPS_PER_PASS))
    assert await batches.run_pass() == [f"ann-{2 * STEPS_PER_PASS}"]
    assert await batches.run_pass() == []


async def test_a_step_of_another_user_runs_before_the_second_step_of_a_flood() -> None:
    batches = Batches()
    batches.schedule("ann", 3 * STEPS_PER_PASS)
    batches.schedule("bob", 1)
    assert (await batches.run_pass())[:3] == ["ann-0", "bob-0", "ann-1"]


async def test_users_take_turns_while_more_steps_wait_than_a_pass_runs() -> None:
    batches = Batches()
    for user in ("ann", "bob", "eve"):
        batches.schedule(user, STEPS_PER_PASS)
    ran = [await batches.run_pass() for _ in range(3)]
    for batch in ran:
        shares = [sum(step.startswith(user) for step in batch) for user in ("ann", "bob", "eve")]
        assert max(shares) - min(shares) <= 1
    for user in ("ann", "bob", "eve"):
        own = [step for batch in ran for step in batch if step.startswith(user)]
        assert own == steps_of(user, range(STEPS_PER_PASS)), "in the order of the user"


async def test_a_user_whose_steps_continue_in_the_next_pass_waits_for_the_others() -> None:
    batches = Batches()
    batches.schedule("ann", STEPS_PER_PASS + 2)
    await batches.run_pass()
    batches.schedule("bob", 2)
    first, second = steps_of("ann", range(STEPS_PER_PASS, STEPS_PER_PASS + 2))
    assert await batches.run_pass() == [first, "bob-0", second, "bob-1"]


async def test_steps_that_a_step_schedules_run_in_the_next_pass() -> None:
    batches = Batches()
    batches.batcher.schedule(partial(batches.schedule, "ann", 1), "ann")
    assert await batches.run_pass() == []
    assert await batches.run_pass() == ["ann-0"]


async def test_a_step_that_fails_does_not_stop_the_others() -> None:
    def fail() -> None:
        raise ValueError

    batches = Batches()
    batches.batcher.schedule(fail, "ann")
    batches.schedule("ann", STEPS_PER_PASS)
    assert await batches.run_pass() == steps_of("ann", range(STEPS_PER_PASS - 1))
    assert await batches.run_pass() == [f"ann-{STEPS_PER_PASS - 1}"]


async def test_responses_of_a_pass_are_written_after_its_last_step() -> None:
    batches = Batches()

    def respond(number: int) -> None:
        batches.ran.append(f"step-{number}")
        assert batches.batcher.on_flush(partial(batches.ran.append, f"write-{number}"))

    for number in range(STEPS_PER_PASS + 1):
        batches.batcher.schedule(partial(respond, number), "ann")
    first = range(STEPS_PER_PASS)
    assert await batches.run_pass() == [*steps_of("step", first), *steps_of("write", first)]
    last = STEPS_PER_PASS
    assert await batches.run_pass() == [f"step-{last}", f"write-{last}"]
