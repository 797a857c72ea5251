"""The machines of a name are found however the table was changed."""

from __future__ import annotations

from collections.abc import MutableMapping

from hypothesis import given
from hypothesis import strategies as st

from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable

MACHINE = SimulatedMachine(number=1, image="web:1", runs_from_s=0.0)
ids = st.builds(lambda name, uid: f"ns/{name}/{uid}", st.sampled_from("abc"), st.integers(0, 3))


@given(st.lists(st.tuples(st.sampled_from(("set", "pop", "clear")), ids), max_size=40))
def test_names_always_equal_a_scan(steps: list[tuple[str, str]]) -> None:
    table = MachineTable()
    model: dict[str, SimulatedMachine] = {}
    for step, machine_id in steps:
        both: tuple[MutableMapping[str, SimulatedMachine], ...] = (table, model)
        for machines in both:
            if step == "set":
                machines[machine_id] = MACHINE
            elif step == "pop":
                machines.pop(machine_id, None)
            elif machine_id.endswith("0"):
                machines.clear()
        assert dict(table) == model
        for name in ("ns/a/", "ns/b/", "ns/c/"):
            assert table.list_ids(name) == sorted(m for m in model if m.startswith(name))
