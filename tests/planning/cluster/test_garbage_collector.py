"""Which objects are deleted because of their owners."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.inventory import StoredObject
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta.objects import KindInfo, OwnerReference, Ref
from datum_compute.planning.cluster.garbage_collector import (
    DeleteDependent,
    GarbageAction,
    ObservedOwner,
    OwnerState,
    ReleaseOwner,
    RemoveOwners,
    is_dependent,
    is_unreachable,
    owner_state,
    plan_collection,
    plan_foreground_release,
    plan_orphaning,
)


def stored(
    name: str,
    *owners: OwnerReference,
    terminating: bool = False,
    finalizers: tuple[str, ...] = (),
    namespace: str = "default",
) -> StoredObject:
    return StoredObject(
        kind=CONFIG_MAP,
        ref=Ref(namespace, name),
        uid=f"uid-{name}",
        version="1",
        terminating=terminating,
        finalizers=finalizers,
        owners=owners,
    )


def reference(name: str, *, blocks: bool = False) -> OwnerReference:
    return OwnerReference(
        api_version="v1",
        kind="ConfigMap",
        name=name,
        uid=f"uid-{name}",
        block_owner_deletion=blocks,
    )


def observed(
    name: str, found: StoredObject | None, kind: KindInfo[Any] | None = CONFIG_MAP
) -> ObservedOwner:
    return ObservedOwner(reference(name), kind, found)


CHILD = stored("child")
PRESENT = observed("present", stored("present"))
GONE = observed("gone", None)
WAITING = observed(
    "waiting", stored("waiting", terminating=True, finalizers=(FOREGROUND_FINALIZER,))
)


@pytest.mark.parametrize(
    ("namespace", "owner", "expected"),
    [
        pytest.param("default", PRESENT, OwnerState.PRESENT, id="present"),
        pytest.param("default", GONE, OwnerState.GONE, id="gone"),
        pytest.param("default", WAITING, OwnerState.WAITING, id="foreground"),
        pytest.param(
            "default",
            observed("old", stored("old", terminating=True)),
            OwnerState.PRESENT,
            id="terminating-in-background",
        ),
        pytest.param(
            "default", observed("old", stored("new")), OwnerState.GONE, id="created-again"
        ),
        pytest.param(
            "default", observed("x", None, kind=None), OwnerState.PRESENT, id="kind-not-served"
        ),
        pytest.param("", GONE, OwnerState.PRESENT, id="unreachable-namespaced-owner"),
        pytest.param(
            "", observed("gone", None, kind=NAMESPACE), OwnerState.GONE, id="cluster-scoped-owner"
        ),
    ],
)
def test_the_state_of_an_owner(namespace: str, owner: ObservedOwner, expected: OwnerState) -> None:
    assert owner_state(namespace, owner) is expected


def test_only_an_object_without_a_namespace_can_have_an_unreachable_owner() -> None:
    assert is_unreachable("", GONE)
    assert not is_unreachable("default", GONE)
    assert not is_unreachable("", observed("gone", None, kind=NAMESPACE))
    assert not is_unreachable("", observed("gone", None, kind=None))


@pytest.mark.parametrize(
    ("owners", "has_dependents", "expected"),
    [
        pytest.param([], True, [], id="no-owners"),
        pytest.param([PRESENT], True, [], id="present"),
        pytest.param(
            [PRESENT, GONE], True, [RemoveOwners(CHILD, frozenset({"uid-gone"}))], id="one-gone"
        ),
        pytest.param([PRESENT, WAITING], True, [], id="one-waiting"),
        pytest.param([GONE], True, [DeleteDependent(CHILD, "Background")], id="all-gone"),
        pytest.param([WAITING], True, [DeleteDependent(CHILD, "Foreground")], id="waiting"),
        pytest.param(
            [WAITING, GONE], False, [DeleteDependent(CHILD, "Background")], id="waiting-for-a-leaf"
        ),
    ],
)
def test_an_object_is_deleted_when_no_owner_is_present(
    owners: list[ObservedOwner], has_dependents: bool, expected: list[GarbageAction]
) -> None:
    assert plan_collection(CHILD, owners, has_dependents=has_dependents) == expected


@pytest.mark.parametrize(
    ("finalizer", "policy"), [(ORPHAN_FINALIZER, "Orphan"), (FOREGROUND_FINALIZER, "Foreground")]
)
def test_the_policy_of_an_earlier_request_is_kept(finalizer: str, policy: str) -> None:
    child = stored("child", finalizers=(finalizer,))
    assert plan_collection(child, [GONE], has_dependents=False) == [DeleteDependent(child, policy)]


def test_orphans_lose_the_owner_before_it_is_released() -> None:
    owner = stored("owner", terminating=True, finalizers=(ORPHAN_FINALIZER,))
    child = stored("child", reference("owner"))
    assert plan_orphaning(owner, [child]) == [
        RemoveOwners(child, frozenset({"uid-owner"})),
        ReleaseOwner(owner, ORPHAN_FINALIZER),
    ]


def test_a_foreground_owner_is_released_when_no_dependent_blocks_it() -> None:
    owner = stored("owner", terminating=True, finalizers=(FOREGROUND_FINALIZER,))
    released = [ReleaseOwner(owner, FOREGROUND_FINALIZER)]
    blocking = stored("child", reference("owner", blocks=True))
    of_another = stored("child", reference("owner"), reference("other", blocks=True))
    assert plan_foreground_release(owner, [blocking]) == []
    assert plan_foreground_release(owner, [of_another]) == released
    assert plan_foreground_release(owner, []) == released


def test_a_reference_from_another_namespace_does_not_make_a_dependent() -> None:
    owner = stored("owner")
    assert is_dependent(owner, [observed("owner", owner)])
    assert not is_dependent(owner, [observed("owner", None)])
    assert not is_dependent(owner, [PRESENT])
