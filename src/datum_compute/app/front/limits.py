"""Limits of a port on connections and on bytes that clients have not read yet."""

from __future__ import annotations

import resource
from dataclasses import dataclass, replace

MIB = 1024 * 1024
# Files that are not connections of the port: database, engines, cells, logs.
_OTHER_FILES = 256
# The server never needs more, and child processes inherit the limit.
_FILES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class PortLimits:
    """``reserved_connections`` are added to ``connections_max``, only for controllers, cells and
    operators. A connection is anonymous until a request on it has valid credentials."""

    connections_max: int = 8000
    reserved_connections: int = 500
    connections_per_user_max: int = 4000
    anonymous_connections_max: int = 2000
    anonymous_connections_per_address_max: int = 500
    unsent_bytes_max: int = 256 * MIB
    unsent_bytes_per_user_max: int = 64 * MIB


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one. Return the limit that applies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a sandbox may forbid it
            return soft
        return wanted
    return _FILES_MAX if soft == resource.RLIM_INFINITY else soft


def fit_to_file_limit(limits: PortLimits, files_max: int) -> PortLimits:
    """Return the limits, lowered so that file descriptors remain for the rest of the process."""
    free = max(2, files_max - min(_OTHER_FILES, files_max // 4))
    reserved = min(limits.reserved_connections, free // 4)
    return replace(
        limits,
        connections_max=min(limits.connections_max, free - reserved),
        reserved_connections=reserved,
    )
