"""Edges of controllers: which changes they pass and to which keys they map; invalid delays."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from datum_compute.api.compute.instance import Instance
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.meta.objects import OwnerReference, Ref
from datum_compute.api.planes import cell_plane
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Debounce,
    Done,
    Edge,
    Key,
    Outcome,
    Requeue,
    for_,
    namespace_of,
    owns,
    plane_of,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import an_instance
from tests.runtime.planes_in_process import a_namespace

CELL = cell_plane("dfw")


async def send_nothing(request: Request) -> Response:
    raise AssertionError(f"unexpected request: {request.method} {request.path}")


_TRANSPORT = InProcessTransport(send_nothing)
CLIENT = CachedClient(CELL, Client(_TRANSPORT, prefix="", token="", agent="test"), Random(1))


async def reconcile(_context: None, _key: Key) -> Outcome:
    return Done()


def a_controller(*edges: Edge) -> Controller[None]:
    return Controller(name="test", role="cell", reconcile=reconcile, edges=edges)


def owner(
    name: str, *, kind: str = "WorkloadDeployment", controller: bool = True
) -> OwnerReference:
    return OwnerReference(
        api_version="compute.datumapis.com/v1alpha",
        kind=kind,
        name=name,
        uid=f"uid-of-{name}",
        controller=controller,
    )


def owned_by(*owners: OwnerReference) -> Instance:
    instance = an_instance(0)
    return replace(instance, metadata=replace(instance.metadata, owner_references=list(owners)))


# --- keys


def test_a_key_is_rendered_with_its_plane_and_the_kind_of_several() -> None:
    assert str(Key(CELL, Ref("default", "web"))) == "cell/dfw:default/web"
    assert str(Key(CELL, Ref("default", "web"), "workloads")) == "cell/dfw:workloads/default/web"


def test_lane_and_flow_of_a_key_are_its_plane_and_its_namespace() -> None:
    key = Key(CELL, Ref("default", "web"))
    assert (plane_of(key), namespace_of(key)) == ("cell/dfw", "default")


def test_the_primary_kind_maps_to_the_changed_object() -> None:
    edge = for_(INSTANCE)
    change = ObjectChange(None, an_instance(0))
    keys = a_controller(edge).keys(edge, CLIENT, change)
    assert list(keys) == [Key(CELL, Ref("default", "web-dfw-0"))]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, owned_by(owner("web-dfw")), ["web-dfw"], id="created"),
        pytest.param(owned_by(owner("web-dfw")), None, ["web-dfw"], id="deleted"),
        pytest.param(
            owned_by(owner("old")), owned_by(owner("new")), ["new", "old"], id="owner-changed"
        ),
        pytest.param(owned_by(owner("web-dfw")), owned_by(), ["web-dfw"], id="owner-removed"),
        pytest.param(
            owned_by(owner("web-dfw")), owned_by(owner("web-dfw")), ["web-dfw"], id="owner-same"
        ),
        pytest.param(None, owned_by(owner("a", controller=False)), [], id="not-controlled"),
        pytest.param(None, owned_by(owner("a", kind="Server")), [], id="of-another-kind"),
    ],
)
def test_an_owned_object_maps_to_its_controllers_before_and_after_the_change(
    old: Instance | None, new: Instance | None, expected: list[str]
) -> None:
    edge = owns(INSTANCE)
    controller = a_controller(for_(DEPLOYMENT), edge)
    keys = controller.keys(edge, CLIENT, ObjectChange(old, new))
    assert list(keys) == [Key(CELL, Ref("default", name)) for name in expected]


def test_the_key_of_an_owner_without_namespace_has_none() -> None:
    edge = owns(INSTANCE)
    controller = a_controller(for_(CLUSTER), edge)
    change = ObjectChange(None, owned_by(owner("dfw", kind="Cluster")))
    assert list(controller.keys(edge, CLIENT, change)) == [Key(CELL, Ref("", "dfw"))]


def test_a_kind_that_is_only_read_enqueues_no_key() -> None:
    edge = reads(NAMESPACE)
    change = ObjectChange(None, a_namespace("a"))
    assert list(a_controller(for_(INSTANCE), edge).keys(edge, CLIENT, change)) == []
    assert not edge.enqueues
    assert owns(NAMESPACE).enqueues


# --- filters


OLD, NEW = a_namespace("a"), a_namespace("a", changed="yes")


def reject_update(_old: Any, _new: Any) -> bool:
    return False


def reject_create(_new: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        pytest.param(ObjectChange(None, NEW), (False, True), id="create"),
        pytest.param(ObjectChange(OLD, NEW), (True, False), id="update"),
        pytest.param(ObjectChange(OLD, None), (True, True), id="delete"),
    ],
)
def test_each_filter_applies_to_its_events_and_deletions_always_pass(
    change: ObjectChange[Any], passes: tuple[bool, bool]
) -> None:
    edges = (
        for_(NAMESPACE, create_filter=reject_create),
        for_(NAMESPACE, update_filter=reject_update),
    )
    assert tuple(edge.matches(change) for edge in edges) == passes
    assert for_(NAMESPACE).matches(change), "an edge without filters passes everything"


# --- controllers


def no_keys(_client: CachedClient, _change: ObjectChange[Any]) -> list[Key]:
    return []


def test_the_primary_kind_is_that_of_its_edge_and_not_of_the_first() -> None:
    assert a_controller(owns(INSTANCE), for_(DEPLOYMENT)).kind is DEPLOYMENT
    assert a_controller(watches(INSTANCE, no_keys)).kind is None


def test_an_edge_without_a_role_is_on_the_role_of_its_controller() -> None:
    local, on_hub = for_(INSTANCE), watches(WORKLOAD, no_keys, on="hub")
    controller = a_controller(local, on_hub)
    assert controller.edges_on("cell") == [local]
    assert controller.edges_on("hub") == [on_hub]
    assert controller.edges_on("project") == []


# --- outcomes


@pytest.mark.parametrize("seconds", [math.inf, math.nan, -math.inf])
def test_a_delay_must_be_finite(seconds: float) -> None:
    with pytest.raises(ValueError, match="use Done"):
        Requeue(seconds)
    with pytest.raises(ValueError, match="use Done"):
        Debounce(seconds, 1.0)
    with pytest.raises(ValueError, match="use Done"):
        Debounce(1.0, seconds)
