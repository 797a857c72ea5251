"""Limits of a port: connections, and bytes that clients have not read yet."""

from __future__ import annotations

import resource
from dataclasses import dataclass, replace

MIB = 1024 * 1024
# For everything that is not a connection of the port: the database, engines, cells, logs.
_OTHER_FILES = 256
# More than this helps nobody, and programs that are started inherit the limit.
_FILES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class PortLimits:
    """``reserved_connections`` come on top of ``connections_max``, for controllers, cells and
    operators alone. A connection is anonymous until its first request has valid credentials."""

    connections_max: int = 8000
    reserved_connections: int = 500
    connections_per_user_max: int = 4000
    anonymous_connections_max: int = 2000
    anonymous_connections_per_address_max: int = 500
    unsent_bytes_max: int = 256 * MIB
    unsent_bytes_per_user_max: int = 64 * MIB


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns the limit that applies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a sandbox may forbid it
            return soft
        return wanted
    return _FILES_MAX if soft == resource.RLIM_INFINITY else soft


def fit_to_files(limits: PortLimits, files_max: int) -> PortLimits:
    """The limits, lowered so that connections leave file descriptors for everything else."""
    free = max(2, files_max - min(_OTHER_FILES, files_max // 4))
    reserved = min(limits.reserved_connections, free // 4)
    return replace(
        limits,
        connections_max=min(limits.connections_max, free - reserved),
        reserved_connections=reserved,
    )
