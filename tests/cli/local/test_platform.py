"""Starting and stopping the local platform, with a stand-in for the server."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datum_compute.cli.connect.session import run_loop
from datum_compute.cli.errors import OtherError, TimedOutError
from datum_compute.cli.local.platform import (
    LocalProcess,
    LogFileReader,
    find_running,
    is_ready,
    prepare_state_dir,
    server_command,
    start_detached,
    stop,
)
from tests.cli.runner import CliRunner
from tests.client.authority import Authority, new_authority

STANDIN = Path(__file__).with_name("standin_server.py")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture
def state_dir(tmp_path: Path, authority: Authority) -> Iterator[Path]:
    directory = tmp_path / "state"
    prepare_state_dir(directory)
    (directory / "ca.crt").write_bytes(authority.ca_pem)
    (directory / "server.pem").write_bytes(authority.server_pem)
    yield directory
    left = find_running(directory)
    if left is not None:
        os.kill(left.pid, 9)
        reap(left)


def standin(mode: str, state_dir: Path) -> list[str]:
    return [sys.executable, str(STANDIN), mode, "--state-dir", str(state_dir)]


def log_of(state_dir: Path) -> str:
    return (state_dir / "server.log").read_text()


def reap(running: LocalProcess) -> int:
    """The wait status of a child that has ended."""
    return os.waitpid(running.pid, 0)[1]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def other_process() -> subprocess.Popen[bytes]:
    """Alive, and none of ours."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


async def test_the_server_is_ready_after_start_and_gone_after_stop(state_dir: Path) -> None:
    running = await start_detached(standin("good", state_dir), state_dir)
    assert find_running(state_dir) == running
    assert await is_ready(state_dir, running)
    assert await stop(state_dir) == running
    assert find_running(state_dir) is None
    assert await stop(state_dir) is None
    reap(running)


async def test_the_server_inherits_neither_terminal_nor_files(state_dir: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        running = await start_detached(standin("good", state_dir), state_dir)
    finally:
        os.close(reader)
        os.close(writer)
    await stop(state_dir)
    reap(running)
    lines = log_of(state_dir).splitlines()
    assert "stdin: /dev/null" in lines
    assert "open: [0, 1, 2]" in lines
    assert "leader: True" in lines


async def test_state_and_log_are_readable_only_by_their_owner(state_dir: Path) -> None:
    running = await start_detached(standin("good", state_dir), state_dir)
    await stop(state_dir)
    reap(running)
    assert mode_of(state_dir) == 0o700
    assert mode_of(state_dir / "server.log") == 0o600


async def test_a_server_that_exits_is_reported_with_its_last_log_lines(state_dir: Path) -> None:
    with pytest.raises(OtherError) as caught:
        await start_detached(standin("dies", state_dir), state_dir)
    assert caught.value.exit_code == 1
    assert "exit 1" in caught.value.message
    assert "cannot go on" in caught.value.hint


async def test_the_log_of_the_previous_run_is_kept_in_another_file(state_dir: Path) -> None:
    (state_dir / "server.log").write_text("an older story\n")
    with pytest.raises(OtherError) as caught:
        await start_detached(standin("dies", state_dir), state_dir)
    assert "an older story" not in caught.value.hint
    assert (state_dir / "server.log.1").read_text() == "an older story\n"


async def test_a_server_that_never_gets_ready_is_stopped(state_dir: Path) -> None:
    with pytest.raises(TimedOutError) as caught:
        await start_detached(standin("silent", state_dir), state_dir, timeout_s=0.3)
    assert caught.value.exit_code == 21


async def test_a_server_file_of_an_earlier_run_is_ignored(state_dir: Path) -> None:
    with other_process() as other:
        announcement = {"pid": other.pid, "port": 1}
        (state_dir / "server.json").write_text(json.dumps(announcement))
        running = await start_detached(standin("good", state_dir), state_dir)
        assert running.pid != other.pid
        await stop(state_dir)
        reap(running)
        other.kill()


async def test_a_server_that_ignores_sigterm_is_killed(state_dir: Path) -> None:
    running = await start_detached(standin("stubborn", state_dir), state_dir)
    assert await stop(state_dir, grace_s=0.1) == running
    assert os.WTERMSIG(reap(running)) == 9


async def test_a_reused_pid_is_never_signalled(state_dir: Path) -> None:
    with other_process() as other:
        announcement = {"pid": other.pid, "port": 1}
        (state_dir / "server.json").write_text(json.dumps(announcement))
        assert find_running(state_dir) is None
        assert await stop(state_dir) is None
        assert other.poll() is None
        other.kill()


async def test_the_process_of_another_platform_is_not_used(state_dir: Path) -> None:
    running = await start_detached(standin("good", state_dir), state_dir)
    elsewhere = state_dir.parent / "stat"
    elsewhere.mkdir()
    (elsewhere / "server.json").write_bytes((state_dir / "server.json").read_bytes())
    assert await stop(elsewhere) is None
    assert await stop(state_dir) == running
    reap(running)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "port": 1}', '{"pid": 1}'])
def test_a_damaged_server_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.json").write_text(text)
    assert find_running(tmp_path) is None


def test_the_command_names_the_state_directory(tmp_path: Path) -> None:
    command = server_command(tmp_path, port=7, driver="simulated")
    assert command[0] == sys.executable
    assert "datum_compute.app.local_server" in command
    assert command[-6:] == [
        *("--state-dir", str(tmp_path)),
        *("--port", "7"),
        *("--driver", "simulated"),
    ]


def test_cells_are_passed_on_only_when_chosen(tmp_path: Path) -> None:
    chosen = server_command(tmp_path, port=0, driver="simulated", cells="dfw,ams")
    assert chosen[-2:] == ["--cells", "dfw,ams"]
    assert "--cells" not in server_command(tmp_path, port=0, driver="simulated")


# --- the files


def test_each_log_line_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    reader = LogFileReader(log)
    assert reader.read_new_lines() == []
    log.write_text("one\ntwo\nthr")
    assert reader.read_new_lines() == ["one", "two"]
    with log.open("a") as file:
        file.write("ee\n")
    assert reader.read_new_lines() == ["three"]
    assert reader.read_new_lines() == []


def test_the_log_of_a_new_run_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("a long line of the first run\n")
    reader = LogFileReader(log)
    reader.read_new_lines()
    log.replace(tmp_path / "server.log.1")
    log.write_text("new\n")
    assert reader.read_new_lines() == ["new"]


def test_reset_deletes_what_the_platform_wrote_and_nothing_else(
    cli: CliRunner, state_dir: Path
) -> None:
    for name in ("store.db", "store.db-wal", "tokens.json", "machines-cell-dfw.json", "kubeconfig"):
        (state_dir / name).touch()
    (state_dir / "notes.txt").write_text("mine")
    (state_dir / "server.pem").unlink()
    assert cli.run("local", "reset", "-y", f"--state-dir={state_dir}") == 0
    assert [path.name for path in state_dir.iterdir()] == ["notes.txt"]
    assert cli.run("local", "reset", "-y", f"--state-dir={state_dir}") == 0
    assert "There is no platform" in cli.out


def test_reset_requires_confirmation(cli: CliRunner, state_dir: Path) -> None:
    (state_dir / "store.db").touch()
    assert cli.run("local", "reset", f"--state-dir={state_dir}") == 2
    assert "Pass -y" in cli.err
    assert (state_dir / "store.db").exists()


def test_reset_stops_the_platform_first(cli: CliRunner, state_dir: Path) -> None:
    running = run_loop(started(state_dir))
    (state_dir / "store.db").touch()
    assert cli.run("local", "reset", "-y", f"--state-dir={state_dir}") == 0
    reap(running)
    assert not (state_dir / "store.db").exists()


def test_logs_shows_the_end_of_the_log(cli: CliRunner, state_dir: Path) -> None:
    assert cli.run("local", "logs", f"--state-dir={state_dir}") == 3
    (state_dir / "server.log").write_text("one\ntwo\nthree\n")
    assert cli.run("local", "logs", "--tail=2", f"--state-dir={state_dir}") == 0
    assert cli.out == "two\nthree\n"
    assert cli.run("local", "logs", "--tail=0", f"--state-dir={state_dir}") == 0
    assert cli.out == ""


# --- the commands


@pytest.mark.parametrize("cells", ["dfw,,iad", "-x", "a b", "dfw,DFW", "x/y"])
def test_up_refuses_invalid_cells(cli: CliRunner, state_dir: Path, cells: str) -> None:
    assert cli.run("local", "up", f"--cells={cells}", f"--state-dir={state_dir}") == 2
    assert "cell" in cli.err
    assert not find_running(state_dir)


async def started(state_dir: Path) -> LocalProcess:
    return await start_detached(standin("good", state_dir), state_dir)


def test_down_is_idempotent(cli: CliRunner, state_dir: Path) -> None:
    assert cli.run("local", "down", f"--state-dir={state_dir}") == 0
    assert cli.out == f"The platform in {state_dir} is not running.\n"


def test_status_without_a_platform_exits_3_and_prints_how_to_start(
    cli: CliRunner, state_dir: Path
) -> None:
    assert cli.run("local", "status", f"--state-dir={state_dir}") == 3
    assert f"Start it: datumctl compute local up --detach --state-dir={state_dir}" in cli.err
    cli.environ = {"DATUM_STATE_DIR": str(state_dir)}
    assert cli.run("local", "status") == 3
    assert cli.err.endswith("Start it: datumctl compute local up --detach\n")


def test_a_running_platform_is_found_used_and_stopped(cli: CliRunner, state_dir: Path) -> None:
    running = run_loop(started(state_dir))
    where = f"--state-dir={state_dir}"
    assert cli.run("local", "up", where, "--detach") == 0
    assert cli.out == f"The platform is running already at {running.url} (pid {running.pid}).\n"
    assert f"deploy web --image=IMAGE --city=DFW --kubeconfig={state_dir}/kubeconfig" in cli.err
    assert f"kubectl --kubeconfig={state_dir}/kubeconfig get workloads" in cli.err
    cli.environ = {"KUBECONFIG": f"{state_dir}/kubeconfig"}
    assert cli.run("local", "up", where, "--detach") == 0
    assert "deploy web --image=IMAGE --city=DFW\n" in cli.err, "the variable selects it"
    cli.environ = {}
    assert cli.run("local", "status", where, "-o", "json") == 0
    assert json.loads(cli.out) == {
        "running": True,
        "ready": True,
        "url": running.url,
        "pid": running.pid,
        "stateDir": str(state_dir),
        "version": None,  # the stand-in has neither planes nor a kubeconfig
        "planes": [],
        "drivers": [],
    }
    assert cli.run("local", "down", where) == 0
    assert cli.out == f"The platform in {state_dir} was stopped (pid {running.pid}).\n"
    reap(running)


def test_a_state_directory_that_cannot_be_created_is_an_error(
    cli: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert cli.run("local", "up", "--detach", f"--state-dir={tmp_path}/file/x") == 1
    assert "cannot be used" in cli.err
    assert "--state-dir" in cli.err
