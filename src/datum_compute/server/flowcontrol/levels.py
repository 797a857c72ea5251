"""Priority levels, after API Priority and Fairness of kube-apiserver.

Every request belongs to one level. While the server is busy the levels share its time by weight: a
level that uses less than its share is served at once, and time that one level does not use goes to
the others. Inside a level all planes have equal shares, and inside a plane all users.

A request counts for the user who sent it, not for the user it impersonates: otherwise whoever may
impersonate could move to a higher level.
"""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.cellidentity import CELLS_GROUP
from datum_compute.server.authentication import MASTERS, User

_SYSTEM_PREFIX = "system:"
# Names with the reserved prefix that do not belong to the platform itself.
_NOT_SYSTEM = ("system:serviceaccount:", "system:joiner:", "system:anonymous")
_LEASES = "leases"


@dataclass(frozen=True, slots=True, eq=False)
class PriorityLevel:
    """``weight`` is its part of the time when every level has requests waiting.

    Requests of an exempt level never wait and are never rejected.
    """

    name: str
    weight: float = 1.0
    exempt: bool = False
    # The platform's own controllers and cells run a bounded number of requests at once. The limits
    # of one user do not apply to them, and their watches are charged but do not wait.
    system: bool = False


EXEMPT = PriorityLevel("exempt", exempt=True)
LEADER_ELECTION = PriorityLevel("leader-election", weight=30, system=True)
SYSTEM = PriorityLevel("system", weight=60, system=True)
USERS = PriorityLevel("users", weight=30)
ANONYMOUS = PriorityLevel("anonymous", weight=1)
LEVELS = (EXEMPT, LEADER_ELECTION, SYSTEM, USERS, ANONYMOUS)


def level_of(user: User | None, resource: str = "") -> PriorityLevel:
    """The level of a request by its sender and the resource it is for; None is a sender without
    valid credentials."""
    if user is None:
        return ANONYMOUS
    if MASTERS in user.groups:
        return EXEMPT
    if CELLS_GROUP in user.groups or is_system_user(user.name):
        return LEADER_ELECTION if resource == _LEASES else SYSTEM
    return USERS


def is_system_user(name: str) -> bool:
    return name.startswith(_SYSTEM_PREFIX) and not name.startswith(_NOT_SYSTEM)
