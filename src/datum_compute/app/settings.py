"""Settings of the processes: flag > environment > default, merged here and nowhere else."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    boot_s: float = 0.0  # of simulated machines


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The controllers alone."""

    kubeconfig: Path
    state_dir: Path  # where the simulated driver keeps its machines
    management: bool
    cell: bool
    propagator: bool
    log_level: str
    environment: Mapping[str, str] = field(repr=False)  # for the plugins of a kubeconfig
    boot_s: float = 0.0  # of simulated machines


def local_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> LocalSettings:
    parser = argparse.ArgumentParser(prog="python -m datum_compute.app.local_server")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--port", type=_port, default=0)
    parser.add_argument("--driver", choices=("simulated",), default="simulated")
    parser.add_argument(
        "--no-controllers",
        action="store_true",
        help="serve the planes only; a compute-manager elsewhere does the rest",
    )
    _add_boot_time(parser, environment)
    _add_log_level(parser, environment)
    parsed = parser.parse_args(arguments)
    return LocalSettings(
        state_dir=parsed.state_dir.absolute(),
        port=parsed.port,
        driver=parsed.driver,
        log_level=parsed.log_level,
        controllers=not parsed.no_controllers,
        boot_s=parsed.simulated_boot_seconds,
    )


def manager_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> ManagerSettings:
    parser = argparse.ArgumentParser(
        prog="compute-manager", description="Run compute controllers against the planes."
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        default=environment.get("KUBECONFIG"),
        help="contexts hub, project/<name> and cell/<name> are the planes",
    )
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--enable-management-controllers", action="store_true")
    parser.add_argument("--enable-cell-controllers", action="store_true")
    parser.add_argument(
        "--enable-propagator",
        action="store_true",
        help="stand in for Karmada on the hub",
    )
    _add_boot_time(parser, environment)
    _add_log_level(parser, environment)
    parsed = parser.parse_args(arguments)
    if parsed.kubeconfig is None:
        parser.error("no kubeconfig: pass --kubeconfig FILE or set KUBECONFIG")
    settings = ManagerSettings(
        kubeconfig=parsed.kubeconfig,
        state_dir=parsed.state_dir.absolute(),
        management=parsed.enable_management_controllers,
        cell=parsed.enable_cell_controllers,
        propagator=parsed.enable_propagator,
        log_level=parsed.log_level,
        environment=environment,
        boot_s=parsed.simulated_boot_seconds,
    )
    if not (settings.management or settings.cell or settings.propagator):
        parser.error(
            "nothing to run: pass --enable-management-controllers, --enable-cell-controllers "
            "or --enable-propagator"
        )
    return settings


def configure_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def _add_log_level(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    default = environment.get("DATUM_LOG_LEVEL", "info")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default=default)


def _add_boot_time(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    parser.add_argument(
        "--simulated-boot-seconds",
        type=_seconds,
        default=environment.get("DATUM_SIMULATED_BOOT_SECONDS", "0"),
        help="how long simulated machines take to boot",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is between 0 and 65535")
    return port
