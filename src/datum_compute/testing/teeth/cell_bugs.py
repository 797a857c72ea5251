"""Bugs on the cell: rollout, provisioning, machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, find_condition
from datum_compute.api.instance import AVAILABLE
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta import ref_of
from datum_compute.controllers.cell import machine
from datum_compute.controllers.effects import carry_out
from datum_compute.planning import instances, provisioning, readiness
from datum_compute.planning.actions import Create, Delete, Patch, Plan, Wait, drop_finalizer
from datum_compute.planning.instances import plan_instances
from datum_compute.planning.projection import plan_writeback
from datum_compute.runtime.view import View
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced
from datum_compute.testing.teeth.runtime_bugs import reading_anything


@contextmanager
def _stale_cache_double_create() -> Iterator[None]:
    """Instances under names that nobody chose, created from a cache that has not seen the last
    create. Names by ordinal are what makes the stale cache harmless in the product."""
    drawn = iter(range(1_000_000))

    with (
        function_replaced(instances._create, _drawing_names(drawn)),
        attribute_replaced(View, "read", reading_anything),
    ):
        yield


@contextmanager
def _lost_answer_creates_twice() -> Iterator[None]:
    """Instances under names that the planner draws anew each time, and a create without an answer
    that counts as not done."""
    drawn = iter(range(1_000_000))

    with (
        function_replaced(instances._create, _drawing_names(drawn)),
        attribute_replaced(View, "_doubt", lambda _: lambda _self, _kind: None),
    ):
        yield


def _drawing_names(drawn: Iterator[int]) -> Any:
    def make(original: Any) -> Any:
        def create(*arguments: Any) -> Any:
            action = original(*arguments)
            metadata = action.object.metadata
            renamed = msgspec.structs.replace(metadata, name=f"{metadata.name}-{next(drawn)}")
            return replace(action, object=msgspec.structs.replace(action.object, metadata=renamed))

        return create

    return make


@contextmanager
def _ordinal_reused_while_terminating() -> Iterator[None]:
    """What is on its way out no longer counts, and its name is cleared by force."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, found: Any) -> Any:
            leaving = [i for i in found if i.is_terminating and not deployment.is_terminating]
            forced = [
                Patch(plane, INSTANCE, ref_of(i), {"metadata": {"finalizers": []}}, "forced")
                for i in leaving
            ]
            rest = original(plane, deployment, [i for i in found if i not in leaving])
            return Plan((*forced, *rest.actions), rest.requeue_after_s)

        return plan

    def belongs_by_name(_original: Any) -> Any:
        return lambda _server, _instance: True

    with (
        function_replaced(plan_instances, make),
        function_replaced(provisioning._belongs, belongs_by_name),
        function_replaced(machine._remove_strangers, _without_strangers),
    ):
        yield


def _without_strangers(_original: Any) -> Any:
    async def nobody(_driver: Any, _ref: Any, _own_id: str) -> bool:
        return False

    return nobody


@contextmanager
def _lowest_ordinal_first() -> Iterator[None]:
    """Scale-down takes from the bottom and leaves the youngest."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, found: Any) -> Any:
            wanted = deployment.spec.scale_settings.min_replicas
            live = sorted((i for i in found if not i.is_terminating), key=instances.ordinal)
            if deployment.is_terminating or len(live) <= wanted:
                return original(plane, deployment, found)
            lowest = live[0]
            uid = lowest.metadata.uid
            return Plan((Delete(plane, INSTANCE, ref_of(lowest), uid, "no longer wanted"),))

        return plan

    with function_replaced(plan_instances, make):
        yield


@contextmanager
def _rolled_all_at_once() -> Iterator[None]:
    with function_replaced(instances._first_only, lambda _: list):
        yield


@contextmanager
def _rolled_without_waiting() -> Iterator[None]:
    """The next instance is recreated although the one before it is not ready yet."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, found: Any) -> Any:
            planned = original(plane, deployment, found)
            actions = [a for a in planned.actions if not isinstance(a, Wait)]
            deletes = [a for a in actions if isinstance(a, Delete) and a.skipped]
            if deletes and not any(isinstance(a, Create) for a in actions):
                actions.append(replace(deletes[0], skipped=False))
            return Plan(tuple(actions), planned.requeue_after_s)

        return plan

    with function_replaced(plan_instances, make):
        yield


@contextmanager
def _finalizers_come_later() -> Iterator[None]:
    """Instances are created bare: nothing holds them until somebody gets round to it."""

    def make(original: Any) -> Any:
        def create(*arguments: Any) -> Any:
            action = original(*arguments)
            bare = msgspec.structs.replace(
                action.object.metadata, finalizers=[labels.INSTANCE_FINALIZER]
            )
            return replace(action, object=msgspec.structs.replace(action.object, metadata=bare))

        return create

    with function_replaced(instances._create, make):
        yield


@contextmanager
def _machine_not_confirmed_gone() -> Iterator[None]:
    """The Server is released when the driver has been asked, not when the machine is gone."""

    def make(original: Any) -> Any:
        async def reconcile(context: Any, key: Any) -> Any:
            server = context.planes.need(key.plane).read(SERVER).get(key.ref)
            if server is None or not server.is_terminating:
                return await original(context, key)
            await context.drivers[key.plane].remove(machine.machine_id_of(server))
            release = drop_finalizer(key.plane, SERVER, server, labels.DRIVER_FINALIZER)
            return await carry_out(context.planes, Plan(tuple(release)))

        return reconcile

    with attribute_replaced(machine.CONTROLLER, "reconcile", make):
        yield


@contextmanager
def _machine_adopted_by_name() -> Iterator[None]:
    """A machine belongs to whoever has its name now."""

    def make_id(_original: Any) -> Any:
        def machine_id_of(server: Any) -> str:
            return f"{server.metadata.namespace}/{server.metadata.name}/machine"

        return machine_id_of

    with (
        function_replaced(machine.machine_id_of, make_id),
        function_replaced(provisioning._belongs, lambda _: lambda _server, _instance: True),
    ):
        yield


@contextmanager
def _available_outlives_its_machine() -> Iterator[None]:
    """Once available, always available."""

    def make(original: Any) -> Any:
        def status(instance: Any, server: Any, now: str) -> Any:
            new = original(instance, server, now)
            old = find_condition(instance.status.conditions, AVAILABLE)
            if old is None or old.status != TRUE:
                return new
            return instance.status

        return status

    with function_replaced(provisioning.provisioned_status, make):
        yield


@contextmanager
def _ready_while_terminating() -> Iterator[None]:
    """Ready looks at the machine only; that the instance is leaving is nobody's business."""

    def make(original: Any) -> Any:
        def verdict(instance: Any) -> Any:
            metadata = msgspec.structs.replace(instance.metadata, deletion_timestamp=None)
            return original(msgspec.structs.replace(instance, metadata=metadata))

        return verdict

    with function_replaced(readiness._verdict, make):
        yield


@contextmanager
def _orphaned_hub_copy() -> Iterator[None]:
    """An instance that goes is released by its write-back before the hub's copy is gone."""

    def make(original: Any) -> Any:
        def plan(cell: Any, instance: Any, hub_deployment: Any, copy: Any) -> Any:
            seen = None if instance.is_terminating else copy
            return original(cell, instance, hub_deployment, seen)

        return plan

    with function_replaced(plan_writeback, make):
        yield


@contextmanager
def _drift_not_seen() -> Iterator[None]:
    """Whatever runs is taken for the current template."""

    def make(_original: Any) -> Any:
        return lambda _instance, _current, _runtime: True

    with function_replaced(instances._is_current, make):
        yield


BUGS = (
    PlantedBug(
        "stale-cache-double-create",
        "a second create from a cache that has not seen the first: Sieve, Fly April 2026",
        _stale_cache_double_create,
        meets=("LagWatches", "CreateWorkload"),
    ),
    PlantedBug(
        "lost-answer-creates-twice",
        "a create that was done and not answered is done again under another name (F13)",
        _lost_answer_creates_twice,
        meets=("LoseRequests", "CutLink", "DelayWrites"),
    ),
    PlantedBug(
        "ordinal-reused-while-terminating",
        "a slot is given out again while its machine still runs: StatefulSet force delete",
        _ordinal_reused_while_terminating,
        meets=("ChangeImage",),
    ),
    PlantedBug(
        "lowest-ordinal-first",
        "scale-down takes the oldest instances (I14)",
        _lowest_ordinal_first,
        meets=("Scale",),
    ),
    PlantedBug(
        "rolled-all-at-once",
        "a new template takes everything down (I12)",
        _rolled_all_at_once,
        meets=("ChangeImage",),
    ),
    PlantedBug(
        "rolled-without-waiting",
        "the roll goes on while its last step is not ready (I12)",
        _rolled_without_waiting,
        meets=("ChangeImage",),
    ),
    PlantedBug(
        "finalizers-come-later",
        "an instance is released without its machine: Sieve, intermediate states",
        _finalizers_come_later,
    ),
    PlantedBug(
        "machine-not-confirmed-gone",
        "a request to the driver is taken for its effect: Fly, deleted yet alive (F33)",
        _machine_not_confirmed_gone,
        meets=("LyingProvider", "ChangeImage"),
    ),
    PlantedBug(
        "machine-adopted-by-name",
        "an old machine serves a new instance of its name: Fly, address reuse",
        _machine_adopted_by_name,
        meets=("ChangeImage",),
    ),
    PlantedBug(
        "available-outlives-its-machine",
        "a True that nobody takes back: Karmada #7455 (I7)",
        _available_outlives_its_machine,
        meets=("LoseMachine", "LyingProvider"),
    ),
    PlantedBug(
        "ready-while-terminating",
        "traffic is sent to what is leaving (I7)",
        _ready_while_terminating,
        meets=("ChangeImage", "Scale"),
    ),
    PlantedBug(
        "orphaned-hub-copy",
        "the hub keeps a copy that no cell has any more: control-plane.md i.37",
        _orphaned_hub_copy,
        meets=("Scale",),
    ),
    PlantedBug(
        "new-template-ignored",
        "drift is not seen: what runs is called current",
        _drift_not_seen,
        meets=("ChangeImage",),
    ),
)
