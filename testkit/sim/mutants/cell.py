"""Mutants of cells: rollout, provisioning, machines, quota, sleep and autonomy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import TRUE, ConditionValue, Reason
from datum_compute.api.kinds import INSTANCE, SERVER
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import HUB
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.gates import confirm_grant
from datum_compute.controllers.workload import machine
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.driver import NOT_OBSERVED, MachineState
from datum_compute.drivers.simulated.driver import SimulatedDriver
from datum_compute.planning.federation.instances import plan_hub_copy
from datum_compute.planning.plan import Create, Delete, Plan, drop_finalizer
from datum_compute.planning.quota.buckets import decide_claims
from datum_compute.planning.quota.claims import quota_verdict
from datum_compute.planning.reasons import as_deployment_reason
from datum_compute.planning.rollout.instances import (
    has_unavailable_replacement,
    out_of_service,
    plan_slots,
)
from datum_compute.planning.rollout.machine import (
    MachineStep,
    machine_id_of,
    step_after_observation,
)
from datum_compute.planning.rollout.slots import (
    Slots,
    build_slots,
    min_ready_seconds,
    slots_of,
    wanted_replicas,
)
from datum_compute.planning.rollout.stopping import stopping_value
from datum_compute.planning.rollout.surge import (
    Surge,
    current_removals,
    find_surge,
    outdated_removals,
)
from datum_compute.planning.rollout.suspension import is_instance_halted
from testkit.sim.mutants.mutant import Make, Mutant, attribute_replaced, function_replaced
from testkit.sim.mutants.runtime import unsynced_reads


@contextmanager
def _stale_cache_double_create() -> Iterator[None]:
    """Instances get random names and are created from a cache that lacks the last create.

    With names by ordinal, as in the product, a stale cache is harmless.
    """
    with (
        function_replaced(plan_slots, _creating_random_names()),
        function_replaced(slots_of, _slots_by_label),
        unsynced_reads(),
    ):
        yield


def _creating_random_names() -> Make:
    numbers = iter(range(1_000_000))

    def renamed(action: Any) -> Any:
        metadata = action.object.metadata
        metadata = msgspec.structs.replace(metadata, name=f"{metadata.name}-{next(numbers)}")
        return replace(action, object=msgspec.structs.replace(action.object, metadata=metadata))

    return _with_creates(renamed)


def _slots_by_label(_original: Any) -> Any:
    """Take the slot from the label; of two instances in one slot, take the first."""

    def found_slots(_deployment_name: str, instances: Any, *min_ready: Any) -> Slots:
        by_ordinal: dict[int, Instance] = {}
        unslotted = []
        for instance in sorted(
            instances, key=lambda instance: (instance.is_terminating, instance.metadata.name)
        ):
            number = _ordinal(instance)
            if number in by_ordinal:
                unslotted.append(instance)
            by_ordinal.setdefault(number, instance)
        return build_slots(by_ordinal, unslotted, *min_ready)

    return found_slots


def _ordinal(instance: Instance) -> int:
    return int(instance.metadata.labels.get(labels.INSTANCE_INDEX, "0"))


def _with_creates(change: Callable[[Any], Any]) -> Make:
    """Change every Create of a plan."""

    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            actions = (change(a) if isinstance(a, Create) else a for a in planned.actions)
            return replace(planned, actions=tuple(actions))

        return plan

    return make


@contextmanager
def _lowest_ordinal_first() -> Iterator[None]:
    """Scale-down removes the lowest ordinal."""

    def make(original: Any) -> Any:
        def plan(plane: Any, deployment: Any, slots: Slots, surge: Surge) -> Any:
            live = [i for i in slots.by_ordinal.values() if not i.is_terminating]
            if deployment.is_terminating or len(live) <= wanted_replicas(deployment):
                return original(plane, deployment, slots, surge)
            lowest = live[0]
            uid = lowest.metadata.uid
            return Plan((Delete(plane, INSTANCE, ref_of(lowest), uid, "no longer wanted"),))

        return plan

    with function_replaced(plan_slots, make):
        yield


@contextmanager
def _rolled_all_at_once() -> Iterator[None]:
    def make(original: Any) -> Any:
        def plan(*arguments: Any) -> Any:
            planned = original(*arguments)
            actions = (
                replace(a, deferred=False) if isinstance(a, Create | Delete) else a
                for a in planned.actions
            )
            return replace(planned, actions=tuple(actions))

        return plan

    with function_replaced(plan_slots, make):
        yield


@contextmanager
def _server_released_before_its_machine() -> Iterator[None]:
    """The Server is released after the request to the driver, before the machine is gone."""

    def make(original: Any) -> Any:
        async def reconcile(context: Any, key: Any) -> Any:
            server = context.planes.require(key.plane).read(SERVER).get(key.ref)
            if server is None or not server.is_terminating:
                return await original(context, key)
            await context.drivers[key.plane].remove(machine_id_of(server))
            release = drop_finalizer(key.plane, SERVER, server, labels.DRIVER_FINALIZER)
            return await apply_plan(context.planes, Plan(tuple(release)))

        return reconcile

    with attribute_replaced(machine.CONTROLLER, "reconcile", make):
        yield


@contextmanager
def _ready_while_terminating() -> Iterator[None]:
    """Available and Ready of an instance stay True while it stops."""

    def make(_original: Any) -> Any:
        return lambda _instance: ConditionValue(TRUE, Reason.AVAILABLE, "Instance is ready")

    with function_replaced(stopping_value, make):
        yield


@contextmanager
def _lost_machine_noticed_late() -> Iterator[None]:
    """Only the periodic sweep of all machines, every half minute, finds a lost machine."""
    with attribute_replaced(machine, "LOST_MACHINE_CHECK_S", lambda _original: 1e6):
        yield


@contextmanager
def _adopted_machine_reports_pending() -> Iterator[None]:
    """A machine that was not observed yet is reported as Pending."""

    def make(original: Callable[..., Any]) -> Any:
        async def observe(self: SimulatedDriver, machine_id: str) -> Any:
            state = await original(self, machine_id)
            if state is NOT_OBSERVED:
                return MachineState("Pending", reason=Reason.STARTING, message="being set up")
            return state

        return observe

    with attribute_replaced(SimulatedDriver, "observe", make):
        yield


@contextmanager
def _min_ready_ignored() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def zero(*_arguments: Any, **_options: Any) -> int:
            return 0

        return zero

    with function_replaced(min_ready_seconds, make):
        yield


@contextmanager
def _replacement_not_awaited() -> Iterator[None]:
    """A replacement counts as in service as soon as it exists."""

    def counted(slots: Slots, wanted: int, updated: frozenset[int]) -> int:
        return wanted - sum(number < wanted for number in slots.serving | updated)

    with (
        function_replaced(out_of_service, lambda _: counted),
        function_replaced(has_unavailable_replacement, lambda _: lambda *_: False),
    ):
        yield


@contextmanager
def _surge_not_awaited() -> Iterator[None]:
    """Instances are replaced as soon as surge instances exist."""

    def make(original: Any) -> Any:
        def find(*arguments: Any) -> Surge:
            surge: Surge = original(*arguments)
            exists = surge.available | surge.members
            return replace(surge, available=exists, delays_replacement=False)

        return find

    with function_replaced(find_surge, make):
        yield


@contextmanager
def _surge_removed_early() -> Iterator[None]:
    """Surge instances are removed when no outdated instance is left, before the last replacement is
    available."""

    def make(original: Any) -> Any:
        def removals(current: Any, refused: Any, desired: Any) -> Any:
            return original(current, refused, replace(desired, is_done=True))

        return removals

    with function_replaced(current_removals, make):
        yield


@contextmanager
def _undo_removes_surge() -> Iterator[None]:
    """After an undo surge instances are removed at once, whichever other instances serve."""

    def make(original: Any) -> Any:
        def removals(*arguments: Any, **options: Any) -> Any:
            return (replace(r, is_deferred=False) for r in original(*arguments, **options))

        return removals

    with function_replaced(outdated_removals, make):
        yield


@contextmanager
def _gate_removed_before_its_grant() -> Iterator[None]:
    """An existing claim counts as granted, and no live read confirms it."""

    def make(original: Any) -> Any:
        def verdict(location: Any, instance: Any, claim: Any, size: Any) -> ConditionValue:
            if location is not None and claim is not None:
                return ConditionValue(TRUE, Reason.QUOTA_AVAILABLE, "Quota is granted")
            return original(location, instance, claim, size)  # type: ignore[no-any-return]

        return verdict

    async def unconfirmed(*_arguments: Any) -> None:
        return None

    with (
        function_replaced(quota_verdict, make),
        function_replaced(confirm_grant, lambda _: unconfirmed),
    ):
        yield


@contextmanager
def _quota_race() -> Iterator[None]:
    """Each claim is decided as if there were no other pending claims."""

    def make(original: Any) -> Any:
        def decide_separately(state: Any) -> list[Any]:
            decisions = []
            for decision in original(state):
                decided = original(replace(state, waiting=[decision.claim]))
                decisions += [d for d in decided if d.claim is decision.claim]
            return decisions

        return decide_separately

    with function_replaced(decide_claims, make):
        yield


@contextmanager
def _suspended_machine_removed() -> Iterator[None]:
    """The machine of a suspended Server is removed instead of stopped."""

    def make(original: Any) -> Any:
        def step(server: Any, **observed: Any) -> MachineStep:
            found = original(server, **observed)
            return MachineStep.REMOVE if found is MachineStep.SUSPEND else found

        return step

    with function_replaced(step_after_observation, make):
        yield


@contextmanager
def _suspension_not_passed_to_servers() -> Iterator[None]:
    """Servers of suspended instances are not suspended."""
    with function_replaced(is_instance_halted, lambda _: lambda _instance: False):
        yield


@contextmanager
def _connection_lost_while_pausing() -> Iterator[None]:
    """An instance that is being paused is treated as running."""

    def make(original: Any) -> Any:
        async def ensure_awake(self: Any, machine_id: str, arrived_s: float) -> Any:
            machine = self._machines.get(machine_id)
            if machine is not None and machine.lock.locked():
                return None
            return await original(self, machine_id, arrived_s)

        return ensure_awake

    with attribute_replaced(IdleScaler, "ensure_awake", make):
        yield


@contextmanager
def _instance_deletion_needs_hub() -> Iterator[None]:
    """A terminating instance stays on its cell until its copy on the hub is gone."""

    def held(action: Any) -> Any:
        finalizers = [labels.INSTANCE_FINALIZER, labels.PROVISIONER_FINALIZER]
        metadata = msgspec.structs.replace(action.object.metadata, finalizers=finalizers)
        return replace(action, object=msgspec.structs.replace(action.object, metadata=metadata))

    def waiting(original: Any) -> Any:
        def plan(cell: Any, instance: Any, hub_deployment: Any, copy: Any) -> Any:
            if not instance.is_terminating or copy is None:
                return original(cell, instance, hub_deployment, copy)
            if instance.metadata.finalizers != [labels.INSTANCE_FINALIZER]:
                return Plan(requeue_after_s=1)
            uid = copy.metadata.uid
            return Plan((Delete(HUB, INSTANCE, ref_of(copy), uid, "gone"),), requeue_after_s=5)

        return plan

    with (
        function_replaced(plan_hub_copy, waiting),
        function_replaced(plan_slots, _with_creates(held)),
    ):
        yield


@contextmanager
def _reason_not_carried_up() -> Iterator[None]:
    """A deployment reports that its instances are being provisioned, whatever their reason is."""

    def make(_original: Any) -> Any:
        return lambda instance_reason: Reason.INSTANCES_PROVISIONING

    with function_replaced(as_deployment_reason, make):
        yield


MUTANTS = (
    Mutant(
        "stale-cache-double-create",
        "a second create from a cache that lacks the first: Sieve; Fly, April 2026 (I1)",
        _stale_cache_double_create,
        triggers=("StopHost", "CrashAtCommit", "LagWatches"),
        violates=("I1",),
    ),
    Mutant(
        "lowest-ordinal-first",
        "scale-down removes the oldest instances (I14)",
        _lowest_ordinal_first,
        triggers=("scale-down",),
    ),
    Mutant(
        "rolled-all-at-once",
        "a new template replaces all instances at the same time (I12)",
        _rolled_all_at_once,
        triggers=("ChangeImage",),
    ),
    Mutant(
        "server-released-before-its-machine",
        "a request to the driver counts as its effect: Fly, deleted yet running (F33, I15)",
        _server_released_before_its_machine,
        triggers=("LyingProvider", "ChangeImage"),
    ),
    Mutant(
        "ready-while-terminating",
        "traffic is sent to a terminating instance (I7)",
        _ready_while_terminating,
        triggers=("ChangeImage", "scale-down"),
    ),
    Mutant(
        "lost-machine-noticed-late",
        "Available for half a minute after the machine is gone (I7)",
        _lost_machine_noticed_late,
        triggers=("LoseMachine",),
        violates=("I7",),
    ),
    Mutant(
        "adopted-machine-reports-pending",
        "after a restart of the cell process its instances are reported not ready, and replaced",
        _adopted_machine_reports_pending,
        triggers=("StopHost", "CrashAtCommit"),
        violates=("I28",),
    ),
    Mutant(
        "min-ready-ignored",
        "the next instance is deleted right after its predecessor's replacement has started",
        _min_ready_ignored,
        triggers=("RollCarefully",),
        violates=("I29",),
    ),
    Mutant(
        "replacement-not-awaited",
        "a replacement that has exited does not count against maxUnavailable",
        _replacement_not_awaited,
        triggers=("ChangeImage",),
        violates=("I28",),
    ),
    Mutant(
        "surge-not-awaited",
        "the only instance is replaced while its surge instance starts",
        _surge_not_awaited,
        triggers=("ChangeImage",),
        violates=("I35",),
    ),
    Mutant(
        "surge-removed-early",
        "the surge instance is removed while the last replacement starts",
        _surge_removed_early,
        triggers=("ChangeImage",),
        violates=("I35",),
    ),
    Mutant(
        "undo-removes-surge",
        "an undo removes the surge instance while it is the only one that serves",
        _undo_removes_surge,
        triggers=("AllowSurge",),
        violates=("I35",),
    ),
    Mutant(
        "gate-removed-before-its-grant",
        "an instance starts when quota was requested, not when it was granted (I4)",
        _gate_removed_before_its_grant,
        triggers=("tight quota",),
    ),
    Mutant(
        "reason-not-carried-up",
        "a workload without quota reports that its instances are being provisioned (I22)",
        _reason_not_carried_up,
        triggers=("tight quota",),
    ),
    Mutant(
        "quota-race",
        "two claims decided at the same time share the quota of one (I2)",
        _quota_race,
        triggers=("contenders",),
    ),
    Mutant(
        "connection-lost-while-pausing",
        "a connection that arrives while an instance is being paused is passed to no instance",
        _connection_lost_while_pausing,
        triggers=("Visit",),
        violates=("I27",),
    ),
    Mutant(
        "suspended-machine-removed",
        "a suspended machine is removed, and loses its identity (I33)",
        _suspended_machine_removed,
        triggers=("StopWorkload", "SuspendProject"),
        violates=("I33",),
    ),
    Mutant(
        "suspension-not-passed-to-servers",
        "the machines of a suspended project run on (I6, I16)",
        _suspension_not_passed_to_servers,
        triggers=("StopWorkload", "SuspendProject"),
        violates=("I6", "I16"),
    ),
    Mutant(
        "instance-deletion-needs-hub",
        "no instance leaves a cell while the hub is unreachable (I19)",
        _instance_deletion_needs_hub,
        triggers=("StopHost", "DeleteObject"),
        violates=("I19",),
    ),
)
