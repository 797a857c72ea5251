"""What a cell remembers of quota: enough to go on alone, and nothing that it has given back."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.conditions import TRUE, Verdict, decided
from datum_compute.api.instance import QUOTA_GRANTED, Instance
from datum_compute.api.workloaddeployment import (
    GrantedSlots,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.planning.quota.claims import Size, is_granted_before, ordinals_of, recorded_slots
from testkit.builders import NOW, a_deployment, an_instance

SMALL, LARGE = Size(1000, 2048), Size(2000, 4096)


def granted(number: int) -> Instance:
    instance = an_instance(number)
    said = decided(QUOTA_GRANTED, Verdict(TRUE, "QuotaAvailable", ""), generation=1, now=NOW)
    status = msgspec.structs.replace(instance.status, conditions=[said])
    return msgspec.structs.replace(instance, status=status)


def remembering(*slots: GrantedSlots) -> WorkloadDeployment:
    return msgspec.structs.replace(
        a_deployment(replicas=9), status=WorkloadDeploymentStatus(granted=list(slots))
    )


def test_slots_with_quota_are_recorded_in_short() -> None:
    held = {n: granted(n) for n in (0, 1, 2, 5)} | {3: an_instance(3)}
    found = recorded_slots(remembering(), held, 6, lambda _: SMALL)
    assert found == [GrantedSlots(size="1000m/2048Mi", ordinals="0-2,5")]


def test_an_empty_slot_keeps_its_record_and_one_that_is_not_wanted_loses_it() -> None:
    before = remembering(GrantedSlots(size="1000m/2048Mi", ordinals="0-4"))
    found = recorded_slots(before, {0: granted(0)}, 3, lambda _: SMALL)
    assert found == [GrantedSlots(size="1000m/2048Mi", ordinals="0-2")]
    assert recorded_slots(before, {0: granted(0)}, 0, lambda _: SMALL) == []


def test_an_instance_of_another_size_ends_the_record_until_it_is_granted_its_own() -> None:
    before = remembering(GrantedSlots(size="1000m/2048Mi", ordinals="0"))
    assert recorded_slots(before, {0: an_instance(0)}, 1, lambda _: LARGE) == []
    found = recorded_slots(before, {0: granted(0)}, 1, lambda _: LARGE)
    assert found == [GrantedSlots(size="2000m/4096Mi", ordinals="0")]


def test_only_the_slot_and_the_size_on_record_are_granted() -> None:
    before = remembering(GrantedSlots(size="1000m/2048Mi", ordinals="0-1"))
    assert is_granted_before(before, 1, SMALL)
    assert not is_granted_before(before, 2, SMALL)
    assert not is_granted_before(before, 1, LARGE)
    assert not is_granted_before(before, 1, None)


@pytest.mark.parametrize("text", ["", "-", "a", "1-b", "9" * 40, "-3"])
def test_of_an_unreadable_record_nothing_is_granted(text: str) -> None:
    assert not list(ordinals_of(GrantedSlots(size="any", ordinals=text)))
