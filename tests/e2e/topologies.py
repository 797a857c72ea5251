"""The interface between the end-to-end tests and the platforms that they run on.

A ``Topology`` consists of planes, their controllers, and a propagator from the hub to the cells.
Tests get clients and the command line from it, and kill or pause its parts. The fixture
``topology`` (conftest.py) runs a test on each topology of ``TOPOLOGIES`` whose marker is selected.

To add one, write a class with the members of ``Topology``, a fixture ``<name>_topology`` that
starts and stops it, and a line in ``TOPOLOGIES``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.e2e.processes import Api

# Names and the markers that select them (``make test-kubernetes``).
TOPOLOGIES: tuple[Any, ...] = (
    "embedded",
    pytest.param("kubernetes", marks=pytest.mark.kubernetes),
    pytest.param("karmada", marks=(pytest.mark.kubernetes, pytest.mark.karmada)),
    pytest.param("mixed", marks=(pytest.mark.kubernetes, pytest.mark.karmada)),
)


def cell(topology: Topology, name: str) -> Api:
    """Return a client of a cell with the permissions of its controllers."""
    return topology.api(f"cell/{name}", manager=True)


class Topology(Protocol):
    """One project ``default``, a hub, and a cell for each of the cities DFW and ORD."""

    @property
    def cells(self) -> tuple[str, ...]: ...

    @property
    def propagator(self) -> str:
        """``ours`` or ``karmada``."""

    @property
    def timeout_s(self) -> float:
        """Maximum time until a change is visible, also after an outage of some seconds."""

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with a context of an administrator for each plane."""

    def api(self, context: str, *, manager: bool = False) -> Api:
        """Return a client of an administrator of the plane, or of the controllers."""

    def gateway(self) -> Api:
        """Return a client for instance subresources such as logs."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``datumctl compute ...`` in the project."""

    def kill(self, part: str) -> None:
        """Kill the center or a cell with SIGKILL: its plane and its controllers."""

    def start(self, part: str) -> None:
        """Start one part, and wait until its plane responds."""

    def pause(self, part: str) -> None:
        """Suspend a part: its connections stay open and receive no response."""

    def resume(self, part: str) -> None: ...

    def up(self) -> None:
        """Start all parts that do not run, and wait until they respond."""

    def restore(self) -> None:
        """Resume and restart all parts after a test."""
