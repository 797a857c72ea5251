"""The container engine of the host, and the volumes, logs and crash reports of containers."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from datum_compute.app.container_host import (
    FILE_AGE_MAX_S,
    REPORTS_PER_MACHINE_MAX,
    VERSION_TIMEOUT_S,
    CrashReportFiles,
    FoundEngine,
    Limits,
    LogFiles,
    VolumeDirectories,
    find_engine,
    platform_id,
    ran_out_of_memory,
)
from datum_compute.app.state_directory import StateError
from datum_compute.drivers.containers.engine import Engine, EngineTimeout, EngineVersion
from datum_compute.drivers.driver import DataFile, PermanentError, TransientError
from datum_compute.drivers.logs import LogOwner
from datum_compute.drivers.queries import CrashReport
from testkit.sim.loop import VirtualLoop, run_virtual

# Seconds after which an engine responds; None if it does not exist.
AFTER_S = {"missing": None, "slow": 25.0, "fast": 0.1, "hung": 1e6}


class TimedEngine(Engine):
    """An engine in virtual time, named by its socket."""

    async def read_version(self, timeout_s: float = 5.0) -> EngineVersion:
        after_s = AFTER_S[self.socket]
        if after_s is None:
            raise TransientError("no such file or directory")
        if after_s > timeout_s:
            await asyncio.sleep(timeout_s)
            raise EngineTimeout(f"no response within {timeout_s:g} s")
        await asyncio.sleep(after_s)
        return EngineVersion(self.socket, "1")


def find_first_engine(*sockets: str) -> tuple[FoundEngine, float]:
    """Return the engine that is found, and after how many seconds."""

    async def main(loop: VirtualLoop) -> tuple[FoundEngine, float]:
        return await find_engine(sockets, TimedEngine), loop.time()

    return run_virtual(Random(1), main)


def test_an_engine_that_answers_slowly_is_found() -> None:
    engine, _ = find_first_engine("missing", "slow")
    assert engine.facts == EngineVersion("slow", "1")


def test_the_first_engine_that_answers_is_used() -> None:
    assert find_first_engine("slow", "fast")[0].socket == "slow"
    engine, after_s = find_first_engine("hung", "fast")
    assert engine.socket == "fast"
    assert after_s <= VERSION_TIMEOUT_S


def test_the_error_without_an_engine_lists_every_socket_and_its_timeout() -> None:
    with pytest.raises(StateError) as refused:
        find_first_engine("missing", "hung")
    assert "missing: no such file or directory; hung: no response within 30 s" in str(refused.value)


def test_a_volume_directory_contains_exactly_the_written_files(tmp_path: Path) -> None:
    folders = VolumeDirectories(tmp_path / "data")
    folders.write("ns/web/1", "v", [DataFile("old", b"1")])
    folder = Path(folders.write("ns/web/1", "v", [DataFile("a/b/c", b"2", 0o440)]))
    assert [f.relative_to(folder).as_posix() for f in folder.rglob("*")] == ["a", "a/b", "a/b/c"]
    assert (folder / "a/b/c").read_bytes() == b"2"
    assert (folder / "a/b/c").stat().st_mode & 0o777 == 0o440
    assert folder.stat().st_mode & 0o777 == 0o755, "readable by any user of the container"
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700, (
        "not readable by other users of the host"
    )


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/out"])
def test_a_path_outside_of_the_volume_is_rejected(tmp_path: Path, path: str) -> None:
    with pytest.raises(PermanentError, match=r"volume v: .* is outside of the volume"):
        VolumeDirectories(tmp_path / "data").write("ns/web/1", "v", [DataFile(path, b"x")])


def test_volumes_of_removed_and_of_unknown_machines_are_deleted(tmp_path: Path) -> None:
    folders = VolumeDirectories(tmp_path / "data")
    kept, gone, lost = (
        Path(folders.write(f"ns/web/{n}", "v", [DataFile("f", b"x")])) for n in range(3)
    )
    folders.remove("ns/web/1")
    folders.keep_only(["ns/web/0"])
    assert (kept.exists(), gone.exists(), lost.exists()) == (True, False, False)


WEB = LogOwner(workload="web", uid="uid-1", city="DFW")


async def test_archived_logs_are_found_by_the_name_of_the_instance(tmp_path: Path) -> None:
    archive = LogFiles(tmp_path / "logs" / "dfw", lambda: 0.0)
    await archive.save("ns/web/1", "app", b"one", WEB)
    await archive.save("ns/web-other/1", "app", b"other", WEB)
    await archive.save("ns/web/2", "app", b"", WEB)
    assert await archive.load("ns/web") == [("ns/web/1", "app", b"one")]
    assert await archive.load("ns/other") == []


async def test_archived_logs_of_workloads_with_the_same_name_are_not_mixed(
    tmp_path: Path,
) -> None:
    archive = LogFiles(tmp_path / "logs" / "dfw", time.time)
    second = replace(WEB, uid="uid-2")
    await archive.save("ns/web-0/1", "app", b"first", WEB)
    await archive.save("ns/web-0/2", "app", b"second", second)
    await archive.save("ns/web-0/3", "app", b"of an earlier release", LogOwner())
    found = await archive.load("ns/web-0", "uid-1")
    assert [frames for _, _, frames in found] == [b"first", b"of an earlier release"]
    assert len(await archive.load("ns/web-0")) == 3
    listed = await archive.find("ns", "web")
    assert [(log.instance, log.workload_uid, log.city) for log in listed] == [
        ("web-0", "uid-1", "DFW"),
        ("web-0", "uid-2", "DFW"),
    ]
    assert await archive.find("other", "web") == []
    assert await archive.find("ns", "web-0") == []


async def test_the_oldest_logs_are_deleted_by_size_and_by_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000_000.0
    archive = LogFiles(tmp_path / "logs" / "dfw", lambda: now_s)
    for number in range(3):
        await archive.save(f"ns/web/{number}", "app", b"x" * 10, WEB)
        (file,) = (tmp_path / "logs" / "dfw").glob(f"*%2F{number},app*")
        os.utime(file, (now_s + number, now_s + number))
    monkeypatch.setattr(archive._files, "_limits", Limits(bytes_max=35, files_max=100))
    await archive.save("ns/web/3", "app", b"x" * 10, WEB)
    assert [machine for machine, _, _ in await archive.load("ns/web")] == [
        *("ns/web/1", "ns/web/2", "ns/web/3"),
    ]
    now_s += FILE_AGE_MAX_S + 1.5
    await archive.save("ns/web/4", "app", b"x", WEB)
    assert "ns/web/1" not in [machine for machine, _, _ in await archive.load("ns/web")]


def test_crash_reports_are_kept_for_a_day_and_limited_per_machine(tmp_path: Path) -> None:
    now_s = time.time()
    archive = CrashReportFiles(tmp_path / "crashes" / "dfw", lambda: now_s)
    archive.save("ns/other/1", CrashReport(ended_at="2026-01-01T00:00:00.000Z", message="other"))
    for number in range(REPORTS_PER_MACHINE_MAX + 3):
        ended_at = f"2026-01-01T00:00:{number:02d}.000Z"
        archive.save("ns/web/1", CrashReport(ended_at=ended_at, message=str(number), exit_code=3))
    archive.save("ns/web/2", CrashReport(ended_at="2026-01-01T00:02:00.000Z", message="next"))
    found = CrashReportFiles(tmp_path / "crashes" / "dfw", lambda: now_s).load("ns/web")
    assert [report.message for report in found] == ["3", *map(str, range(4, 13)), "next"]
    assert found[0].exit_code == 3
    assert [report.message for report in archive.load("ns/other")] == ["other"]
    (tmp_path / "crashes" / "dfw" / "ns%2Fweb%2F1,x.json").write_text("{")
    assert len(archive.load("ns/web")) == REPORTS_PER_MACHINE_MAX + 1, "damaged files are skipped"
    now_s += FILE_AGE_MAX_S + 60
    assert archive.load("ns/web") == []


def test_a_crash_report_that_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "crashes").write_text("in the way")
    archive = CrashReportFiles(tmp_path / "crashes" / "dfw", lambda: 0.0)
    archive.save("ns/web/1", CrashReport(ended_at="2026-01-01T00:00:00.000Z", message="lost"))
    assert archive.load("ns/web") == []


def test_the_id_of_a_platform_does_not_change(tmp_path: Path) -> None:
    ids = iter(("first-uid", "second-uid"))
    made = platform_id(tmp_path, lambda: next(ids))
    assert platform_id(tmp_path, lambda: next(ids)) == made
    (tmp_path / "platform.json").write_text("{")
    with pytest.raises(StateError, match="is damaged"):
        platform_id(tmp_path, lambda: next(ids))


def test_a_missing_container_did_not_run_out_of_memory() -> None:
    assert ran_out_of_memory("no-such-container") is False
