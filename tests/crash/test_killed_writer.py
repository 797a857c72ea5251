"""Durability: a writer that is killed repeatedly with SIGKILL loses no acknowledged write."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from datum_compute.api.meta.codec import decode
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.store.store import Store
from testkit.conformance.plane import PLANE, THINGS, open_store
from tests.crash.writer import PASSING_PLANE, PASSING_THINGS

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 300


@dataclass
class AcknowledgedWrites:
    """What all killed writers reported as written."""

    newest: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # last acknowledged write by name
    by_version: dict[int, tuple[str, str]] = field(default_factory=dict)
    passing: str = ""  # last reported state of the plane that is filled and deleted
    passing_version: int = 0
    highest: int = 0

    def record(self, fact: dict[str, Any]) -> None:
        match fact["fact"]:
            case "loaded":
                assert fact["version"] >= self.highest, "the version decreased"
            case "ack":
                write = (fact["name"], fact["content"])
                known = self.by_version.setdefault(fact["version"], write)
                assert known == write, "two writes have one version"
                self.newest[fact["name"]] = fact
                self.highest = max(self.highest, fact["version"])
            case "seen":
                self.highest = max(self.highest, fact["version"])
            case "full":
                assert fact["version"] >= self.passing_version, "the version of the plane decreased"
                self.passing_version = fact["version"]
                self.passing = "full"
            case "gone":
                self.passing = "gone"


def run_and_kill(path: Path, lines: int) -> list[dict[str, Any]]:
    """Start a writer, kill it after at least ``lines`` lines of output, and return its facts."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", str(path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        output = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        output += writer.stdout.readlines()
    return [json.loads(line) for line in output if line.endswith(b"\n")]


def check_acknowledged_writes(store: Store, writes: AcknowledgedWrites) -> None:
    assert store.version(PLANE) >= writes.highest
    stored = {record.key.name: record for record in store.snapshot(PLANE, THINGS).records}
    for name, fact in writes.newest.items():
        record = stored.get(name)
        if record is None:
            # Its deletion was acknowledged, or was committed just before the kill.
            assert fact["removed"] or store.version(PLANE) > fact["version"]
        elif record.version == fact["version"]:
            assert not fact["removed"]
            assert decode(record.body)["content"] == fact["content"]
        else:
            assert record.version > fact["version"], f"{name}: an acknowledged write is lost"
    check_passing_plane(store, writes)


def check_passing_plane(store: Store, writes: AcknowledgedWrites) -> None:
    """The plane is complete, or deleted completely."""
    if PASSING_PLANE not in store.planes():
        writes.passing = "gone"
    elif writes.passing == "full":
        assert len(store.snapshot(PASSING_PLANE, THINGS).records) == PASSING_THINGS


async def reopen_and_check(path: Path, writes: AcknowledgedWrites) -> None:
    async with open_store(SqliteJournal(path)) as store:
        check_acknowledged_writes(store, writes)


def kill_many_times(path: Path, kills: int, seed: int) -> AcknowledgedWrites:
    rng = random.Random(seed)
    writes = AcknowledgedWrites()
    for kill in range(kills):
        facts = run_and_kill(path, lines=rng.randrange(1, LINES_MAX))
        assert facts, f"seed {seed}, kill {kill}: the writer printed nothing"
        for fact in facts:
            writes.record(fact)
        asyncio.run(reopen_and_check(path, writes))
    return writes


def test_no_acknowledged_write_is_lost_in_a_few_kills(tmp_path: Path) -> None:
    writes = kill_many_times(tmp_path / "state.db", kills=3, seed=1)
    assert writes.newest


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10))
def test_no_acknowledged_write_is_lost_in_many_kills(tmp_path: Path, seed: int) -> None:
    writes = kill_many_times(tmp_path / "state.db", kills=20, seed=seed)
    assert len(writes.newest) > 1
