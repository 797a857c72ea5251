"""The terminal that a command was started on: its size, its raw mode, what is typed."""

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
def raw(stream: TextIO) -> Iterator[None]:
    """Every key goes through as it is, Ctrl-C too, and so does what was typed before; put back
    whatever happens."""
    descriptor = stream.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # TCSAFLUSH would throw away what was typed
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def size_of(stream: TextIO) -> tuple[int, int] | None:
    """Columns and rows; None if it has none."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except OSError:
        return None
    return (found.columns, found.lines) if found.columns and found.lines else None


@contextmanager
def told_of_size(changed: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def bytes_of(stream: TextIO) -> AsyncGenerator[bytes, None]:
    """What comes on it, until its end."""
    while data := await _piece(stream.fileno()):
        yield data


async def _piece(descriptor: int) -> bytes:
    """Read where the loop says that there is something, and only once: a terminal makes whoever
    reads too often wait for the next key, and everything else with it."""
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
    except PermissionError:  # a file: it never keeps anybody waiting
        return os.read(descriptor, _PIECE)
    try:
        return await found
    finally:
        loop.remove_reader(descriptor)
