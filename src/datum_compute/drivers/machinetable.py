"""The table of simulated machines, by id, and of each name (``namespace/name/``) those it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

from datum_compute.drivers.behaviours import Machine


class MachineTable(MutableMapping[str, Machine]):
    """A dict in every way, with one more lookup that does not scan."""

    def __init__(self, machines: Mapping[str, Machine] | None = None) -> None:
        self._machines: dict[str, Machine] = {}
        self._named: dict[str, dict[str, None]] = {}
        self.update(machines or {})

    def named(self, name: str) -> list[str]:
        """Ids of the machines whose id is the name and one part more."""
        return sorted(self._named.get(name, ()))

    def __getitem__(self, machine_id: str) -> Machine:
        return self._machines[machine_id]

    def __setitem__(self, machine_id: str, machine: Machine) -> None:
        self._machines[machine_id] = machine
        self._named.setdefault(_name(machine_id), {})[machine_id] = None

    def __delitem__(self, machine_id: str) -> None:
        del self._machines[machine_id]
        named = self._named[_name(machine_id)]
        del named[machine_id]
        if not named:
            del self._named[_name(machine_id)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._machines)

    def __len__(self) -> int:
        return len(self._machines)


def _name(machine_id: str) -> str:
    return machine_id[: machine_id.rfind("/") + 1]
