"""The controllers of claims release the quota of slots that are no longer wanted."""

from __future__ import annotations

from datum_compute.controllers.quota.claims import released_slots
from testkit.builders import a_deployment


def test_a_change_of_a_deployment_wakes_the_claims_of_released_slots() -> None:
    leaving = a_deployment(replicas=3, terminating=True)
    assert released_slots(a_deployment(replicas=3), a_deployment(replicas=1)) == range(1, 3)
    assert not released_slots(a_deployment(replicas=1), a_deployment(replicas=3))
    assert released_slots(a_deployment(replicas=3), leaving) == range(3)
    assert released_slots(a_deployment(replicas=3), None) == range(3)
    assert released_slots(leaving, None) == range(3)
    assert not released_slots(leaving, leaving), "a status update releases no slot"
