"""One small story, and a crash around each of its commits: small worlds searched exhaustively."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from datum_compute.testing.faults import CrashAtCommit
from datum_compute.testing.layout import WorldLayout, hosts_of
from datum_compute.testing.operations import ChangeImage, CreateWorkload, DeleteWorkload, Scale
from datum_compute.testing.scenario import Scenario
from datum_compute.testing.world import run_scenario

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


def crash_points() -> Iterator[Scenario]:
    """For each layout and host every commit, dead before it is durable and right after."""
    for layout in _LAYOUTS:
        story = small_story(layout)
        commits = run_scenario(story).commits  # of all hosts: none has more
        for host in hosts_of(layout):
            for number in range(1, commits + 1):
                for durable in (False, True):
                    crash = CrashAtCommit(0.0, host, number, durable)
                    yield replace(story, faults=(crash,))
