"""Limits on bytes that clients have not read yet, for each user and for all users together.

Every connection has an account of the bytes that its client has not read. When a user exceeds the
limit, the budget closes the slowest connection of the user: the one whose client has read no data
for the longest time. Above the limit for all users, it closes the slowest connection of the user
with the most unsent bytes. A client whose watch was closed reconnects and continues from its last
resourceVersion.

A large chunk of a stream is one bytes object for all watches that send it. It counts once, for the
account that has held it longest.

The limit of a user does not close the only connection of that user: one response may be larger than
the limit.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

USER_LIMIT, TOTAL_LIMIT = "send-buffer-user", "send-buffer-total"


class Sender(Protocol):
    """The sending side of a connection."""

    def measure_unsent(self) -> int:
        """Return how many bytes the client has not read yet."""
        ...

    def shed(self, reason: str) -> None:
        """Close the connection and release its buffers."""
        ...


class _NoSender:
    def measure_unsent(self) -> int:
        return 0

    def shed(self, reason: str) -> None:
        """Do nothing: the connection is already closed."""


_NO_SENDER = _NoSender()


@dataclass(slots=True)
class _UserAccounts:
    accounts: dict[SendAccount, None]  # connections with unsent bytes, oldest first
    size_bytes: int = 0


class SendAccount:
    """The unsent bytes of one connection. ``user`` is empty while it is anonymous."""

    __slots__ = (
        "_budget",
        "_chunk",
        "chunk_bytes",
        "is_reserved",
        "sender",
        "since_s",
        "size_bytes",
        "user",
    )

    def __init__(self, budget: SendBudget, sender: Sender) -> None:
        self._budget = budget
        self.sender: Sender = sender
        self.user = ""
        self.is_reserved = False
        self.size_bytes = 0
        self.since_s = 0.0  # when the client last read data
        self._chunk: bytes | None = None  # the large chunk that the connection sends
        self.chunk_bytes = 0  # its size, if it counts for this account

    def set_user(self, user: str, *, is_reserved: bool) -> None:
        size_bytes, since_s = self.size_bytes, self.since_s
        self._budget.record(self, 0)
        self.user, self.is_reserved = user, is_reserved
        self._budget.record(self, size_bytes)
        self.since_s = since_s

    def close(self) -> None:
        """Remove the account of a connection that has ended."""
        self.release_chunk()
        self._budget.record(self, 0)
        self.sender = _NO_SENDER

    def hold_chunk(self, chunk: bytes) -> None:
        """Count a chunk from now on, unless it counts for another account already."""
        self._chunk = chunk
        self._budget.hold_chunk(self, chunk)

    def release_chunk(self) -> None:
        if self._chunk is not None:
            chunk, self._chunk = self._chunk, None
            self._budget.release_chunk(self, chunk)

    def record(self, size_bytes: int) -> None:
        """Record how many bytes are unsent now. This may close connections, including this one.
        The writer calls it only if the number has changed."""
        grows = size_bytes > self.size_bytes
        self._budget.record(self, size_bytes)
        if grows:
            self._budget.enforce(self)


class SendBudget:
    def __init__(self, per_user_max: int, total_max: int, clock: Callable[[], float]) -> None:
        self._per_user_max = per_user_max
        self._total_max = total_max
        self._clock = clock
        self._users: dict[str, _UserAccounts] = {}
        # Accounts that hold a chunk, by the ``id`` of the chunk. It counts for the first of them.
        self._holders: dict[int, dict[SendAccount, None]] = {}
        self.total_bytes = 0

    def open_account(self, sender: Sender) -> SendAccount:
        return SendAccount(self, sender)

    def user_bytes(self, user: str) -> int:
        found = self._users.get(user)
        return found.size_bytes if found is not None else 0

    def record(self, account: SendAccount, size_bytes: int) -> None:
        delta = size_bytes - account.size_bytes
        if not account.size_bytes or delta < 0:
            account.since_s = self._clock()
        account.size_bytes = size_bytes
        self.total_bytes += delta
        user = self._users.get(account.user)
        if user is None:
            user = self._users[account.user] = _UserAccounts({})
        user.size_bytes += delta
        if size_bytes:
            user.accounts[account] = None
        else:
            user.accounts.pop(account, None)
            if not user.accounts:
                del self._users[account.user]

    def hold_chunk(self, account: SendAccount, chunk: bytes) -> None:
        holders = self._holders.setdefault(id(chunk), {})
        if not holders:
            account.chunk_bytes = len(chunk)
        holders[account] = None

    def release_chunk(self, account: SendAccount, chunk: bytes) -> None:
        holders = self._holders[id(chunk)]
        del holders[account]
        if not holders:
            del self._holders[id(chunk)]
        elif account.chunk_bytes:
            next_account = next(iter(holders))
            next_account.chunk_bytes = len(chunk)
            self.record(next_account, next_account.sender.measure_unsent())
        account.chunk_bytes = 0

    def enforce(self, grown: SendAccount) -> None:
        """Close the slowest connections until both limits hold."""
        if not grown.is_reserved and self.user_bytes(grown.user) > self._per_user_max:
            self._shrink(grown.user, self._excess_of_user, USER_LIMIT)
        while self.total_bytes > self._total_max:
            before = self.total_bytes
            self._shrink(self._largest_user(), self._excess_of_all, TOTAL_LIMIT)
            if self.total_bytes == before:
                return

    def _excess_of_user(self, user: str) -> int:
        found = self._users.get(user)
        is_only_one = found is None or len(found.accounts) <= 1
        return 0 if is_only_one else self.user_bytes(user) - self._per_user_max

    def _excess_of_all(self, user: str) -> int:
        found = self._users.get(user)
        is_only_one = found is None or (len(self._users) == 1 and len(found.accounts) <= 1)
        return 0 if is_only_one else self.total_bytes - self._total_max

    def _shrink(self, name: str, excess: Callable[[str], int], reason: str) -> None:
        """Close connections of a user, slowest first, while there is an excess."""
        user = self._users[name]
        for account in list(user.accounts):  # clients may have read data since the last record
            if (unsent := account.sender.measure_unsent()) != account.size_bytes:
                self.record(account, unsent)
        slowest = sorted(user.accounts, key=lambda account: account.since_s)
        for account in slowest:
            if excess(name) <= 0:
                break
            account.sender.shed(reason)
            account.release_chunk()
            self.record(account, 0)

    def _largest_user(self) -> str:
        """Return the user to shrink. Reserved users come last: all projects depend on them."""

        def rank(name: str) -> tuple[bool, int]:
            user = self._users[name]
            reserved = any(account.is_reserved for account in user.accounts)
            return (not reserved, user.size_bytes)

        return max(self._users, key=rank)


# --- Limits of a port on connections and on bytes that clients have not read yet


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
