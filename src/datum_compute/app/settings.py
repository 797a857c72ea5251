"""Settings of the processes: flag > environment > default, merged here and nowhere else."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The all-in-one server."""

    state_dir: Path
    port: int  # 0: the port of the last run, else a free one
    driver: str
    log_level: str
    controllers: bool


def local_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> LocalSettings:
    parser = argparse.ArgumentParser(prog="python -m datum_compute.app.local_server")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--driver", choices=("simulated",), default="simulated")
    parser.add_argument(
        "--log-level", choices=LOG_LEVELS, default=environment.get("DATUM_LOG_LEVEL", "info")
    )
    parser.add_argument(
        "--no-controllers",
        action="store_true",
        help="serve the planes only; a compute-manager elsewhere does the rest",
    )
    parsed = parser.parse_args(arguments)
    return LocalSettings(
        state_dir=parsed.state_dir.absolute(),
        port=parsed.port,
        driver=parsed.driver,
        log_level=parsed.log_level,
        controllers=not parsed.no_controllers,
    )
