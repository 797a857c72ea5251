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

_READ_MAX_BYTES = 32 * 1024


@contextmanager
def raw_mode(stream: TextIO) -> Iterator[None]:
    """Pass every key unchanged, including Ctrl-C and pending input. Restore the mode at the end."""
    descriptor = stream.fileno()
    previous_mode = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # TCSAFLUSH would discard pending input
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, previous_mode)


def terminal_size(stream: TextIO) -> tuple[int, int] | None:
    """Return columns and rows; None if the stream has no size."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        return None
    return (size.columns, size.lines) if size.columns and size.lines else None


@contextmanager
def on_resize(changed: Callable[[], None]) -> Iterator[None]:
    """Call ``changed`` on every resize while the context is open."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def read_bytes(stream: TextIO) -> AsyncGenerator[bytes, None]:
    """Yield the input until its end."""
    while data := await _read_once(stream.fileno()):
        yield data


async def _read_once(descriptor: int) -> bytes:
    """Read once after the event loop reports input.

    A second read would block the event loop until the next key.
    """
    loop = asyncio.get_running_loop()
    read_result: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        loop.remove_reader(descriptor)
        try:
            read_result.set_result(os.read(descriptor, _READ_MAX_BYTES))
        except OSError:  # the terminal is gone
            read_result.set_result(b"")

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:  # the input is a regular file, which never blocks
        return os.read(descriptor, _READ_MAX_BYTES)
    try:
        return await read_result
    finally:
        loop.remove_reader(descriptor)
