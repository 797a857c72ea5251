"""One small story, and a crash around each of its commits: small worlds searched exhaustively."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from testkit.sim.run.world import run_scenario
from testkit.sim.scenario.faults import CrashAtCommit
from testkit.sim.scenario.layout import WorldLayout, hosts_of
from testkit.sim.scenario.operations import ChangeImage, CreateWorkload, DeleteWorkload, Scale
from testkit.sim.scenario.scenario import Scenario

_LAYOUTS = (
    WorldLayout("one", ("alpha",), ("dfw",)),
    WorldLayout("split", ("alpha",), ("dfw",)),
)


def small_story(layout: WorldLayout) -> Scenario:
    """A whole life: deploy, change the image, scale, destroy."""
    return Scenario(
        seed=1,
        layout=layout,
        operations=(
            CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",)),
            ChangeImage(6.0, "alpha", "web", "web:2"),
            Scale(12.0, "alpha", "web", 1),
            DeleteWorkload(18.0, "alpha", "web"),
        ),
        faults=(),
        chaos_s=24.0,
    )


def small_stories() -> list[Scenario]:
    return [small_story(layout) for layout in _LAYOUTS]


def crash_points() -> Iterator[Scenario]:
    """For each layout and host every commit, dead before it is durable and right after."""
    for story in small_stories():
        commits = run_scenario(story).commits
        for host in hosts_of(story.layout):
            for number in range(1, _last_commit(story, host, commits) + 1):
                for durable in (False, True):
                    yield _with_crash(story, host, number, durable=durable)


def _with_crash(story: Scenario, host: str, number: int, *, durable: bool) -> Scenario:
    return replace(story, faults=(CrashAtCommit(0.0, host, number, durable),))


def _last_commit(story: Scenario, host: str, commits: int) -> int:
    """How often the host commits, of ``commits`` by all: by trying at which it still crashes."""
    low, high = 0, commits
    if len(hosts_of(story.layout)) == 1:
        return commits
    while low < high:
        middle = (low + high + 1) // 2
        if run_scenario(_with_crash(story, host, middle, durable=True)).crashes:
            low = middle
        else:
            high = middle - 1
    return low
