"""Draining a plane: which kinds have finalizers, what is deleted, and the mark of revocation."""

from __future__ import annotations

from typing import Any

from datum_compute.api import labels
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    NETWORK,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import HUB
from datum_compute.planes.lifecycle import (
    FinalizedKinds,
    HeldObject,
    delete_held_objects,
    finalized_kinds_on,
    mark_revoked,
)
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, reads
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

FINALIZER = "example.com/cleanup"
CLUSTER_SCOPED = FinalizedKinds((NAMESPACE,), frozenset({FINALIZER}))


async def reconcile(_context: None, _key: Key) -> Outcome:
    return Done()


def a_controller(kind: KindInfo[Any], role: str, *finalizers: str) -> Controller[None]:
    edges = (reads(CONFIG_MAP), for_(kind))
    return Controller(f"{kind.plural}-{role}", role, reconcile, edges, finalizers=finalizers)


def test_only_controllers_of_the_role_with_finalizers_count() -> None:
    found = finalized_kinds_on(
        "project",
        [
            a_controller(WORKLOAD, "project", "a/workload"),
            a_controller(DEPLOYMENT, "project", "a/deployment", "a/network"),
            a_controller(NETWORK, "project"),
            a_controller(INSTANCE, "cell", "a/instance"),
        ],
    )
    assert found.kinds == (WORKLOAD, DEPLOYMENT)
    assert found.finalizers == {"a/workload", "a/deployment", "a/network"}


def test_a_kind_of_two_controllers_is_listed_once() -> None:
    controllers = [a_controller(WORKLOAD, "project", name) for name in ("a/one", "a/two")]
    assert finalized_kinds_on("project", controllers).kinds == (WORKLOAD,)


def test_an_object_with_a_foreign_finalizer_only_is_not_held() -> None:
    finalized = FinalizedKinds((DEPLOYMENT,), frozenset({FINALIZER}))
    assert finalized.has_finalizer(a_deployment(finalizers=("x/y", FINALIZER)))
    assert not finalized.has_finalizer(a_deployment(finalizers=("x/y",)))


def held_namespace(name: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, finalizers=[FINALIZER]))


def test_held_objects_are_deleted_and_returned_until_they_are_gone() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        client = await planes.create(HUB)
        await client.create(NAMESPACE, held_namespace("held"))
        await client.create(NAMESPACE, a_namespace("free"))
        expected = [HeldObject(NAMESPACE, Ref("", "held"))]
        assert await delete_held_objects(client, CLUSTER_SCOPED) == expected
        assert (await client.get(NAMESPACE, Ref("", "held"))).is_terminating
        assert not (await client.get(NAMESPACE, Ref("", "free"))).is_terminating
        before = planes.store.version(HUB)
        assert await delete_held_objects(client, CLUSTER_SCOPED) == expected
        assert planes.store.version(HUB) == before, "a terminating object is not deleted again"
        release: JsonObject = {"metadata": {"finalizers": []}}
        await client.patch(NAMESPACE, Ref("", "held"), release)
        assert await delete_held_objects(client, CLUSTER_SCOPED) == []
        assert str(expected[0]) == "Namespace held"

    with_planes(test)


def test_the_mark_of_revocation_is_set_and_removed() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[dict[str, str]]:
        client = await planes.create(HUB)
        await mark_revoked(client, revoked=True)  # no-op without the namespace
        await client.create(NAMESPACE, a_namespace("default"))
        found = []
        for revoked in (True, False):
            await mark_revoked(client, revoked=revoked)
            namespace = await client.get(NAMESPACE, Ref("", "default"))
            found.append(dict(namespace.metadata.annotations))
        return found

    assert with_planes(test) == [{labels.REVOKED: "true"}, {}]
