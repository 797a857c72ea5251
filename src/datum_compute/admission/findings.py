"""What a rule may find: a cause to refuse the write, or something worth a warning."""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.errors import Cause


@dataclass(frozen=True, slots=True)
class Warned:
    """The write is stored, and the caller is told."""

    text: str


Finding = Cause | Warned
