"""What is asked of a world that has become calm: what users want, where it can be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testkit.sim.actors.users import Wanted
from testkit.sim.scenario.scenario import PLENTY


@dataclass(frozen=True, slots=True)
class Core:
    """What users want, on the cells that are not lost, within what each project is allowed."""

    wanted: Mapping[tuple[str, str], Wanted]
    projects: tuple[str, ...]
    cells: tuple[str, ...]
    lost: frozenset[str]
    allowed: int = PLENTY  # instances of each project
    serving: Mapping[str, str] = field(default_factory=dict)  # cells by city, where cells join

    def cell_of(self, city: str) -> str:
        return self.serving.get(city, city.lower())

    @property
    def is_tight(self) -> bool:
        """Whether quota is not enough for everything. What moved away from a lost cell may still
        hold quota there, so nobody knows in such a world."""
        if self.lost and self.allowed < PLENTY:
            return True
        return any(self.demand(project) > self.allowed for project in self.projects)

    def demand(self, project: str) -> int:
        wanted = (want for (owner, _), want in self.wanted.items() if owner == project)
        return sum(want.replicas * len(want.cities) for want in wanted)

    def is_whole(self, wanted: Wanted) -> bool:
        return not any(city.lower() in self.lost for city in wanted.cities)
