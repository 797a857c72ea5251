"""The simulated driver's table of machines, kept in a file so that machines outlive a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from datum_compute.api.codec import DecodeError, decode_as, encode, plain
from datum_compute.app.files import StateError, write_private
from datum_compute.drivers.simulated import Machine, SimulatedDriver


def simulated_driver(path: Path, unix_s: Callable[[], float]) -> SimulatedDriver:
    try:
        table = decode_as(path.read_bytes(), dict[str, Machine]) if path.exists() else {}
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); remove it: the simulated machines start again"
        ) from error
    return SimulatedDriver(table, now=unix_s, save=lambda: write_private(path, encode_table(table)))


def encode_table(table: dict[str, Machine]) -> bytes:
    return encode({machine_id: plain(machine) for machine_id, machine in table.items()})
