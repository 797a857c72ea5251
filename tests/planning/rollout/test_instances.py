"""Order and safety of instance control: the golden cases, one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import ConditionValue, make_condition
from datum_compute.api.instance import READY, Instance, SchedulingGate
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import cell_plane
from datum_compute.api.workload import ScaleSettings
from datum_compute.planning.explain.explain import describe_action
from datum_compute.planning.plan import Action, Create, Delete, Patch, Wait, is_deferred
from datum_compute.planning.rollout.instances import plan_instances
from datum_compute.planning.rollout.slots import MinReady
from testkit.builders import NOW, a_deployment, an_instance, without_status

CELL = cell_plane("dfw")
MIN_READY = MinReady(5, NOW)


def said(actions: tuple[Action, ...]) -> list[str]:
    """Each action as one word: what, which ordinal, and s if it is skipped."""
    words = []
    for action in actions:
        mark = " s" if is_deferred(action) else ""
        match action:
            case Create(object=obj):
                words.append(f"create-{ref_of(obj).name.rpartition('-')[2]}{mark}")
            case Delete(ref=ref):
                words.append(f"delete-{ref.name.rpartition('-')[2]}{mark}")
            case Patch(ref=ref, patch={"metadata": {"labels": _}}):
                words.append(f"label-{ref.name.rpartition('-')[2]}")
            case Wait(reason=reason):
                words.append(f"wait-{reason.split()[0].rpartition('-')[2]}{mark}")
    return words


def describe_all(actions: Iterable[Action]) -> list[str]:
    return [describe_action(a) for a in actions if isinstance(a, Create | Delete | Wait)]


Case = tuple[str, dict[str, Any], list[dict[str, Any]], list[str]]


def old(number: int, **more: Any) -> dict[str, Any]:
    return {"number": number, "image": "web:0", **more}


def now(number: int, **more: Any) -> dict[str, Any]:
    return {"number": number, **more}


# Ready and not available yet; Unknown: ready before its driver restarted.
FRESH: dict[str, Any] = {"ready_since": NOW}
UNKNOWN: dict[str, Any] = {"ready": None}


ORDERED: list[Case] = [
    ("fresh", {"min_replicas": 2}, [], ["create-0", "create-1 s"]),
    ("settled", {"min_replicas": 2}, [now(0), now(1)], []),
    ("next is created when the one below is ready", {"min_replicas": 2}, [now(0)], ["create-1"]),
    (
        "a new template rolls from the highest ordinal",
        {"min_replicas": 2},
        [old(0), old(1)],
        ["delete-1", "delete-0 s"],
    ),
    (
        "a slot that is filled again holds back the rollout",
        {"min_replicas": 3, "max_unavailable": 2},
        [old(0), now(1)],
        ["create-2", "delete-0 s"],
    ),
    (
        "one that is not ready holds back those above",
        {"min_replicas": 3},
        [now(0), now(1, ready=False)],
        ["wait-1", "create-2 s"],
    ),
    (
        "a terminating one holds back those above",
        {"min_replicas": 3},
        [now(0), now(1, terminating=True)],
        ["wait-1", "create-2 s"],
    ),
    ("scale down takes the highest", {"min_replicas": 1}, [now(0), now(1)], ["delete-1"]),
    (
        "surplus goes one at a time, highest first",
        {"min_replicas": 1},
        [now(0), now(1), now(2)],
        ["delete-2", "delete-1 s"],
    ),
    (
        "surplus never waits for what is not ready",
        {"min_replicas": 1},
        [now(0, ready=False), now(1)],
        ["delete-1", "wait-0"],
    ),
    (
        "surplus never waits for surplus that is slow to go",
        {"min_replicas": 1},
        [now(0), now(1), now(2, terminating=True)],
        ["delete-1", "wait-2"],
    ),
    (
        "a broken old template is replaced before anything that works",
        {"min_replicas": 2},
        [old(0), old(1, ready=False)],
        ["delete-1", "delete-0 s"],
    ),
    (
        "a broken template that was rolled out everywhere can be rolled forward",
        {"min_replicas": 3},
        [old(0, ready=False), old(1, ready=False), old(2, ready=False)],
        ["delete-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "a roll waits for the replacement before it goes on",
        {"min_replicas": 2},
        [old(0), now(1, ready=False)],
        ["wait-1", "delete-0 s"],
    ),
    (
        "a replacement that is not available holds back the roll, however wide the budget is",
        {"min_replicas": 4, "max_unavailable": 2},
        [old(0), old(1), old(2), now(3, ready=False)],
        ["wait-3", "delete-2 s", "delete-1 s", "delete-0 s"],
    ),
    (
        "a roll uses its whole budget again once all replacements are available",
        {"min_replicas": 4, "max_unavailable": 2},
        [old(0), old(1), now(2), now(3)],
        ["delete-1", "delete-0"],
    ),
    (
        "a share is rounded down",
        {"min_replicas": 5, "max_unavailable": "50%"},
        [old(0), old(1), old(2), old(3), old(4)],
        ["delete-4", "delete-3", "delete-2 s", "delete-1 s", "delete-0 s"],
    ),
    (
        "a share is never less than one",
        {"min_replicas": 2, "max_unavailable": "1%"},
        [old(0), old(1)],
        ["delete-1", "delete-0 s"],
    ),
    (
        "a roll waits until the replacement is available",
        {"min_replicas": 2},
        [old(0), now(1, **FRESH)],
        ["wait-1", "delete-0 s"],
    ),
    (
        "a roll goes on when the replacement is available",
        {"min_replicas": 2},
        [old(0), now(1)],
        ["delete-0"],
    ),
    (
        "empty slots are filled when those below are ready, available or not",
        {"min_replicas": 3},
        [now(0), now(1, **FRESH)],
        ["create-2"],
    ),
    (
        "an old instance that is ready and not available yet counts as serving",
        {"min_replicas": 2},
        [old(0, **FRESH), old(1)],
        ["delete-1", "delete-0 s"],
    ),
    (
        "a wider budget counts replacements that are not available",
        {"min_replicas": 4, "max_unavailable": 2},
        [old(0), old(1), now(2, **FRESH), now(3, ready=False)],
        ["wait-3", "wait-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "unknown readiness of old instances costs the budget",
        {"min_replicas": 3},
        [old(0, **UNKNOWN), old(1, **UNKNOWN), old(2, **UNKNOWN)],
        ["delete-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "unknown readiness of an old instance beside an empty slot removes nothing",
        {"min_replicas": 2},
        [old(0, **UNKNOWN)],
        ["create-1", "delete-0 s"],
    ),
    (
        "a replacement of unknown readiness holds back the roll",
        {"min_replicas": 2},
        [old(0), now(1, **UNKNOWN)],
        ["wait-1", "delete-0 s"],
    ),
    (
        "a current instance of unknown readiness holds back those above",
        {"min_replicas": 2},
        [now(0, **UNKNOWN)],
        ["wait-0", "create-1 s"],
    ),
    (
        "a bad release is undone although one of its instances is ready at times",
        {"min_replicas": 2},
        [now(0), old(1, **FRESH)],
        ["delete-1"],
    ),
]

PARALLEL: list[Case] = [
    ("fresh", {"min_replicas": 3}, [], ["create-0", "create-1", "create-2"]),
    (
        "one that is not ready holds back nobody",
        {"min_replicas": 3},
        [now(0, ready=False)],
        ["wait-0", "create-1", "create-2"],
    ),
    (
        "surplus goes together",
        {"min_replicas": 1},
        [now(0), now(1), now(2)],
        ["delete-2", "delete-1"],
    ),
    (
        "a roll keeps to its budget",
        {"min_replicas": 4, "max_unavailable": "50%"},
        [old(0), old(1), old(2), old(3)],
        ["delete-3", "delete-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "what is out of service already counts against the budget",
        {"min_replicas": 3},
        [old(0), old(1), now(2, terminating=True)],
        ["wait-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "broken ones of an older template go together and cost no budget",
        {"min_replicas": 3},
        [old(0), old(1, ready=False), old(2, ready=False)],
        ["delete-2", "delete-1", "delete-0 s"],
    ),
]

PAUSED: list[Case] = [
    ("nothing that stands is replaced", {"min_replicas": 2}, [old(0), old(1)],
     ["delete-1 s", "delete-0 s"]),
    ("not even what is broken", {"min_replicas": 1}, [old(0, ready=False)],
     ["wait-0", "delete-0 s"]),
    ("an empty slot is still filled", {"min_replicas": 2}, [old(0)], ["create-1", "delete-0 s"]),
    ("scaling down goes on", {"min_replicas": 1}, [old(0), old(1)], ["delete-1", "delete-0 s"]),
]  # fmt: skip


def plan(scale: dict[str, Any], instances: list[dict[str, Any]], **more: Any) -> list[str]:
    deployment = a_deployment(scale=ScaleSettings(**scale), **more)
    found = [an_instance(**i) for i in instances]
    return said(plan_instances(CELL, deployment, found, MIN_READY).actions)


@pytest.mark.parametrize(("case", "scale", "instances", "expected"), ORDERED)
def test_plan_of_an_ordered_deployment(
    case: str, scale: dict[str, Any], instances: list[dict[str, Any]], expected: list[str]
) -> None:
    assert expected == plan(scale, instances), case


@pytest.mark.parametrize(("case", "scale", "instances", "expected"), PARALLEL)
def test_plan_of_a_parallel_deployment(
    case: str, scale: dict[str, Any], instances: list[dict[str, Any]], expected: list[str]
) -> None:
    parallel = {"instance_management_policy": "Parallel", **scale}
    assert expected == plan(parallel, instances), case


@pytest.mark.parametrize(("case", "scale", "instances", "expected"), PAUSED)
def test_plan_of_a_paused_deployment(
    case: str, scale: dict[str, Any], instances: list[dict[str, Any]], expected: list[str]
) -> None:
    assert expected == plan(scale, instances, paused=True), case


def test_a_terminating_deployment_wants_no_instances() -> None:
    assert plan({"min_replicas": 2}, [now(0), now(1)], terminating=True) == [
        "delete-1",
        "delete-0 s",
    ]


def test_an_instance_carries_what_every_plane_needs_to_know_it() -> None:
    (create,) = plan_instances(CELL, a_deployment(), []).actions
    assert isinstance(create, Create)
    metadata = create.object.metadata
    assert metadata.name == "web-dfw-0"
    assert metadata.owner_references[0].uid == "uid-of-web-dfw"
    assert metadata.labels == {
        "compute.datumapis.com/workload-name": "web",
        "compute.datumapis.com/workload-uid": "workload-uid",
        "compute.datumapis.com/workload-deployment-name": "web-dfw",
        "compute.datumapis.com/workload-deployment-uid": "uid-of-web-dfw",
        "compute.datumapis.com/placement-name": "default",
        "compute.datumapis.com/city-code": "DFW",
        "compute.datumapis.com/instance-index": "0",
    }
    assert metadata.finalizers == [labels.PROVISIONER_FINALIZER]


def test_every_action_of_a_plan_can_be_printed_and_compared() -> None:
    deployment = a_deployment(replicas=3)
    found = [an_instance(0, "web:0"), an_instance(1, ready=False)]
    first, second = (plan_instances(CELL, deployment, found) for _ in range(2))
    assert first == second
    assert describe_all(first.actions) == [
        "wait: web-dfw-1 is not ready",
        "deferred create Instance default/web-dfw-2: slot 2 is empty",
        "deferred delete Instance default/web-dfw-0: of an older template",
    ]


def edited(instance: Instance, **metadata: Any) -> Instance:
    changed = msgspec.structs.replace(instance.metadata, **metadata)
    return msgspec.structs.replace(instance, metadata=changed)


def test_labels_are_put_right_outside_the_rollout_order() -> None:
    """Want 2, 0 not Ready and unlabelled: the rollout waits, the labels do not."""
    bare = edited(an_instance(0, ready=False), labels={"team": "blue"})
    actions = plan_instances(CELL, a_deployment(replicas=2), [bare]).actions
    assert said(actions) == ["wait-0", "create-1 s", "label-0"]
    patch = actions[-1]
    assert isinstance(patch, Patch)
    metadata = patch.patch["metadata"]
    assert metadata["uid"] == bare.metadata.uid
    assert metadata["labels"][labels.INSTANCE_INDEX] == "0"
    assert "team" not in metadata["labels"]


def test_labels_that_are_right_are_left_alone_whatever_else_is_there() -> None:
    instance = an_instance(0)
    more = edited(instance, labels={**instance.metadata.labels, "team": "blue"})
    assert plan_instances(CELL, a_deployment(), [more]).is_settled


def test_what_stands_in_no_slot_is_removed_at_once() -> None:
    strays = [
        edited(an_instance(0), name="web-dfw-x", uid="1"),
        edited(an_instance(0), name="web-dfw-00", uid="2"),
        edited(an_instance(0), name="other-0", uid="3"),
        edited(an_instance(0), name="web-dfw-99999999999999999999", uid="4"),
    ]
    actions = plan_instances(CELL, a_deployment(), [an_instance(0), *strays]).actions
    deletes = [a for a in actions if isinstance(a, Delete)]
    assert sorted(a.uid for a in deletes) == ["1", "2", "3", "4"]
    assert not [a for a in actions if is_deferred(a)]


def test_what_belongs_to_nobody_and_stands_in_no_slot_is_not_ours_to_remove() -> None:
    foreign = edited(an_instance(0), name="web-dfw-x", owner_references=[])
    assert plan_instances(CELL, a_deployment(), [an_instance(0), foreign]).is_settled


def test_a_wrong_ordinal_label_moves_nobody() -> None:
    first = an_instance(0)
    wrong = edited(first, labels={**first.metadata.labels, labels.INSTANCE_INDEX: "1"})
    assert said(plan_instances(CELL, a_deployment(replicas=2), [wrong]).actions) == [
        "create-1",
        "label-0",
    ]


def test_an_instance_that_was_edited_by_hand_is_recreated() -> None:
    instance = an_instance(0)
    other = an_instance(0, "evil:1").spec.runtime
    changed = msgspec.structs.replace(
        instance, spec=msgspec.structs.replace(instance.spec, runtime=other)
    )
    assert said(plan_instances(CELL, a_deployment(), [changed]).actions) == ["delete-0"]


def test_an_instance_that_lost_its_owner_is_adopted_and_still_counts() -> None:
    lost = edited(an_instance(0), owner_references=[])
    (adopt,) = plan_instances(CELL, a_deployment(), [lost]).actions
    assert isinstance(adopt, Patch)
    (owner,) = adopt.patch["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-of-web-dfw"


# --- what was never observed


def gated(instance: Instance, *gates: str) -> Instance:
    control = msgspec.structs.replace(
        instance.spec.controller, scheduling_gates=[SchedulingGate(name=g) for g in gates]
    )
    spec = msgspec.structs.replace(instance.spec, controller=control)
    return msgspec.structs.replace(instance, spec=spec)


def undecided_instance(number: int, image: str = "web:0") -> Instance:
    """An instance as it is created: all conditions Unknown since the epoch."""
    made = an_instance(number, image)
    return Instance(metadata=made.metadata, spec=made.spec)


@pytest.mark.parametrize(
    "instance",
    [without_status(an_instance(0, "web:0")), undecided_instance(0)],
    ids=["none", "new"],
)
def test_an_outdated_instance_that_was_never_observed_is_neither_serving_nor_broken(
    instance: Instance,
) -> None:
    actions = plan_instances(CELL, a_deployment(), [instance]).actions
    assert describe_all(actions) == ["wait: web-dfw-0 has not been observed yet"]


@pytest.mark.parametrize(
    "instance",
    [
        gated(undecided_instance(1), "Network", "Quota"),
        gated(without_status(an_instance(1, "web:0")), "Quota"),
        gated(an_instance(1, "web:0", ready=None), "ReferencedData"),
    ],
    ids=["new", "no conditions", "gate undecided"],
)
def test_an_outdated_instance_behind_a_gate_has_no_machine_and_is_replaced(
    instance: Instance,
) -> None:
    found = [an_instance(0, "web:0"), instance]
    actions = plan_instances(CELL, a_deployment(replicas=2), found).actions
    assert said(actions) == ["delete-1", "delete-0 s"]


def test_an_instance_that_stops_is_named_with_its_grace_period() -> None:
    sandbox = an_instance(0).spec.runtime.sandbox
    assert sandbox.termination_grace_period_seconds == 30
    (wait,) = plan_instances(CELL, a_deployment(), [an_instance(0, terminating=True)]).actions
    assert describe_all([wait]) == ["wait: web-dfw-0 is stopping, which takes up to 30 s"]


def test_an_instance_is_replaced_as_not_ready_only_while_it_is_not_ready() -> None:
    """One that becomes ready at this moment counts against the budget; the version tells."""
    instance = an_instance(0, "web:0")
    verdict = ConditionValue("False", "Starting", "")
    status = msgspec.structs.replace(
        instance.status, conditions=[make_condition(READY, verdict, generation=1, now=NOW)]
    )
    unready = edited(msgspec.structs.replace(instance, status=status), resource_version="7")
    deployment = a_deployment("web:1", replicas=2)
    (delete,) = [
        action
        for action in plan_instances(CELL, deployment, [unready]).actions
        if isinstance(action, Delete)
    ]
    assert delete.version == "7"
    serving = edited(instance, resource_version="7")
    deletes = [
        action
        for action in plan_instances(CELL, a_deployment("web:1"), [serving]).actions
        if isinstance(action, Delete)
    ]
    assert [action.version for action in deletes] == [""]
