"""Exponential delays with jitter, so that what failed together does not return together."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    first_s: float = 0.05
    most_s: float = 30.0

    def delay_s(self, failures: int, random: Random | None) -> float:
        """Between half and the whole of first, 2 x first, 4 x first ... up to most.

        Without ``random`` the whole of it.
        """
        grown = min(self.most_s, self.first_s * float(2 ** min(failures - 1, 30)))
        return grown * (0.5 + random.random() / 2) if random is not None else grown
