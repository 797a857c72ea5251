"""Priority levels, after API Priority and Fairness of kube-apiserver.

Every request belongs to one level. While the server is busy the levels share its time by weight: a
level that uses less than its share is served at once, and time that one level does not use goes to
the others. Inside a level all planes have equal shares, and inside a plane all users.

The level depends on the user who sent the request, not on the user it impersonates: otherwise
impersonation would grant a higher level.
"""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.server.access.authentication import MASTERS, User, is_platform_user

_LEASES = "leases"


@dataclass(frozen=True, slots=True, eq=False)
class PriorityLevel:
    """``weight`` is the share of the time while every level has waiting requests.

    Requests of an exempt level never wait and are never rejected.
    """

    name: str
    weight: float = 1.0
    exempt: bool = False
    # Controllers and cells run a bounded number of requests at once, so the limits of one user do
    # not apply to them. Their watches are charged but do not wait.
    system: bool = False


EXEMPT = PriorityLevel("exempt", exempt=True)
LEADER_ELECTION = PriorityLevel("leader-election", weight=30, system=True)
SYSTEM = PriorityLevel("system", weight=60, system=True)
USERS = PriorityLevel("users", weight=30)
ANONYMOUS = PriorityLevel("anonymous", weight=1)
LEVELS = (EXEMPT, LEADER_ELECTION, SYSTEM, USERS, ANONYMOUS)


def level_of(user: User | None, resource: str = "") -> PriorityLevel:
    """Return the level of a request by its sender and resource. ``user`` is None without valid
    credentials."""
    if user is None:
        return ANONYMOUS
    if MASTERS in user.groups:
        return EXEMPT
    if is_platform_user(user):
        return LEADER_ELECTION if resource == _LEASES else SYSTEM
    return USERS
