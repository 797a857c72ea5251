"""Whether the kernel ended a container for its memory. Engines say so, except where the kernel does
not tell them (podman 4 under cgroup v1); then its own log is the proof, if we may read it."""

from __future__ import annotations

import os

_LOG = "/dev/kmsg"
_LINES_MAX = 100_000
_LINE_BYTES = 8192


def ran_out_of_memory(container_id: str) -> bool:
    mark = container_id.encode()
    try:
        log = os.open(_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return any(b"oom-kill" in line and mark in line for line in _lines(log))
    finally:
        os.close(log)


def _lines(log: int) -> list[bytes]:
    """All that the kernel still has; one read is one line."""
    found: list[bytes] = []
    for _ in range(_LINES_MAX):
        try:
            found.append(os.read(log, _LINE_BYTES))
        except BlockingIOError:
            break
        except OSError:  # lines were overwritten while we read: go on with the next
            continue
    return found
