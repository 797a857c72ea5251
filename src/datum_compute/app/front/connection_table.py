"""The connections of a port by address and user, and their limits.

A connection counts for its address while it is anonymous, and for its user once a request on it had
valid credentials. So users behind one address (NAT, loopback) do not share a limit, and a client
without credentials cannot use up the connections of others.

At a limit the oldest idle connection that counts towards it is closed, and the new one is served.
Idle is a connection that waits for a request. Only if there is none, the new one is refused.
Controllers, cells and operators have connections in reserve: a new connection may use one until it
is known who sends requests on it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Protocol

from datum_compute.api.errors import TooManyRequests
from datum_compute.app.front.limits import PortLimits

ADDRESS, ANONYMOUS, USER, TOTAL = "address", "anonymous", "user", "total"
RETRY_AFTER_S = 5

Report = Callable[[str, str], None]  # which limit was reached, and by whom


class Occupant(Protocol):
    """What occupies a slot: a TLS handshake, then the connection."""

    @property
    def is_idle(self) -> bool: ...

    def shed(self, reason: str) -> None: ...


class _Nobody:
    @property
    def is_idle(self) -> bool:
        return False

    def shed(self, reason: str) -> None:
        """There is nothing to close."""


_NOBODY = _Nobody()


class Slot:
    """The place of one connection in the table."""

    __slots__ = ("address", "is_reserved", "occupant", "user")

    def __init__(self, address: str, occupant: Occupant) -> None:
        self.address = address
        self.occupant = occupant
        self.user = ""  # anonymous
        self.is_reserved = False


_Slots = dict[Slot, None]  # in the order in which they were taken


class ConnectionTable:
    def __init__(self, limits: PortLimits, report: Report) -> None:
        self._limits = limits
        self._report = report
        self._anonymous: _Slots = {}
        self._by_address: dict[str, _Slots] = {}
        self._by_user: dict[str, _Slots] = {}
        self._users = 0  # connections of users that are not reserved callers
        self._reserved: _Slots = {}

    def count_by_state(self) -> dict[str, int]:
        return {
            "anonymous": len(self._anonymous),
            "user": self._users,
            "reserved": len(self._reserved),
        }

    def admit(self, address: str, occupant: Occupant) -> Slot | None:
        """A slot for a new connection; None if it must be refused."""
        limits, address = self._limits, _address_group(address)
        of_address = self._by_address.get(address, {})
        if len(of_address) >= limits.anonymous_connections_per_address_max and not self._make_room(
            of_address, ADDRESS, address
        ):
            return None
        if len(self._anonymous) >= limits.anonymous_connections_max and not self._make_room(
            self._anonymous, ANONYMOUS, address
        ):
            return None
        if self._is_full() and not self._shed_for_total(address):
            total = len(self._anonymous) + self._users + len(self._reserved)
            if total >= limits.connections_max + limits.reserved_connections:
                return None
        slot = Slot(address, occupant)
        self._anonymous[slot] = None
        self._by_address.setdefault(address, {})[slot] = None
        return slot

    def identify(self, slot: Slot, user: str, *, reserved: bool) -> None:
        """Count the connection for a user from now on; raises TooManyRequests at a limit."""
        if slot.user == user:
            return
        limits, of_user = self._limits, self._by_user.get(user, {})
        if reserved:
            self._move(slot, user, is_reserved=True)
            return
        if len(of_user) >= limits.connections_per_user_max and not self._make_room(
            of_user, USER, user
        ):
            raise _too_many(f'user "{user}" has {len(of_user)} connections open')
        self._move(slot, user, is_reserved=False)
        unreserved = len(self._anonymous) + self._users
        if unreserved > limits.connections_max and not self._shed_for_total(user, besides=slot):
            raise _too_many("the server has as many connections as it may have")

    def release(self, slot: Slot) -> None:
        """The connection is gone; releasing it again does nothing."""
        self._remove(slot)
        slot.occupant = _NOBODY

    def _remove(self, slot: Slot) -> None:
        if slot.user:
            of_user = self._by_user.get(slot.user, {})
            if slot in of_user:
                del of_user[slot]
                if slot.is_reserved:
                    del self._reserved[slot]
                else:
                    self._users -= 1
                if not of_user:
                    del self._by_user[slot.user]
        elif self._anonymous.pop(slot, slot) is None:
            of_address = self._by_address[slot.address]
            del of_address[slot]
            if not of_address:
                del self._by_address[slot.address]

    def shed_one(self, reason: str) -> bool:
        """Close a connection because something else ran out, such as file descriptors: the oldest
        idle one, or else the oldest, of the user with most connections. Anonymous connections
        together count as one user."""
        groups = [slots for slots in self._by_user.values() if not _has_reserved(slots)]
        largest = max([self._anonymous, *groups], key=len)
        if not largest:
            return False
        self._shed(_oldest_idle(largest) or next(iter(largest)), reason)
        return True

    def _move(self, slot: Slot, user: str, *, is_reserved: bool) -> None:
        self._remove(slot)
        slot.user, slot.is_reserved = user, is_reserved
        self._by_user.setdefault(user, {})[slot] = None
        if is_reserved:
            self._reserved[slot] = None
        else:
            self._users += 1

    def _is_full(self) -> bool:
        return len(self._anonymous) + self._users >= self._limits.connections_max

    def _shed_for_total(self, who: str, besides: Slot | None = None) -> bool:
        self._report(TOTAL, who)
        victim = self._idle_for_total(besides)
        if victim is not None:
            self._shed(victim, TOTAL)
        return victim is not None

    def _idle_for_total(self, besides: Slot | None = None) -> Slot | None:
        """The oldest idle anonymous connection, else one of the user with most connections."""
        victim = _oldest_idle(self._anonymous, besides)
        if victim is None:
            ordinary = [slots for slots in self._by_user.values() if not _has_reserved(slots)]
            for slots in sorted(ordinary, key=len, reverse=True):
                if (victim := _oldest_idle(slots, besides)) is not None:
                    break
        return victim

    def _make_room(self, slots: _Slots, limit: str, who: str) -> bool:
        self._report(limit, who)
        victim = _oldest_idle(slots)
        if victim is not None:
            self._shed(victim, limit)
        return victim is not None

    def _shed(self, slot: Slot, reason: str) -> None:
        occupant = slot.occupant
        self.release(slot)
        occupant.shed(reason)


def _oldest_idle(slots: Iterable[Slot], besides: Slot | None = None) -> Slot | None:
    return next((s for s in slots if s is not besides and s.occupant.is_idle), None)


def _has_reserved(slots: _Slots) -> bool:
    return next(iter(slots)).is_reserved


def _address_group(address: str) -> str:
    """One client may have all addresses of an IPv6 /64."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))


def _too_many(why: str) -> TooManyRequests:
    return TooManyRequests(
        f"{why}, which is the limit; close some and try again", retry_after_s=RETRY_AFTER_S
    )
