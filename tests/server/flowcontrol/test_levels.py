"""Who belongs to which priority level."""

from __future__ import annotations

import pytest

from datum_compute.server.access.authentication import User
from datum_compute.server.flowcontrol.fair_queue import (
    ANONYMOUS,
    EXEMPT,
    LEADER_ELECTION,
    SYSTEM,
    USERS,
    PriorityLevel,
    level_of,
)


@pytest.mark.parametrize(
    ("name", "groups", "resource", "level"),
    [
        ("root", ("system:masters",), "workloads", EXEMPT),
        ("system:compute-manager", (), "instances", SYSTEM),
        ("system:compute-manager", (), "leases", LEADER_ELECTION),
        ("system:operator", (), "projects", SYSTEM),
        ("system:hub", (), "workloaddeployments", SYSTEM),
        ("system:cell:dfw", ("system:cells",), "instances", SYSTEM),
        ("system:cell:dfw", ("system:cells",), "leases", LEADER_ELECTION),
        ("ann", ("system:authenticated",), "workloads", USERS),
        ("ann", ("system:authenticated",), "leases", USERS),
        ("system:serviceaccount:default:bot", ("system:serviceaccounts",), "workloads", USERS),
        ("system:joiner:join-1", ("system:joiners",), "celljoins", USERS),
    ],
)
def test_the_sender_and_the_resource_decide_the_level(
    name: str, groups: tuple[str, ...], resource: str, level: PriorityLevel
) -> None:
    assert level_of(User(name, groups), resource) is level


def test_a_request_without_valid_credentials_is_anonymous() -> None:
    assert level_of(None) is ANONYMOUS
