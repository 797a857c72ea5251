"""How long the hub waits for a cell before it says that the cell does not answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """A cell is asked every ``probe_s``; one that answered before is called silent only when it has
    not answered for ``grace_s``, and then from the first moment of that."""

    probe_s: float = 10.0
    grace_s: float = 30.0
