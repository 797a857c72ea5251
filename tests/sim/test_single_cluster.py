"""Single-cluster mode in virtual time: the same rules hold with two processes."""

from __future__ import annotations

import pytest

from testkit.sim.loop import stream
from testkit.sim.run import single_cluster
from testkit.sim.run.single_cluster import run_single_cluster


@pytest.mark.parametrize("seed", range(1, 7))
def test_single_cluster_worlds_pass(seed: int) -> None:
    drawn = single_cluster.draw_faults(stream(seed, "faults"), 0.0)
    happened = run_single_cluster(seed)
    assert sum(count for sign, count in happened.items() if sign.startswith("fault")) == len(drawn)
