"""Order and safety of instance control: the golden cases, then properties over many worlds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.instance import Instance
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import cell_plane
from datum_compute.planning.actions import Action, Create, Delete, Patch, Wait
from datum_compute.planning.instances import ordinal, plan_instances
from datum_compute.testing.builders import a_deployment, an_instance

CELL = cell_plane("dfw")


def said(actions: tuple[Action, ...]) -> list[str]:
    """Each action as one word: what, which ordinal, and s if it is skipped."""
    words = []
    for action in actions:
        mark = " s" if getattr(action, "skipped", False) else ""
        match action:
            case Create(object=obj):
                words.append(f"create-{ref_of(obj).name.rpartition('-')[2]}{mark}")
            case Delete(ref=ref):
                words.append(f"delete-{ref.name.rpartition('-')[2]}{mark}")
            case Wait(reason=reason):
                words.append(f"wait-{reason.split()[0].rpartition('-')[2]}{mark}")
    return words


CASES: list[tuple[str, int, list[dict[str, Any]], list[str]]] = [
    ("fresh", 2, [], ["create-0", "create-1 s"]),
    ("settled", 2, [{"number": 0}, {"number": 1}], []),
    ("next is created when the one below is ready", 2, [{"number": 0}], ["create-1"]),
    (
        "a new template rolls from the highest ordinal",
        2,
        [{"number": 0, "image": "web:0"}, {"number": 1, "image": "web:0"}],
        ["delete-1", "delete-0 s"],
    ),
    (
        "one that is not ready holds back those above",
        3,
        [{"number": 0}, {"number": 1, "ready": False}],
        ["wait-1", "create-2 s"],
    ),
    (
        "a terminating one holds back those above",
        3,
        [{"number": 0}, {"number": 1, "terminating": True}],
        ["wait-1", "create-2 s"],
    ),
    ("scale down takes the highest", 1, [{"number": 0}, {"number": 1}], ["delete-1"]),
    (
        "surplus goes one at a time, highest first",
        1,
        [{"number": 0}, {"number": 1}, {"number": 2}],
        ["delete-2", "delete-1 s"],
    ),
    (
        "surplus never waits for what is not ready",
        1,
        [{"number": 0, "ready": False}, {"number": 1}],
        ["delete-1", "wait-0"],
    ),
    (
        "a broken old template is replaced before anything that works",
        2,
        [{"number": 0, "image": "web:0"}, {"number": 1, "image": "web:0", "ready": False}],
        ["delete-1", "delete-0 s"],
    ),
    (
        "a roll waits for the replacement before it goes on",
        2,
        [{"number": 0, "image": "web:0"}, {"number": 1, "ready": False}],
        ["wait-1", "delete-0 s"],
    ),
]


@pytest.mark.parametrize(("case", "replicas", "instances", "expected"), CASES)
def test_plan_of_a_known_situation(
    case: str, replicas: int, instances: list[dict[str, Any]], expected: list[str]
) -> None:
    plan = plan_instances(
        CELL, a_deployment(replicas=replicas), [an_instance(**i) for i in instances]
    )
    assert expected == said(plan.actions), case


def test_a_terminating_deployment_wants_no_instances() -> None:
    deployment = a_deployment(replicas=2, terminating=True)
    plan = plan_instances(CELL, deployment, [an_instance(0), an_instance(1)])
    assert said(plan.actions) == ["delete-1", "delete-0 s"]


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
        "compute.datumapis.com/placement-name": "default",
        "compute.datumapis.com/city-code": "DFW",
        "compute.datumapis.com/instance-index": "0",
    }
    assert len(metadata.finalizers) == 2


slots = st.dictionaries(
    st.integers(0, 5),
    st.tuples(st.sampled_from(["web:1", "web:0"]), st.booleans(), st.booleans()),
)


def _world(found: dict[int, tuple[str, bool, bool]]) -> list[Instance]:
    return [
        an_instance(n, image, ready=ready, terminating=going)
        for n, (image, ready, going) in found.items()
    ]


@given(replicas=st.integers(1, 6), found=slots)
def test_carried_out_steps_are_safe(
    replicas: int, found: dict[int, tuple[str, bool, bool]]
) -> None:
    plan = plan_instances(CELL, a_deployment(replicas=replicas), _world(found))
    done = [a for a in plan.actions if not isinstance(a, Wait) and not a.skipped]  # type: ignore[union-attr]
    creates = [a for a in done if isinstance(a, Create)]
    deletes = [a for a in done if isinstance(a, Delete)]
    assert len(creates) <= 1
    for create in creates:
        number = int(create.object.metadata.name.rpartition("-")[2])
        assert number < replicas
        assert number not in found
        assert all(found[n][1] and not found[n][2] for n in range(number)), "all below are ready"
    wanted_and_ready = [
        d for d in deletes if found[(n := int(d.ref.name.rpartition("-")[2]))][1] and n < replicas
    ]
    assert len(wanted_and_ready) <= 1
    if wanted_and_ready:
        assert all(found[n][1] and not found[n][2] for n in range(replicas)), "one at a time"


@given(replicas=st.integers(1, 4), found=slots)
def test_following_the_plan_converges_and_then_rests(
    replicas: int, found: dict[int, tuple[str, bool, bool]]
) -> None:
    deployment = a_deployment(replicas=replicas)
    world = {i.metadata.name: i for i in _world(found)}
    for _ in range(40):
        # What terminates goes, what is not ready gets ready, unless its template is broken.
        world = {n: i for n, i in world.items() if not i.is_terminating}
        world = {
            n: an_instance(ordinal(i), deployment=deployment)
            if i.spec.controller.template_hash == an_instance(0).spec.controller.template_hash
            else i
            for n, i in world.items()
        }
        plan = plan_instances(CELL, deployment, list(world.values()))
        if not plan.actions:
            break
        for action in plan.actions:
            if isinstance(action, Delete) and not action.skipped:
                world.pop(action.ref.name)
            if isinstance(action, Create) and not action.skipped:
                number = int(action.object.metadata.name.rpartition("-")[2])
                world[action.object.metadata.name] = an_instance(number, ready=False)
    assert [f"web-dfw-{n}" for n in range(replicas)] == sorted(world)
    assert not plan_instances(CELL, deployment, list(world.values())).actions


def test_an_instance_that_was_edited_by_hand_is_recreated() -> None:
    instance = an_instance(0)
    other = an_instance(0, "evil:1").spec.runtime
    edited = msgspec.structs.replace(
        instance, spec=msgspec.structs.replace(instance.spec, runtime=other)
    )
    assert said(plan_instances(CELL, a_deployment(), [edited]).actions) == ["delete-0"]


def test_an_instance_that_lost_its_owner_is_adopted_and_still_counts() -> None:
    instance = an_instance(0)
    metadata = msgspec.structs.replace(instance.metadata, owner_references=[])
    lost = msgspec.structs.replace(instance, metadata=metadata)
    (adopt,) = plan_instances(CELL, a_deployment(), [lost]).actions
    assert isinstance(adopt, Patch)
    (owner,) = adopt.patch["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-of-web-dfw"
