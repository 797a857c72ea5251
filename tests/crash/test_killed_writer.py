"""A writing process is killed with SIGKILL, again and again: nothing it was told may be lost."""

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
from testkit.conformance.plane import PLANE, THINGS, running
from tests.crash.writer import PASSING_PLANE, PASSING_THINGS

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 300


@dataclass
class Told:
    """Everything the killed processes have said, over all their lives."""

    newest: dict[str, dict[str, Any]] = field(default_factory=dict)  # last ack of each thing
    by_version: dict[int, tuple[str, str]] = field(default_factory=dict)
    passing: str = ""  # last word about the plane that comes and goes
    passing_version: int = 0
    highest: int = 0

    def take(self, fact: dict[str, Any]) -> None:
        match fact["fact"]:
            case "loaded":
                assert fact["version"] >= self.highest, "versions went back"
            case "ack":
                said = (fact["name"], fact["content"])
                assert self.by_version.setdefault(fact["version"], said) == said, "version re-used"
                self.newest[fact["name"]] = fact
                self.highest = max(self.highest, fact["version"])
            case "seen":
                self.highest = max(self.highest, fact["version"])
            case "full":
                assert fact["version"] >= self.passing_version, "the plane's versions went back"
                self.passing_version = fact["version"]
                self.passing = "full"
            case "gone":
                self.passing = "gone"


def run_and_kill(path: Path, lines: int) -> list[dict[str, Any]]:
    """Facts of a writer that is killed after it has said ``lines`` of them, or more."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", str(path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        said += writer.stdout.readlines()
    return [json.loads(line) for line in said if line.endswith(b"\n")]


def check_everything_told_is_there(store: Store, told: Told) -> None:
    assert store.version(PLANE) >= told.highest
    stored = {record.key.name: record for record in store.snapshot(PLANE, THINGS).records}
    for name, fact in told.newest.items():
        record = stored.get(name)
        if record is None:
            # Either its deletion was told, or a later one had landed when the process died.
            assert fact["removed"] or store.version(PLANE) > fact["version"]
        elif record.version == fact["version"]:
            assert not fact["removed"]
            assert decode(record.body)["content"] == fact["content"]
        else:
            assert record.version > fact["version"], f"{name}: an acknowledged write is lost"
    check_passing_plane(store, told)


def check_passing_plane(store: Store, told: Told) -> None:
    """It was deleted as a whole, or not at all."""
    if PASSING_PLANE not in store.planes():
        told.passing = "gone"
    elif told.passing == "full":
        assert len(store.snapshot(PASSING_PLANE, THINGS).records) == PASSING_THINGS


async def reopened(path: Path, told: Told) -> None:
    async with running(SqliteJournal(path)) as store:
        check_everything_told_is_there(store, told)


def kill_many_times(path: Path, kills: int, seed: int) -> Told:
    chance = random.Random(seed)
    told = Told()
    for kill in range(kills):
        facts = run_and_kill(path, lines=chance.randrange(1, LINES_MAX))
        assert facts, f"seed {seed}, kill {kill}: the writer said nothing"
        for fact in facts:
            told.take(fact)
        asyncio.run(reopened(path, told))
    return told


def test_no_acknowledged_write_is_lost_in_a_few_kills(tmp_path: Path) -> None:
    told = kill_many_times(tmp_path / "state.db", kills=3, seed=1)
    assert told.newest


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10))
def test_no_acknowledged_write_is_lost_in_many_kills(tmp_path: Path, seed: int) -> None:
    told = kill_many_times(tmp_path / "state.db", kills=20, seed=seed)
    assert len(told.newest) > 1
