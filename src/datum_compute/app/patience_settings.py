"""Settings about cells that have joined: how long the hub waits for them, and how long what it gave
them is good."""

from __future__ import annotations

import argparse

from datum_compute.app.settings.values import duration_value, seconds_value
from datum_compute.controllers.context import CellProbing

CELL_CREDENTIAL_S = 30 * 24 * 3600.0


def add_patience(parser: argparse.ArgumentParser) -> None:
    usual = CellProbing()
    for name, default, text in (
        ("cell-probe-seconds", usual.probe_s, "how often the hub asks a cell whether it is there"),
        ("cell-grace-seconds", usual.grace_s, "how long a cell may be silent before that is said"),
    ):
        parser.add_argument(
            f"--{name}", type=seconds_value, default=default, metavar="SECONDS", help=text
        )


def add_credential_lifetime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cell-credential-lifetime",
        type=duration_value,
        default="720h",
        metavar="DURATION",
        help="how long the certificate of a cell is good; cells renew it well before it ends",
    )
