"""Bugs on the cell: rollout, provisioning, machines.

Most of them change what the public planners answer, so that they outlive a rewrite of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, find_condition
from datum_compute.api.instance import AVAILABLE, Instance
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta import ref_of
from datum_compute.api.server import Server
from datum_compute.controllers.cell import machine
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Create, Delete, Patch, Plan, Wait, drop_finalizer
from datum_compute.planning.instances import plan_slots, wanted_replicas
from datum_compute.planning.ordinals import Slots, build_slots, slots_of
from datum_compute.planning.projection import plan_withdrawal
from datum_compute.planning.provisioning import plan_provisioning, provisioned_status
from datum_compute.planning.readiness import plan_readiness
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import Make, attribute_replaced, function_replaced
from datum_compute.testing.teeth.runtime_bugs import reading_anything


@contextmanager
def _stale_cache_double_create() -> Iterator[None]:
    """Instances under names that nobody chose, created from a cache that has not seen the last
    create. Names by ordinal are what makes the stale cache harmless in the product."""
    with (
        function_replaced(plan_slots, _drawing_names()),
        function_replaced(slots_of, _slots_by_label),
        attribute_replaced(CachedClient, "read", reading_anything),
    ):
        yield


@contextmanager
def _lost_answer_creates_twice() -> Iterator[None]:
    """Instances under names that the planner draws anew each time, and a create without an answer
    that counts as not done."""
    with (
        function_replaced(plan_slots, _drawing_names()),
        function_replaced(slots_of, _slots_by_label),
        attribute_replaced(
            CachedClient, "_mark_write_unknown", lambda _: lambda _self, _kind: None
        ),
    ):
        yield


def _drawing_names() -> Make:
    drawn = iter(range(1_000_000))

    def renamed(action: Any) -> Any:
        metadata = action.object.metadata
        metadata = msgspec.structs.replace(metadata, name=f"{metadata.name}-{next(drawn)}")
        return replace(action, object=msgspec.structs.replace(action.object, metadata=metadata))

    return _with_creates(renamed)


def _slots_by_label(_original: Any) -> Any:
    """A name says nothing about the slot; of two that claim one the first is taken."""

    def found_slots(_deployment_name: str, instances: Any, *min_ready: Any) -> Slots:
        held: dict[int, Instance] = {}
        strays = []
        for instance in sorted(instances, key=lambda i: (i.is_terminating, i.metadata.name)):
            number = _ordinal(instance)
            if number in held:
                strays.append(instance)
            held.setdefault(number, instance)
        return build_slots(held, strays, *min_ready)

    return found_slots


def _with_creates(change: Callable[[Any], Any]) -> Make:
    """What the planner wants to create, changed."""

    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            actions = (change(a) if isinstance(a, Create) else a for a in planned.actions)
            return replace(planned, actions=tuple(actions))

        return plan

    return make


@contextmanager
def _ordinal_reused_while_terminating() -> Iterator[None]:
    """What is on its way out no longer counts, and its name is cleared by force."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, slots: Slots) -> Any:
            if deployment.is_terminating:
                return original(plane, deployment, slots)
            leaving = [i for i in slots.held.values() if i.is_terminating]
            forced = [
                Patch(plane, INSTANCE, ref_of(i), {"metadata": {"finalizers": []}}, "forced")
                for i in leaving
            ]
            held = {n: i for n, i in slots.held.items() if not i.is_terminating}
            rest = original(plane, deployment, replace(slots, held=held))
            return Plan((*forced, *rest.actions), rest.requeue_after_s)

        return plan

    with (
        function_replaced(plan_slots, make),
        function_replaced(plan_provisioning, _taking_any_server),
        function_replaced(machine._remove_strangers, _without_strangers),
    ):
        yield


def _without_strangers(_original: Any) -> Any:
    async def nobody(_view: Any, _driver: Any, _ref: Any, _own_id: str) -> bool:
        return False

    return nobody


def _taking_any_server(original: Any) -> Any:
    """A Server belongs to whoever has its name."""

    def plan(plane: Any, instance: Any, server: Server | None, *rest: Any) -> Any:
        if server is not None:
            metadata = instance.metadata
            tag = f"{metadata.namespace}/{metadata.name}/{metadata.uid}"
            tags = {**server.spec.tags, labels.INSTANCE_TAG: tag}
            spec = msgspec.structs.replace(server.spec, tags=tags)
            server = msgspec.structs.replace(server, spec=spec)
        return original(plane, instance, server, *rest)

    return plan


@contextmanager
def _lowest_ordinal_first() -> Iterator[None]:
    """Scale-down takes from the bottom and leaves the youngest."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, slots: Slots) -> Any:
            live = [i for i in slots.held.values() if not i.is_terminating]
            if deployment.is_terminating or len(live) <= wanted_replicas(deployment):
                return original(plane, deployment, slots)
            lowest = live[0]
            uid = lowest.metadata.uid
            return Plan((Delete(plane, INSTANCE, ref_of(lowest), uid, "no longer wanted"),))

        return plan

    with function_replaced(plan_slots, make):
        yield


def _ordinal(instance: Instance) -> int:
    return int(instance.metadata.labels.get(labels.INSTANCE_INDEX, "0"))


@contextmanager
def _rolled_all_at_once() -> Iterator[None]:
    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            actions = (
                replace(a, skipped=False) if isinstance(a, Create | Delete) else a
                for a in planned.actions
            )
            return replace(planned, actions=tuple(actions))

        return plan

    with function_replaced(plan_slots, make):
        yield


@contextmanager
def _rolled_without_waiting() -> Iterator[None]:
    """The next instance is recreated although the one before it is still leaving."""

    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            waits = any(isinstance(a, Wait) for a in planned.actions)
            actions = list(planned.actions)
            for index, action in enumerate(actions if waits else ()):
                if isinstance(action, Delete) and action.skipped:
                    actions[index] = replace(action, skipped=False)
                    break
            return replace(planned, actions=tuple(actions))

        return plan

    with function_replaced(plan_slots, make):
        yield


@contextmanager
def _finalizers_come_later() -> Iterator[None]:
    """Instances are created bare: nothing holds them until somebody gets round to it."""

    def bare(action: Any) -> Any:
        metadata = msgspec.structs.replace(action.object.metadata, finalizers=[])
        return replace(action, object=msgspec.structs.replace(action.object, metadata=metadata))

    with function_replaced(plan_slots, _with_creates(bare)):
        yield


@contextmanager
def _machine_not_confirmed_gone() -> Iterator[None]:
    """The Server is released when the driver has been asked, not when the machine is gone."""

    def make(original: Any) -> Any:
        async def reconcile(context: Any, key: Any) -> Any:
            server = context.planes.require(key.plane).read(SERVER).get(key.ref)
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
        function_replaced(plan_provisioning, _taking_any_server),
    ):
        yield


@contextmanager
def _available_outlives_its_machine() -> Iterator[None]:
    """Once available, always available."""

    def make(original: Any) -> Any:
        def status(instance: Any, *arguments: Any) -> Any:
            new = original(instance, *arguments)
            old = find_condition(instance.status.conditions, AVAILABLE)
            return new if old is None or old.status != TRUE else instance.status

        return status

    with function_replaced(provisioned_status, make):
        yield


@contextmanager
def _ready_while_terminating() -> Iterator[None]:
    """Ready looks at the machine only; that the instance is leaving is nobody's business."""

    def make(original: Any) -> Any:
        def plan(plane: Any, instance: Any, *arguments: Any) -> Any:
            metadata = msgspec.structs.replace(instance.metadata, deletion_timestamp=None)
            staying = msgspec.structs.replace(instance, metadata=metadata)
            return original(plane, staying, *arguments)

        return plan

    with function_replaced(plan_readiness, make):
        yield


@contextmanager
def _orphaned_hub_copy() -> Iterator[None]:
    """Nobody withdraws copies that their cell no longer has."""
    with function_replaced(plan_withdrawal, lambda _: lambda cell, copy: Plan()):
        yield


@contextmanager
def _drift_not_seen() -> Iterator[None]:
    """Whatever runs is taken for the current template."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, slots: Slots) -> Any:
            planned = original(plane, deployment, slots)
            wanted = wanted_replicas(deployment)
            names = {i.metadata.name for number, i in slots.held.items() if number < wanted}
            actions = [
                a
                for a in planned.actions
                if deployment.is_terminating or not isinstance(a, Delete) or a.ref.name not in names
            ]
            return replace(planned, actions=tuple(actions))

        return plan

    with function_replaced(plan_slots, make):
        yield


@contextmanager
def _lost_machine_noticed_late() -> Iterator[None]:
    """Only the sweep of all machines notices one that is gone, after half a minute."""
    with attribute_replaced(machine, "LOST_MACHINE_CHECK_S", lambda _original: 1e6):
        yield


BUGS = (
    PlantedBug(
        "lost-machine-noticed-late",
        "Available for half a minute after the machine is gone: found by a slow resync only (I7)",
        _lost_machine_noticed_late,
        meets=("LoseMachine",),
        shows=("I7",),
    ),
    PlantedBug(
        "available-outlives-its-machine",
        "a True that nobody takes back: Karmada #7455 (I7)",
        _available_outlives_its_machine,
        meets=("BurnMachines",),
    ),
    PlantedBug(
        "stale-cache-double-create",
        "a second create from a cache that has not seen the first: Sieve, Fly April 2026",
        _stale_cache_double_create,
        meets=("StopHost", "CrashAtCommit", "LagWatches"),
        shows=("I1",),
    ),
    PlantedBug(
        "lost-answer-creates-twice",
        "a create that was done and not answered is done again under another name (F13)",
        _lost_answer_creates_twice,
        meets=("DelayWrites",),
        shows=("I1",),
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
        meets=("scale-down",),
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
        "orphaned-hub-copy",
        "the hub keeps a copy that no cell has any more: control-plane.md i.37",
        _orphaned_hub_copy,
        meets=("scale-down",),
    ),
    PlantedBug(
        "ready-while-terminating",
        "traffic is sent to what is leaving (I7)",
        _ready_while_terminating,
        meets=("ChangeImage", "scale-down"),
    ),
    PlantedBug(
        "new-template-ignored",
        "drift is not seen: what runs is called current",
        _drift_not_seen,
        meets=("ChangeImage",),
    ),
)
