"""Plans as values, and the patches that add and remove finalizers."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import HUB
from datum_compute.planning.plan import (
    Action,
    Create,
    Delete,
    Patch,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
    is_deferred,
)
from testkit.builders import a_deployment

OURS, THEIRS = "example.com/ours", "example.com/theirs"
WEB = Ref("default", "web-dfw")


def held_by(*finalizers: str, terminating: bool = False) -> WorkloadDeployment:
    return a_deployment(finalizers=finalizers, terminating=terminating)


def finalizers_in(actions: list[Action]) -> list[str]:
    """Return the finalizers that the only patch writes."""
    (patch,) = actions
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["resourceVersion"] == "7", "other writers add finalizers too"
    assert (patch.plane, patch.kind, patch.ref) == (HUB, DEPLOYMENT, WEB)
    finalizers: list[str] = patch.patch["metadata"]["finalizers"]
    return finalizers


def test_a_finalizer_is_added_after_those_of_others() -> None:
    actions = add_finalizer(HUB, DEPLOYMENT, held_by(THEIRS), OURS)
    assert finalizers_in(actions) == [THEIRS, OURS]


@pytest.mark.parametrize(
    "deployment",
    [
        pytest.param(held_by(OURS), id="present"),
        pytest.param(held_by(THEIRS, terminating=True), id="terminating"),
    ],
)
def test_no_finalizer_is_added_when_present_or_terminating(deployment: WorkloadDeployment) -> None:
    assert add_finalizer(HUB, DEPLOYMENT, deployment, OURS) == []


def test_only_the_named_finalizer_is_removed() -> None:
    held = held_by(OURS, THEIRS, terminating=True)
    assert finalizers_in(drop_finalizer(HUB, DEPLOYMENT, held, OURS)) == [THEIRS]


def test_an_absent_finalizer_needs_no_patch_and_no_wait() -> None:
    held = held_by(THEIRS, terminating=True)
    assert drop_finalizer(HUB, DEPLOYMENT, held, OURS, waiting_for=["cell dfw"]) == []


def test_a_finalizer_stays_while_other_objects_remain() -> None:
    held = held_by(OURS, terminating=True)
    waiting = drop_finalizer(HUB, DEPLOYMENT, held, OURS, waiting_for=["cell dfw", "cell ord"])
    assert waiting == [
        Wait("WorkloadDeployment default/web-dfw is waiting for: cell dfw, cell ord")
    ]


@pytest.mark.parametrize(
    ("action", "deferred"),
    [
        (Create(HUB, DEPLOYMENT, a_deployment(), "new"), False),
        (Create(HUB, DEPLOYMENT, a_deployment(), "new", deferred=True), True),
        (Delete(HUB, DEPLOYMENT, WEB, "uid", "old"), False),
        (Delete(HUB, DEPLOYMENT, WEB, "uid", "old", deferred=True), True),
        (Wait("later"), False),
        (Wait("later", deferred=True), True),
        (Patch(HUB, DEPLOYMENT, WEB, {}, "changed"), False),
    ],
)
def test_only_actions_that_are_marked_are_deferred(action: Action, deferred: bool) -> None:
    assert is_deferred(action) == deferred


def test_a_plan_is_settled_without_actions_whether_or_not_it_is_requeued() -> None:
    assert Plan().is_settled
    assert Plan(requeue_after_s=30.0).is_settled
    assert not Plan((Wait("for a reason"),)).is_settled


def test_plans_of_equal_objects_are_equal() -> None:
    deployment = held_by(THEIRS)
    same = msgspec.structs.replace(deployment)
    first, second = (add_finalizer(HUB, DEPLOYMENT, d, OURS) for d in (deployment, same))
    assert Plan(tuple(first)) == Plan(tuple(second))
    assert ref_of(deployment) == WEB
