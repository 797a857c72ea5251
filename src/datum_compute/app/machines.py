"""The simulated driver's table of machines, kept in a file so that machines outlive a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from datum_compute.api.codec import DecodeError, decode_as, encode, plain
from datum_compute.app.files import StateError, write_private
from datum_compute.drivers.machinetable import MachineTable
from datum_compute.drivers.simulated import Machine, SimulatedDriver

# Many machines start together; the file is written at once, and then not again for so long.
SAVE_EVERY_S = 0.1


def simulated_driver(
    path: Path, unix_s: Callable[[], float], *, boot_s: float = 0.0
) -> SimulatedDriver:
    try:
        found = decode_as(path.read_bytes(), dict[str, Machine]) if path.exists() else {}
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); remove it: the simulated machines start again"
        ) from error
    table = MachineTable(found)
    save = Paced(lambda: write_private(path, encode_table(table)))
    return SimulatedDriver(table, now=unix_s, save=save, boot_s=boot_s)


class Paced:
    """Calls at once, or once for all who ask within the pause after a call.

    What a crash takes away in that pause is made good by the controllers: a machine that is not in
    the file is started again, one that should have gone is removed again.
    """

    def __init__(self, call: Callable[[], None], pause_s: float = SAVE_EVERY_S) -> None:
        self._call = call
        self._pause_s = pause_s
        self._pausing = False
        self._wanted = False

    def __call__(self) -> None:
        if self._pausing:
            self._wanted = True
            return
        self._wanted, self._pausing = False, True
        self._call()
        asyncio.get_running_loop().call_later(self._pause_s, self._resume)

    def _resume(self) -> None:
        self._pausing = False
        if self._wanted:
            self()


def encode_table(table: Mapping[str, Machine]) -> bytes:
    return encode(plain(dict(table)))
