"""Live progress on a terminal: redrawn in place, never wider than the window."""

from __future__ import annotations

import asyncio
import io
import os
import re
from pathlib import Path

import pytest

from datum_compute.cli.render.live import LiveBlock, render_bar
from datum_compute.cli.render.output import Output, replace_unencodable
from datum_compute.cli.render.terminal import raw_mode, read_bytes
from tests.cli.runner import CliRunner, Terminal
from tests.cli.world import World, no_controllers, write_kubeconfig

UP = re.compile(r"\x1b\[(\d+)A\x1b\[J")


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    cli.is_terminal, cli.environ = True, {"NO_COLOR": "1"}
    return cli


DEPLOY = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--min=2", "-y")


def test_a_rollout_is_a_table_that_is_redrawn_in_place(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY) == 0
    assert UP.search(cli.err)
    last = UP.split(cli.err)[-1]
    assert "Rolling out web: 0s\nCITY" in last
    assert "2/2     2/2" in re.sub(" +", "     ", last)
    assert "\N{FULL BLOCK}" * 12 in last
    assert re.search(r"web is ready: 4 instances in 2 cities \(\d+\.\d s\)\.\n$", last)


@pytest.mark.parametrize("width", [60, 100])
def test_the_table_is_never_wider_than_the_window(cli: CliRunner, width: int) -> None:
    cli.columns = width
    assert cli.run(*DEPLOY) == 0
    drawn = cli.err.split("Rolling out", 1)[1].rpartition("web is ready")[0]
    assert max(len(UP.sub("", line)) for line in drawn.splitlines()) < width


def test_the_width_is_read_again_after_a_resize() -> None:
    stream, widths = Terminal(), [80, 30]
    block = LiveBlock(stream, lambda: widths.pop(0))
    block.draw(["x" * 100, "y"])
    block.draw(["x" * 100])
    # The 79 letters have become three lines of the narrower window.
    first, second = stream.getvalue().split("\x1b[4A\x1b[J")
    assert len(first.splitlines()[0]) == 79
    assert len(second.splitlines()[0]) == 29


def test_a_dumb_terminal_and_a_pipe_get_appended_lines(cli: CliRunner) -> None:
    cli.environ = {"TERM": "dumb"}
    assert cli.run(*DEPLOY) == 0
    assert "\x1b" not in cli.err + cli.out
    assert "DFW: Done, 2/2 ready" in cli.err


def test_json_output_draws_no_table(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY, "-o", "json") == 0
    assert "\x1b" not in cli.err + cli.out


def test_a_timeout_keeps_the_table_and_prints_the_cause_below(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    assert cli.run(*DEPLOY, "--timeout=0s") == 21
    assert cli.err.splitlines()[-2].startswith("error: the rollout of 'web' is not done")


@pytest.mark.parametrize("typed", [b"ls", b"ls\n", b"ls\npwd"])
def test_input_typed_before_raw_mode_is_kept(typed: bytes) -> None:
    keyboard, terminal = os.openpty()
    try:
        os.write(keyboard, typed)
        with os.fdopen(os.dup(terminal)) as stream, raw_mode(stream):
            os.set_blocking(terminal, False)
            assert os.read(terminal, 100) == typed
    finally:
        os.close(keyboard)
        os.close(terminal)


async def test_waiting_for_a_key_does_not_block_other_tasks() -> None:
    keyboard, terminal = os.openpty()
    try:
        with os.fdopen(os.dup(terminal)) as stream, raw_mode(stream):
            typed = read_bytes(stream)
            for key in (b"a", b"pasted\r", b"b"):
                os.write(keyboard, key)
                assert await anext(typed) == key
                following = asyncio.ensure_future(anext(typed))
                for _ in range(10):
                    await asyncio.sleep(0)  # hangs if the loop itself waits for a key
                assert not following.done()
                following.cancel()
                await asyncio.wait([following])
                typed = read_bytes(stream)
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_a_pipe_is_read_until_eof() -> None:
    async def whole() -> bytes:
        reading, writing = os.pipe()
        with os.fdopen(reading) as stream:
            os.write(writing, b"x" * 50_000)
            os.close(writing)
            return b"".join([data async for data in read_bytes(stream)])

    assert asyncio.run(whole()) == b"x" * 50_000


class Ascii(io.StringIO):
    encoding = "ascii"


def test_characters_outside_the_encoding_have_an_ascii_form() -> None:
    assert replace_unencodable(Ascii(), render_bar(1, 2, 4)) == "##.."
    assert replace_unencodable(Ascii(), "caf\xe9\N{HORIZONTAL ELLIPSIS}") == "caf?~"
    stream = Ascii()
    Output(stream, stream).data("gr\xfc\xdfe")
    assert stream.getvalue() == "gr??e\n"
