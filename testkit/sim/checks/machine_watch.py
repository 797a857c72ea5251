"""Checks of machines every few seconds, because a violation may occur without any write.

I7: an instance stays Available for at most AVAILABLE_S after its machine is gone. I19: a cell
replaces a lost machine and completes a deletion by itself, whatever else is unreachable. Only in
worlds whose cells are sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.referenced_data import references_of
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, SECRET
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.planes import PlaneName
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.state import ClusterState, is_terminating, is_true
from testkit.sim.scenario.faults import BurnMachines, Fault, LoseMachine, StopHost
from testkit.sim.scenario.scenario import CENTER, MANAGER

LOOK_S = 5.0
# A cell observes its machines at least every half minute, plus or minus a tenth.
KNOWN_S = 45.0
AVAILABLE_S = 5.0


def is_watched(faults: Sequence[Fault]) -> bool:
    """Return True if machines fail in the world, and no fault prevents its cells from observing
    it."""
    return any(isinstance(fault, BurnMachines | LoseMachine) for fault in faults) and all(
        isinstance(fault, BurnMachines | LoseMachine) or _affects_no_cell(fault) for fault in faults
    )


def _affects_no_cell(fault: Fault) -> bool:
    return isinstance(fault, StopHost) and fault.host in (CENTER, MANAGER)


def find_machine_violation(state: ClusterState) -> str:
    """Return the first instance whose status or machine should have changed by now."""
    now_s, alive = state.now(), _slots_alive(state)
    for slot in alive:
        state.last_alive_s[slot] = now_s
    for cell, key, row in _instances(state):
        slot = f"{cell} {key.namespace}/{key.name}"
        last_s = state.last_alive_s.get(slot)
        if slot in alive or last_s is None:
            continue
        lost_for = f"{cell} {key.name}: its machine is gone for {now_s - last_s:.0f} s"
        # The machine may have failed right before this check, up to LOOK_S after it was last alive.
        if now_s - last_s > AVAILABLE_S + LOOK_S and is_true(row, "Available"):
            return f"I7: {lost_for}, and it is still Available"
        if _lacks_deleted_data(state, cell, key, row):
            state.lacked_data_s[slot] = now_s
        startable_s = max(last_s, state.lacked_data_s.get(slot, last_s))
        if now_s - startable_s > KNOWN_S and _can_observe(state, cell) and not _is_gated(row):
            return f"I19: {lost_for}, and its cell has not replaced it"
    return _find_stuck_deletion(state, alive)


def _find_stuck_deletion(state: ClusterState, alive: dict[str, None]) -> str:
    """Return the first deleted instance that has no machine and still exists after KNOWN_S."""
    now_s = state.now()
    for cell in state.providers:
        for key, row in state.rows_of(cell, INSTANCE.resource):
            slot = f"{cell} {key.namespace}/{key.name}"
            is_deleted = is_terminating(row) and slot not in alive
            if not is_deleted:
                state.terminating_since_s.pop(slot, None)
                continue
            uid = row["metadata"]["uid"]
            since_s, known = state.terminating_since_s.get(slot, (now_s, uid))
            since_s = since_s if known == uid else now_s
            state.terminating_since_s[slot] = (since_s, uid)
            if now_s - since_s > KNOWN_S and _can_observe(state, cell):
                return f"I19: {cell} {key.name} is deleted and still exists after {KNOWN_S:g} s"
    return ""


def _is_gated(row: JsonObject) -> bool:
    """Return True if a gate holds it back, such as that of data which only the center can
    provide."""
    return bool(row.get("spec", {}).get("controller", {}).get("schedulingGates"))


def _lacks_deleted_data(
    state: ClusterState, cell: PlaneName, key: ObjectKey, row: JsonObject
) -> bool:
    """Return True if an operator deleted data on the cell that the instance requires.

    A machine starts only with all its required data, and only the center has another copy.
    """
    rows = state.rows.get(cell, {})
    for reference in references_of(from_json(row, Instance).spec):
        kind = SECRET if reference.kind == SECRET.kind else CONFIG_MAP
        is_absent = ObjectKey(kind.resource, key.namespace, reference.name) not in rows
        if is_absent and not reference.optional and (cell, reference.name) in state.tampered:
            return True
    return False


def _can_observe(state: ClusterState, cell: PlaneName) -> bool:
    provider = state.providers[cell]
    return provider.lie is None and provider.now() - provider.correct_since_s > KNOWN_S


def _slots_alive(state: ClusterState) -> dict[str, None]:
    return {f"{cell} {machine.rpartition('/')[0]}": None for cell, machine in state.machines()}


def _instances(state: ClusterState) -> Iterator[tuple[PlaneName, ObjectKey, JsonObject]]:
    """Yield instances that should run and that no operator changed."""
    for cell in state.providers:
        for key, row in state.rows_of(cell, INSTANCE.resource):
            control = row.get("spec", {}).get("controller", {})
            is_halted = control.get("suspended") or control.get("stopped")
            is_wanted = not is_terminating(row) and not is_halted
            if is_wanted and (cell, key.name) not in state.tampered:
                yield cell, key, row
