"""What of a manager can be switched off: ``--feature-gates Name=false``.

A gate is a group of controllers without which nothing that others do waits or is left behind. To
add one: a line in ``GATES``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from datum_compute.controllers.federation import instances as quarantine
from datum_compute.controllers.network import networks as defaultnetwork
from datum_compute.controllers.platform import instance_types as catalogue
from datum_compute.controllers.platform import instance_types as instancetype
from datum_compute.controllers.workload import workload as revision
from datum_compute.runtime.controller import Controller

Gates = Mapping[str, bool]

GATES: dict[str, tuple[Controller[Any], ...]] = {
    # Without it operators keep the instance types of every plane themselves.
    "InstanceTypes": (catalogue.COPY_CONTROLLER, instancetype.INSTANCE_TYPE_CONTROLLER),
    # Without it namespaces have the networks that their users make.
    "DefaultNetworks": (defaultnetwork.DEFAULT_NETWORK_CONTROLLER,),
    # Without it copies on the hub that lead to nobody are only retried.
    "Quarantine": (quarantine.QUARANTINE_CONTROLLER,),
    # Without it there is no history to go back to.
    "WorkloadRevisions": (revision.REVISION_CONTROLLER,),
}


def gates_value(text: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in GATES:
            known = ", ".join(GATES)
            raise argparse.ArgumentTypeError(f"{name!r} is no feature; there are: {known}")
        if value.lower() not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{part!r} is neither {name}=true nor {name}=false")
        found[name] = value.lower() == "true"
    return found


def open_gates(controllers: tuple[Controller[Any], ...], gates: Gates) -> tuple[Any, ...]:
    """Those of the controllers that no closed gate keeps out."""
    shut = [c for name, group in GATES.items() if not gates.get(name, True) for c in group]
    return tuple(c for c in controllers if c not in shut)


def add_gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature-gates",
        type=gates_value,
        default={},
        metavar="NAME=BOOL,...",
        help=f"features to switch off (all are on): {', '.join(GATES)}",
    )
