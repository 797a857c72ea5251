"""The connections of a port by address and user, and their limits.

A connection counts for its address while it is anonymous, and for its user once a request on it had
valid credentials. So users behind one address (NAT, loopback) do not share a limit, and a client
without credentials cannot use up the connections of others.

At a limit the table closes the oldest idle connection that counts toward it and admits the new one.
A connection is idle while it waits for a request. If no connection is idle, the table refuses the
new one. Controllers, cells and operators have reserved connections. A new connection may use a
reserved one until its first request identifies its user.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Protocol

from datum_compute.api.errors import TooManyRequests
from datum_compute.server.http.send_budget import PortLimits

ADDRESS, ANONYMOUS, USER, TOTAL = "address", "anonymous", "user", "total"
RETRY_AFTER_S = 5

ReportLimit = Callable[[str, str], None]  # takes the limit, and the address or user that reached it


class Occupant(Protocol):
    """The TLS handshake that occupies a slot, or later the connection."""

    @property
    def is_idle(self) -> bool: ...

    def shed(self, reason: str) -> None: ...


class _NoOccupant:
    @property
    def is_idle(self) -> bool:
        return False

    def shed(self, reason: str) -> None:
        """Do nothing: the connection is already closed."""


_NO_OCCUPANT = _NoOccupant()


class Slot:
    """The place of one connection in the table."""

    __slots__ = ("address", "is_reserved", "occupant", "user")

    def __init__(self, address: str, occupant: Occupant) -> None:
        self.address = address
        self.occupant = occupant
        self.user = ""  # empty while anonymous
        self.is_reserved = False


_Slots = dict[Slot, None]  # a dict, to keep the order of admission


class ConnectionTable:
    def __init__(self, limits: PortLimits, report_limit: ReportLimit) -> None:
        self._limits = limits
        self._report_limit = report_limit
        self._anonymous: _Slots = {}
        self._by_address: dict[str, _Slots] = {}
        self._by_user: dict[str, _Slots] = {}
        self._user_connections = 0  # without reserved connections
        self._reserved: _Slots = {}

    def count_by_state(self) -> dict[str, int]:
        return {
            "anonymous": len(self._anonymous),
            "user": self._user_connections,
            "reserved": len(self._reserved),
        }

    def admit(self, address: str, occupant: Occupant) -> Slot | None:
        """Return a slot for a new connection; None if it must be refused."""
        limits, address = self._limits, _address_group(address)
        slots = self._by_address.get(address, {})
        is_full = len(slots) >= limits.anonymous_connections_per_address_max
        if is_full and not self._shed_idle(slots, ADDRESS, address):
            return None
        if len(self._anonymous) >= limits.anonymous_connections_max and not self._shed_idle(
            self._anonymous, ANONYMOUS, address
        ):
            return None
        if self._is_full() and not self._shed_for_total(address):
            total = len(self._anonymous) + self._user_connections + len(self._reserved)
            if total >= limits.connections_max + limits.reserved_connections:
                return None
        slot = Slot(address, occupant)
        self._anonymous[slot] = None
        self._by_address.setdefault(address, {})[slot] = None
        return slot

    def identify(self, slot: Slot, user: str, *, reserved: bool) -> None:
        """Count the connection for a user from now on. Raises TooManyRequests at a limit."""
        if slot.user == user:
            return
        limits, user_slots = self._limits, self._by_user.get(user, {})
        if reserved:
            self._move(slot, user, is_reserved=True)
            return
        if len(user_slots) >= limits.connections_per_user_max and not self._shed_idle(
            user_slots, USER, user
        ):
            raise _too_many_connections(f'user "{user}" has {len(user_slots)} open connections')
        self._move(slot, user, is_reserved=False)
        unreserved = len(self._anonymous) + self._user_connections
        if unreserved > limits.connections_max and not self._shed_for_total(user, exclude=slot):
            raise _too_many_connections(f"the server has {limits.connections_max} open connections")

    def release(self, slot: Slot) -> None:
        """Remove a connection that has ended. Releasing it again does nothing."""
        self._remove(slot)
        slot.occupant = _NO_OCCUPANT

    def _remove(self, slot: Slot) -> None:
        if slot.user:
            user_slots = self._by_user.get(slot.user, {})
            if slot in user_slots:
                del user_slots[slot]
                if slot.is_reserved:
                    del self._reserved[slot]
                else:
                    self._user_connections -= 1
                if not user_slots:
                    del self._by_user[slot.user]
        elif self._anonymous.pop(slot, slot) is None:
            address_slots = self._by_address[slot.address]
            del address_slots[slot]
            if not address_slots:
                del self._by_address[slot.address]

    def shed_one(self, reason: str) -> bool:
        """Close a connection to free another resource, such as a file descriptor.

        This is the oldest idle connection of the user with the most connections, or the oldest one
        if none is idle. All anonymous connections together count as one user.
        """
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
            self._user_connections += 1

    def _is_full(self) -> bool:
        return len(self._anonymous) + self._user_connections >= self._limits.connections_max

    def _shed_for_total(self, client: str, exclude: Slot | None = None) -> bool:
        self._report_limit(TOTAL, client)
        victim = self._find_idle_for_total(exclude)
        if victim is not None:
            self._shed(victim, TOTAL)
        return victim is not None

    def _find_idle_for_total(self, exclude: Slot | None = None) -> Slot | None:
        """Return the oldest idle connection: an anonymous one, else of the user with the most."""
        victim = _oldest_idle(self._anonymous, exclude)
        if victim is None:
            ordinary = [slots for slots in self._by_user.values() if not _has_reserved(slots)]
            for slots in sorted(ordinary, key=len, reverse=True):
                if (victim := _oldest_idle(slots, exclude)) is not None:
                    break
        return victim

    def _shed_idle(self, slots: _Slots, limit: str, client: str) -> bool:
        self._report_limit(limit, client)
        victim = _oldest_idle(slots)
        if victim is not None:
            self._shed(victim, limit)
        return victim is not None

    def _shed(self, slot: Slot, reason: str) -> None:
        occupant = slot.occupant
        self.release(slot)
        occupant.shed(reason)


def _oldest_idle(slots: Iterable[Slot], exclude: Slot | None = None) -> Slot | None:
    return next((s for s in slots if s is not exclude and s.occupant.is_idle), None)


def _has_reserved(slots: _Slots) -> bool:
    return next(iter(slots)).is_reserved


def _address_group(address: str) -> str:
    """Return the IPv4 address, or the IPv6 /64: one client can use all addresses of a /64."""
    if ":" not in address:
        return address
    found = ipaddress.IPv6Address(address.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))


def _too_many_connections(why: str) -> TooManyRequests:
    return TooManyRequests(
        f"{why}, which is the limit; close some and try again", retry_after_s=RETRY_AFTER_S
    )
