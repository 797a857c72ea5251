"""Flags that say where planes are: the mode of a manager, how projects are found, and the hub.

``reached_planes.py`` makes connections of them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from datum_compute.app.settings.values import dns_label_value

MILO, SINGLE, LIST = "milo", "single", "list"
ONLY_CELL = "single"


@dataclass(frozen=True, slots=True)
class SingleClusterSettings:
    """How one API server is seen where no context of the kubeconfig is named as a plane."""

    project: str = "default"  # the only one; whose quota counts
    cluster: str = ""  # the name of the cell, if it was given one
    context: str = ""  # of the kubeconfig; the current one if it is left out

    @property
    def only_cell(self) -> str:
        """The name of the cell where there is no federation."""
        return self.cluster or ONLY_CELL


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """Where the hub is, if not in the kubeconfig of the other planes."""

    kubeconfig: Path
    context: str


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """How projects are found, and the file that leads to them, if it is another."""

    mode: str = MILO
    kubeconfig: Path | None = None


def add_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode",
        choices=("auto", "single", "federated"),
        default="auto",
        help="single: one API server is everything, without a hub; auto takes that for granted "
        "when both groups run and no context of the kubeconfig is named as a plane",
    )
    parser.add_argument(
        "--context",
        default="",
        metavar="NAME",
        help="the context of an API server that is not named as a plane, instead of the current",
    )
    parser.add_argument(
        "--project",
        type=dns_label_value,
        default="default",
        metavar="NAME",
        help="where there is one project only: its name",
    )
    parser.add_argument(
        "--cluster-name",
        type=dns_label_value,
        metavar="NAME",
        help="the cell that the API server of the kubeconfig is, if no context is named as one; "
        f"without a federation {ONLY_CELL} if left out",
    )


def add_discovery(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--discovery-mode",
        choices=(MILO, LIST, SINGLE),
        default=MILO,
        help="how projects are found. milo: as Projects of the platform, each a path of its API; "
        "list: every context named project/<name>; single: one API server is the only project, "
        "and the platform too",
    )
    parser.add_argument(
        "--project-kubeconfig",
        type=Path,
        metavar="FILE",
        help="what leads to the projects, where they have a file of their own",
    )
    parser.add_argument(
        "--federation-kubeconfig",
        type=Path,
        metavar="FILE",
        help="the hub, where it has a file of its own",
    )
    parser.add_argument(
        "--federation-context",
        default="",
        metavar="NAME",
        help="its context in that file, instead of the current one",
    )
