"""The terminal of a command: its size, raw mode and input."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_PIECE = 32 * 1024


@contextmanager
def raw_mode(stream: TextIO) -> Iterator[None]:
    """Pass every key unchanged, including Ctrl-C and pending input. Restore the mode at the end."""
    descriptor = stream.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # TCSAFLUSH would throw away what was typed
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def size_of(stream: TextIO) -> tuple[int, int] | None:
    """Return columns and rows; None if the stream has no size."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except OSError:
        return None
    return (found.columns, found.lines) if found.columns and found.lines else None


@contextmanager
def on_resize(changed: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def read_bytes(stream: TextIO) -> AsyncGenerator[bytes, None]:
    """Yield the input until its end."""
    while data := await _piece(stream.fileno()):
        yield data


async def _piece(descriptor: int) -> bytes:
    """Read once after the event loop reports input.

    A second read would block the event loop until the next key.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        loop.remove_reader(descriptor)
        try:
            found.set_result(os.read(descriptor, _PIECE))
        except OSError:  # the terminal is gone
            found.set_result(b"")

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:  # a file, which never blocks
        return os.read(descriptor, _PIECE)
    try:
        return await found
    finally:
        loop.remove_reader(descriptor)
