"""The state that a world must reach when it has settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testkit.sim.actors.users import DesiredWorkload
from testkit.sim.scenario.scenario import PLENTY


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """The desired workloads of users, the cells that are not lost, and the quota of each project.

    ``desired`` is by project and name. ``returned`` are the cells that were forced to leave and
    joined again with their store and their machines.
    """

    desired: Mapping[tuple[str, str], DesiredWorkload]
    projects: tuple[str, ...]
    cells: tuple[str, ...]
    lost: frozenset[str]
    allowed: int = PLENTY  # instances per project
    serving: Mapping[str, str] = field(
        default_factory=dict
    )  # cell by city, in worlds whose cells join
    returned: frozenset[str] = frozenset()

    def cell_of(self, city: str) -> str:
        return self.serving.get(city, city.lower())

    @property
    def has_scarce_quota(self) -> bool:
        """Return True if quota does not suffice for everything. This includes worlds in which an
        instance that moved away from a lost cell may still hold quota there."""
        if self.lost and self.allowed < PLENTY:
            return True
        return any(self.demand(project) > self.allowed for project in self.projects)

    def demand(self, project: str) -> int:
        workloads = (w for (owner, _), w in self.desired.items() if owner == project)
        return sum(w.replicas * len(w.cities) for w in workloads)

    def is_unaffected(self, workload: DesiredWorkload) -> bool:
        return not any(city.lower() in self.lost for city in workload.cities)
