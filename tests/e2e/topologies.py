"""The seam between the end-to-end suites and what they run on.

A ``Topology`` is planes that are served somewhere, controllers beside them, and somebody who
carries objects from the hub to the cells. Tests ask it for an API, for the command line, and to
kill or pause parts; they do not know what it is made of. The fixture ``topology`` (conftest.py)
gives each suite one of every kind in ``TOPOLOGIES`` that is chosen by marker.

To add one: a class with what ``Topology`` asks for, a fixture ``<name>_topology`` that starts and
stops it, and a line in ``TOPOLOGIES``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.e2e.processes import HUB, Api

# The part of a topology that is no cell: controllers beside projects and hub, and what they need.
CENTRE = HUB

# Name -> the marker that a run must ask for (``make test-kubernetes``).
TOPOLOGIES: tuple[Any, ...] = (
    "embedded",
    pytest.param("kubernetes", marks=pytest.mark.kubernetes),
    pytest.param("karmada", marks=(pytest.mark.kubernetes, pytest.mark.karmada)),
    pytest.param("mixed", marks=(pytest.mark.kubernetes, pytest.mark.karmada)),
)


def cell(topology: Topology, name: str) -> Api:
    """One cell, as its controllers see it."""
    return topology.api(f"cell/{name}", manager=True)


class Topology(Protocol):
    """One project ``default``, a hub, and a cell for each of the cities DFW and ORD."""

    @property
    def cells(self) -> tuple[str, ...]: ...

    @property
    def propagator(self) -> str:
        """Who brings objects to the cells: ``ours`` or ``karmada``."""

    @property
    def patience_s(self) -> float:
        """How long news may take, outages of seconds included."""

    @property
    def kubeconfig(self) -> Path:
        """A context for each plane, for an administrator."""

    def api(self, context: str, *, manager: bool = False) -> Api:
        """As an administrator of the plane; as the controllers where users may not look."""

    def gateway(self) -> Api:
        """Whom people of the project ask about their instances."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``datumctl compute ...`` in the project."""

    def kill(self, part: str) -> None:
        """The centre or a cell, as a power cut would: plane and controllers, no farewell."""

    def start(self, part: str) -> None:
        """One part alone, until its own plane answers."""

    def pause(self, part: str) -> None:
        """It keeps its connections and answers nothing: a silent partition."""

    def resume(self, part: str) -> None: ...

    def up(self) -> None:
        """Whatever does not run is started, and answers."""

    def settle(self) -> None:
        """After a test: whatever was paused or killed is there again."""
