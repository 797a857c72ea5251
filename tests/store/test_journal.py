"""Every journal passes the conformance suite of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from datum_compute.store.journal import MemoryJournal
from datum_compute.store.sqlite import SqliteJournal
from testkit.conformance import plane as plane_conformance
from testkit.conformance import store as store_conformance
from testkit.conformance.plane import Check, Disk
from testkit.conformance.store import CHECKS


def memory_disk(folder: Path) -> Disk:
    journal = MemoryJournal()
    return lambda: journal


def sqlite_disk(folder: Path) -> Disk:
    return lambda: SqliteJournal(folder / "state.db")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("make_disk", [memory_disk, sqlite_disk])
async def test_store_conforms_with_each_journal(
    check: Check, make_disk: Callable[[Path], Disk], tmp_path: Path
) -> None:
    await check(make_disk(tmp_path))


def test_every_check_is_listed() -> None:
    modules = (store_conformance, plane_conformance)
    written = {name for module in modules for name in vars(module) if name.startswith("check_")}
    assert {check.__name__ for check in CHECKS} == written
