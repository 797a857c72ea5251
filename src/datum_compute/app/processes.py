"""Processes of containers, by their number on this host."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def hang_up(process: int, container_id: str, by_force: bool) -> None:
    """Ask a process of the container to end, or end it; with what it has started. A number that by
    now is somebody else's is left alone: the kernel knows whose container a process is in."""
    with suppress(OSError):
        if container_id not in (_PROC / str(process) / "cgroup").read_text():
            return
        how = signal.SIGKILL if by_force else signal.SIGHUP
        if os.getpgid(process) == process:
            os.killpg(process, how)
        else:
            os.kill(process, how)
