"""Files that machines see, and what machines that are gone have said."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from datum_compute.app.container_host import (
    AGE_S,
    REPORTS_PER_MACHINE_MAX,
    CrashReportFiles,
    Limits,
    LogFiles,
    VolumeDirectories,
    platform_id,
    ran_out_of_memory,
)
from datum_compute.app.state_directory import StateError
from datum_compute.drivers.driver import DataFile, PermanentError
from datum_compute.drivers.queries import CrashReport


def test_a_folder_holds_exactly_the_files_it_was_given(tmp_path: Path) -> None:
    folders = VolumeDirectories(tmp_path / "data")
    folders.write("ns/web/1", "v", [DataFile("old", b"1")])
    folder = Path(folders.write("ns/web/1", "v", [DataFile("a/b/c", b"2", 0o440)]))
    assert [f.relative_to(folder).as_posix() for f in folder.rglob("*")] == ["a", "a/b", "a/b/c"]
    assert (folder / "a/b/c").read_bytes() == b"2"
    assert (folder / "a/b/c").stat().st_mode & 0o777 == 0o440
    assert folder.stat().st_mode & 0o777 == 0o755, "whoever the container runs as may look"
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700, "nobody else on the host may"


@pytest.mark.parametrize("path", ["../out", "a/../../out", "/etc/out"])
def test_no_file_leaves_its_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(PermanentError, match=r"volume v: .* lies outside of it"):
        VolumeDirectories(tmp_path / "data").write("ns/web/1", "v", [DataFile(path, b"x")])


def test_files_go_with_their_machine_also_if_nobody_saw_it_go(tmp_path: Path) -> None:
    folders = VolumeDirectories(tmp_path / "data")
    kept, gone, lost = (
        Path(folders.write(f"ns/web/{n}", "v", [DataFile("f", b"x")])) for n in range(3)
    )
    folders.remove("ns/web/1")
    folders.keep_only(["ns/web/0"])
    assert (kept.exists(), gone.exists(), lost.exists()) == (True, False, False)


async def test_what_was_said_is_found_by_the_name_of_the_instance(tmp_path: Path) -> None:
    archive = LogFiles(tmp_path / "logs" / "dfw", lambda: 0.0)
    await archive.save("ns/web/1", "app", b"one")
    await archive.save("ns/web-other/1", "app", b"other")
    await archive.save("ns/web/2", "app", b"")
    assert await archive.load("ns/web") == [("ns/web/1", "app", b"one")]
    assert await archive.load("ns/nobody") == []


async def test_the_oldest_goes_first_by_age_and_by_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000_000.0
    archive = LogFiles(tmp_path / "logs" / "dfw", lambda: now_s)
    for number in range(3):
        await archive.save(f"ns/web/{number}", "app", b"x" * 10)
        (file,) = (tmp_path / "logs" / "dfw").glob(f"*%2F{number},app*")
        os.utime(file, (now_s + number, now_s + number))
    monkeypatch.setattr(archive._files, "_limits", Limits(bytes_max=35, files_max=100))
    await archive.save("ns/web/3", "app", b"x" * 10)
    assert [machine for machine, _, _ in await archive.load("ns/web")] == [
        *("ns/web/1", "ns/web/2", "ns/web/3"),
    ]
    now_s += AGE_S + 1.5
    await archive.save("ns/web/4", "app", b"x")
    assert "ns/web/1" not in [machine for machine, _, _ in await archive.load("ns/web")]


def test_cards_are_kept_for_a_day_and_not_too_many_of_one_machine(tmp_path: Path) -> None:
    now_s = time.time()
    archive = CrashReportFiles(tmp_path / "crashes" / "dfw", lambda: now_s)
    archive.save("ns/other/1", CrashReport(ended_at="2026-01-01T00:00:00.000Z", message="other"))
    for number in range(REPORTS_PER_MACHINE_MAX + 3):
        ended_at = f"2026-01-01T00:00:{number:02d}.000Z"
        archive.save("ns/web/1", CrashReport(ended_at=ended_at, message=str(number), exit_code=3))
    archive.save("ns/web/2", CrashReport(ended_at="2026-01-01T00:02:00.000Z", message="next"))
    found = CrashReportFiles(tmp_path / "crashes" / "dfw", lambda: now_s).load("ns/web")
    assert [card.message for card in found] == ["3", *map(str, range(4, 13)), "next"]
    assert found[0].exit_code == 3
    assert [card.message for card in archive.load("ns/other")] == ["other"]
    (tmp_path / "crashes" / "dfw" / "ns%2Fweb%2F1,x.json").write_text("{")
    assert len(archive.load("ns/web")) == REPORTS_PER_MACHINE_MAX + 1, (
        "what is damaged is passed over"
    )
    now_s += AGE_S + 60
    assert archive.load("ns/web") == []


def test_a_disk_that_takes_nothing_loses_cards_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "crashes").write_text("in the way")
    archive = CrashReportFiles(tmp_path / "crashes" / "dfw", lambda: 0.0)
    archive.save("ns/web/1", CrashReport(ended_at="2026-01-01T00:00:00.000Z", message="lost"))
    assert archive.load("ns/web") == []


def test_a_platform_knows_its_containers_by_an_id_that_stays(tmp_path: Path) -> None:
    ids = iter(("first-uid", "second-uid"))
    made = platform_id(tmp_path, lambda: next(ids))
    assert platform_id(tmp_path, lambda: next(ids)) == made
    (tmp_path / "platform.json").write_text("{")
    with pytest.raises(StateError, match="is damaged"):
        platform_id(tmp_path, lambda: next(ids))


def test_the_kernel_says_nothing_of_a_container_that_there_was_not() -> None:
    assert ran_out_of_memory("no-such-container") is False
