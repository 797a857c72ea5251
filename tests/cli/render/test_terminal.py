"""Raw mode and input of a terminal, and replacements for what a stream cannot encode."""

from __future__ import annotations

import asyncio
import io
import os

import pytest

from datum_compute.cli.render.output import Output, replace_unencodable
from datum_compute.cli.render.terminal import raw_mode, read_bytes


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
    assert replace_unencodable(Ascii(), "\N{FULL BLOCK}\N{LIGHT SHADE}") == "#."
    assert replace_unencodable(Ascii(), "caf\xe9\N{HORIZONTAL ELLIPSIS}") == "caf?~"
    stream = Ascii()
    Output(stream, stream).data("gr\xfc\xdfe")
    assert stream.getvalue() == "gr??e\n"
