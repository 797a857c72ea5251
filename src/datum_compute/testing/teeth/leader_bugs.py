"""Bugs between several managers of which one leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from datum_compute.runtime.leader_election import Fence
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced


@contextmanager
def _paused_leader_writes() -> Iterator[None]:
    """Who has led once goes on until it hears of another; nothing is asked before a write."""
    with attribute_replaced(Fence, "check", lambda _: lambda _self: None):
        yield


BUGS = (
    PlantedBug(
        "paused-leader-writes",
        "a lock without a fence: a leader that slept past its lease writes: Jepsen, etcd (F16)",
        _paused_leader_writes,
        meets=("2 managers",),
    ),
)
