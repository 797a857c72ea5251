"""What must become true of machines in time, also when nothing is written: looked at every few
seconds, in worlds whose cells are sound.

I7: an instance stays Available for at most AVAILABLE_S after its machine is gone. I19: a cell
brings a lost machine back by itself, whoever else is away, and lets go of what is deleted there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datum_compute.api.codec import JsonObject, typed
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, SECRET
from datum_compute.api.plane import PlaneName
from datum_compute.api.references import references_of
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.state import Truth, is_terminating, is_true
from testkit.sim.scenario.faults import BurnMachines, Fault, LoseMachine, StopHost
from testkit.sim.scenario.scenario import CENTRE, MANAGER

LOOK_S = 5.0
# A cell looks at its machines at least every half minute, give or take a tenth.
KNOWN_S = 45.0
AVAILABLE_S = 5.0


def is_watched(faults: Sequence[Fault]) -> bool:
    """Whether machines die in the world, and nothing keeps its cells from noticing."""
    return any(isinstance(fault, BurnMachines | LoseMachine) for fault in faults) and all(
        isinstance(fault, BurnMachines | LoseMachine) or _spares_cells(fault) for fault in faults
    )


def _spares_cells(fault: Fault) -> bool:
    return isinstance(fault, StopHost) and fault.host in (CENTRE, MANAGER)


def machines_complaint(truth: Truth) -> str:
    """The first instance of which something should be known or done by now."""
    now_s, alive = truth.now(), _slots_alive(truth)
    for slot in alive:
        truth.last_alive_s[slot] = now_s
    for cell, key, row in _instances(truth):
        slot = f"{cell} {key.namespace}/{key.name}"
        last_s = truth.last_alive_s.get(slot)
        if slot in alive or last_s is None:
            continue
        gone = f"{cell} {key.name}: its machine is gone for {now_s - last_s:.0f} s"
        # It may have gone just before this look, up to LOOK_S after it was last seen.
        if now_s - last_s > AVAILABLE_S + LOOK_S and is_true(row, "Available"):
            return f"I7: {gone}, and it is still called Available"
        if _lacks_deleted_data(truth, cell, key, row):
            truth.lacked_data_s[slot] = now_s
        startable_s = max(last_s, truth.lacked_data_s.get(slot, last_s))
        if now_s - startable_s > KNOWN_S and _could_be_back(truth, cell) and not _is_held(row):
            return f"I19: {gone}, and its cell has not brought it back"
    return _held_back(truth, alive)


def _held_back(truth: Truth, alive: dict[str, None]) -> str:
    """The first instance that is deleted, without a machine, and still there after a while."""
    now_s = truth.now()
    for cell in truth.providers:
        for key, row in truth.of_resource(cell, INSTANCE.resource):
            slot = f"{cell} {key.namespace}/{key.name}"
            leaves = is_terminating(row) and slot not in alive
            if not leaves:
                truth.leaving_since_s.pop(slot, None)
                continue
            uid = row["metadata"]["uid"]
            since_s, known = truth.leaving_since_s.get(slot, (now_s, uid))
            since_s = since_s if known == uid else now_s
            truth.leaving_since_s[slot] = (since_s, uid)
            if now_s - since_s > KNOWN_S and _could_be_back(truth, cell):
                return f"I19: {cell} {key.name} is deleted and cannot leave for {KNOWN_S:g} s"
    return ""


def _is_held(row: JsonObject) -> bool:
    """A gate keeps it from a machine, such as that of data which only the centre can bring."""
    return bool(row.get("spec", {}).get("controller", {}).get("schedulingGates"))


def _lacks_deleted_data(truth: Truth, cell: PlaneName, key: ObjectKey, row: JsonObject) -> bool:
    """Whether an operator deleted data on the cell that the instance requires, and it is absent.

    A machine starts only with all its required data, and only the centre has another copy.
    """
    rows = truth.rows.get(cell, {})
    for reference in references_of(typed(row, Instance).spec):
        kind = SECRET if reference.kind == SECRET.kind else CONFIG_MAP
        is_absent = ObjectKey(kind.resource, key.namespace, reference.name) not in rows
        if is_absent and not reference.optional and (cell, reference.name) in truth.tampered:
            return True
    return False


def _could_be_back(truth: Truth, cell: PlaneName) -> bool:
    provider = truth.providers[cell]
    return provider.lie is None and provider.now() - provider.honest_since_s > KNOWN_S


def _slots_alive(truth: Truth) -> dict[str, None]:
    return {f"{cell} {machine.rpartition('/')[0]}": None for cell, machine in truth.machines()}


def _instances(truth: Truth) -> Iterator[tuple[PlaneName, ObjectKey, JsonObject]]:
    """Those that are to run, and that nobody had a hand in."""
    for cell in truth.providers:
        for key, row in truth.of_resource(cell, INSTANCE.resource):
            if not is_terminating(row) and (cell, key.name) not in truth.tampered:
                yield cell, key, row
