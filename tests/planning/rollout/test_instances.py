"""Plans of single cases: which instances are created, replaced and removed, and in which order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.instance import READY, Instance, SchedulingGate
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.conditions import ConditionValue, make_condition
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import cell_plane
from datum_compute.planning.explain.explain import describe_action
from datum_compute.planning.plan import Action, Create, Delete, Patch, Wait, is_deferred
from datum_compute.planning.rollout.instances import plan_instances
from datum_compute.planning.rollout.slots import MinReady
from testkit.builders import NOW, a_deployment, an_instance, without_status

CELL = cell_plane("dfw")
MIN_READY = MinReady(5, NOW)


def summarize(actions: tuple[Action, ...]) -> list[str]:
    """Render each action as verb and ordinal, with an s if it is deferred."""
    lines = []
    for action in actions:
        mark = " s" if is_deferred(action) else ""
        match action:
            case Create(object=obj):
                lines.append(f"create-{ref_of(obj).name.rpartition('-')[2]}{mark}")
            case Delete(ref=ref):
                lines.append(f"delete-{ref.name.rpartition('-')[2]}{mark}")
            case Patch(ref=ref, patch={"metadata": {"labels": _}}):
                lines.append(f"label-{ref.name.rpartition('-')[2]}")
            case Wait(reason=reason):
                lines.append(f"wait-{reason.split()[0].rpartition('-')[2]}{mark}")
    return lines


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
        "an empty slot delays the rollout",
        {"min_replicas": 3, "max_unavailable": 2},
        [old(0), now(1)],
        ["create-2", "delete-0 s"],
    ),
    (
        "an unready instance delays those above",
        {"min_replicas": 3},
        [now(0), now(1, ready=False)],
        ["wait-1", "create-2 s"],
    ),
    (
        "a terminating instance delays those above",
        {"min_replicas": 3},
        [now(0), now(1, terminating=True)],
        ["wait-1", "create-2 s"],
    ),
    ("scale down takes the highest", {"min_replicas": 1}, [now(0), now(1)], ["delete-1"]),
    (
        "surplus is removed one at a time, highest first",
        {"min_replicas": 1},
        [now(0), now(1), now(2)],
        ["delete-2", "delete-1 s"],
    ),
    (
        "surplus does not wait for an unready instance",
        {"min_replicas": 1},
        [now(0, ready=False), now(1)],
        ["delete-1", "wait-0"],
    ),
    (
        "surplus does not wait for terminating surplus",
        {"min_replicas": 1},
        [now(0), now(1), now(2, terminating=True)],
        ["delete-1", "wait-2"],
    ),
    (
        "an unready outdated instance is replaced first",
        {"min_replicas": 2},
        [old(0), old(1, ready=False)],
        ["delete-1", "delete-0 s"],
    ),
    (
        "unready outdated instances are replaced even if none is ready",
        {"min_replicas": 3},
        [old(0, ready=False), old(1, ready=False), old(2, ready=False)],
        ["delete-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "a rollout waits for the replacement",
        {"min_replicas": 2},
        [old(0), now(1, ready=False)],
        ["wait-1", "delete-0 s"],
    ),
    (
        "an unavailable replacement delays the rollout for any budget",
        {"min_replicas": 4, "max_unavailable": 2},
        [old(0), old(1), old(2), now(3, ready=False)],
        ["wait-3", "delete-2 s", "delete-1 s", "delete-0 s"],
    ),
    (
        "a rollout uses its whole budget again once all replacements are available",
        {"min_replicas": 4, "max_unavailable": 2},
        [old(0), old(1), now(2), now(3)],
        ["delete-1", "delete-0"],
    ),
    (
        "a percentage is rounded down",
        {"min_replicas": 5, "max_unavailable": "50%"},
        [old(0), old(1), old(2), old(3), old(4)],
        ["delete-4", "delete-3", "delete-2 s", "delete-1 s", "delete-0 s"],
    ),
    (
        "a percentage allows at least one",
        {"min_replicas": 2, "max_unavailable": "1%"},
        [old(0), old(1)],
        ["delete-1", "delete-0 s"],
    ),
    (
        "a rollout waits until the replacement is available",
        {"min_replicas": 2},
        [old(0), now(1, **FRESH)],
        ["wait-1", "delete-0 s"],
    ),
    (
        "a rollout continues when the replacement is available",
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
        "outdated instances of unknown readiness count against the budget",
        {"min_replicas": 3},
        [old(0, **UNKNOWN), old(1, **UNKNOWN), old(2, **UNKNOWN)],
        ["delete-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "an outdated instance of unknown readiness stays while a slot is empty",
        {"min_replicas": 2},
        [old(0, **UNKNOWN)],
        ["create-1", "delete-0 s"],
    ),
    (
        "a replacement of unknown readiness delays the rollout",
        {"min_replicas": 2},
        [old(0), now(1, **UNKNOWN)],
        ["wait-1", "delete-0 s"],
    ),
    (
        "a current instance of unknown readiness delays those above",
        {"min_replicas": 2},
        [now(0, **UNKNOWN)],
        ["wait-0", "create-1 s"],
    ),
    (
        "a bad release is undone although one of its instances is ready for a moment",
        {"min_replicas": 2},
        [now(0), old(1, **FRESH)],
        ["delete-1"],
    ),
]

PARALLEL: list[Case] = [
    ("fresh", {"min_replicas": 3}, [], ["create-0", "create-1", "create-2"]),
    (
        "an unready instance does not delay the others",
        {"min_replicas": 3},
        [now(0, ready=False)],
        ["wait-0", "create-1", "create-2"],
    ),
    (
        "surplus is removed together",
        {"min_replicas": 1},
        [now(0), now(1), now(2)],
        ["delete-2", "delete-1"],
    ),
    (
        "a rollout stays within its budget",
        {"min_replicas": 4, "max_unavailable": "50%"},
        [old(0), old(1), old(2), old(3)],
        ["delete-3", "delete-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "instances out of service count against the budget",
        {"min_replicas": 3},
        [old(0), old(1), now(2, terminating=True)],
        ["wait-2", "delete-1 s", "delete-0 s"],
    ),
    (
        "unready outdated instances are removed together outside the budget",
        {"min_replicas": 3},
        [old(0), old(1, ready=False), old(2, ready=False)],
        ["delete-2", "delete-1", "delete-0 s"],
    ),
]

PAUSED: list[Case] = [
    ("no instance is replaced", {"min_replicas": 2}, [old(0), old(1)],
     ["delete-1 s", "delete-0 s"]),
    ("unready instances are not replaced", {"min_replicas": 1}, [old(0, ready=False)],
     ["wait-0", "delete-0 s"]),
    ("an empty slot is still filled", {"min_replicas": 2}, [old(0)], ["create-1", "delete-0 s"]),
    ("scaling down continues", {"min_replicas": 1}, [old(0), old(1)], ["delete-1", "delete-0 s"]),
]  # fmt: skip


def plan(scale: dict[str, Any], instances: list[dict[str, Any]], **more: Any) -> list[str]:
    deployment = a_deployment(scale=ScaleSettings(**scale), **more)
    found = [an_instance(**i) for i in instances]
    return summarize(plan_instances(CELL, deployment, found, MIN_READY).actions)


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


def test_a_terminating_deployment_desires_no_instances() -> None:
    assert plan({"min_replicas": 2}, [now(0), now(1)], terminating=True) == [
        "delete-1",
        "delete-0 s",
    ]


def test_a_new_instance_has_the_labels_and_owner_that_identify_it() -> None:
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


def test_labels_are_repaired_independently_of_the_rollout() -> None:
    """The unready instance without labels delays the rollout, but not the repair of its labels."""
    bare = edited(an_instance(0, ready=False), labels={"team": "blue"})
    actions = plan_instances(CELL, a_deployment(replicas=2), [bare]).actions
    assert summarize(actions) == ["wait-0", "create-1 s", "label-0"]
    patch = actions[-1]
    assert isinstance(patch, Patch)
    metadata = patch.patch["metadata"]
    assert metadata["uid"] == bare.metadata.uid
    assert metadata["labels"][labels.INSTANCE_INDEX] == "0"
    assert "team" not in metadata["labels"]


def test_correct_labels_are_not_patched_beside_labels_of_users() -> None:
    instance = an_instance(0)
    more = edited(instance, labels={**instance.metadata.labels, "team": "blue"})
    assert plan_instances(CELL, a_deployment(), [more]).is_settled


def test_unslotted_instances_are_removed_at_once() -> None:
    unslotted = [
        edited(an_instance(0), name="web-dfw-x", uid="1"),
        edited(an_instance(0), name="web-dfw-00", uid="2"),
        edited(an_instance(0), name="other-0", uid="3"),
        edited(an_instance(0), name="web-dfw-99999999999999999999", uid="4"),
    ]
    actions = plan_instances(CELL, a_deployment(), [an_instance(0), *unslotted]).actions
    deletes = [a for a in actions if isinstance(a, Delete)]
    assert sorted(a.uid for a in deletes) == ["1", "2", "3", "4"]
    assert not [a for a in actions if is_deferred(a)]


def test_an_unslotted_instance_without_an_owner_is_not_removed() -> None:
    foreign = edited(an_instance(0), name="web-dfw-x", owner_references=[])
    assert plan_instances(CELL, a_deployment(), [an_instance(0), foreign]).is_settled


def test_a_wrong_ordinal_label_does_not_change_the_slot() -> None:
    first = an_instance(0)
    wrong = edited(first, labels={**first.metadata.labels, labels.INSTANCE_INDEX: "1"})
    assert summarize(plan_instances(CELL, a_deployment(replicas=2), [wrong]).actions) == [
        "create-1",
        "label-0",
    ]


def test_an_instance_that_was_edited_by_hand_is_recreated() -> None:
    instance = an_instance(0)
    other = an_instance(0, "evil:1").spec.runtime
    changed = msgspec.structs.replace(
        instance, spec=msgspec.structs.replace(instance.spec, runtime=other)
    )
    scale = ScaleSettings(min_replicas=1, max_surge=0)
    actions = plan_instances(CELL, a_deployment(scale=scale), [changed]).actions
    assert summarize(actions) == ["delete-0"]


def test_an_ownerless_instance_is_adopted_and_counts() -> None:
    lost = edited(an_instance(0), owner_references=[])
    (adopt,) = plan_instances(CELL, a_deployment(), [lost]).actions
    assert isinstance(adopt, Patch)
    (owner,) = adopt.patch["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-of-web-dfw"


# --- instances that were never observed


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
def test_an_outdated_instance_with_a_gate_is_replaced(
    instance: Instance,
) -> None:
    found = [an_instance(0, "web:0"), instance]
    actions = plan_instances(CELL, a_deployment(replicas=2), found).actions
    assert summarize(actions) == ["delete-1", "delete-0 s"]


def test_a_wait_for_a_stopping_instance_names_its_grace_period() -> None:
    sandbox = an_instance(0).spec.runtime.sandbox
    assert sandbox.termination_grace_period_seconds == 30
    (wait,) = plan_instances(CELL, a_deployment(), [an_instance(0, terminating=True)]).actions
    assert describe_all([wait]) == ["wait: web-dfw-0 is stopping, which takes up to 30 s"]


def test_an_instance_is_replaced_as_not_ready_only_while_it_is_not_ready() -> None:
    """The version makes the deletion fail if the instance has become ready."""
    instance = an_instance(0, "web:0")
    value = ConditionValue("False", "Starting", "")
    status = msgspec.structs.replace(
        instance.status, conditions=[make_condition(READY, value, generation=1, now=NOW)]
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
