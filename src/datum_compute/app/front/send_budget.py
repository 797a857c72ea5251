"""Limits on bytes that clients have not read yet, for each user and for all users together.

Every connection has an account of the bytes that its client has not read. When a user exceeds the
limit, the budget closes the slowest connection of the user: the one whose client has read no data
for the longest time. Above the limit for all users, it closes the slowest connection of the user
with the most unsent bytes. A client whose watch was closed reconnects and continues from its last
resourceVersion.

The limit of a user does not close the only connection of that user: one response may be larger than
the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

    __slots__ = ("_budget", "is_reserved", "sender", "since_s", "size_bytes", "user")

    def __init__(self, budget: SendBudget, sender: Sender) -> None:
        self._budget = budget
        self.sender: Sender = sender
        self.user = ""
        self.is_reserved = False
        self.size_bytes = 0
        self.since_s = 0.0  # when the client last read data

    def set_user(self, user: str, *, is_reserved: bool) -> None:
        size_bytes, since_s = self.size_bytes, self.since_s
        self._budget.record(self, 0)
        self.user, self.is_reserved = user, is_reserved
        self._budget.record(self, size_bytes)
        self.since_s = since_s

    def close(self) -> None:
        """Remove the account of a connection that has ended."""
        self._budget.record(self, 0)
        self.sender = _NO_SENDER

    def record(self, size_bytes: int) -> None:
        """Record how many bytes are unsent now. This may close connections, including this one."""
        if size_bytes == self.size_bytes:
            return
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
            self.record(account, 0)

    def _largest_user(self) -> str:
        """Return the user to shrink. Reserved users come last: all projects depend on them."""

        def rank(name: str) -> tuple[bool, int]:
            user = self._users[name]
            reserved = any(account.is_reserved for account in user.accounts)
            return (not reserved, user.size_bytes)

        return max(self._users, key=rank)
