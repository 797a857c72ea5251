"""The seam to whoever keeps the planes of projects: the embedded server, or a simulated one.

On real planes, such as Milo's, somebody else makes them, and the controller that needs this does
not run. Everything here may be asked again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from datum_compute.api.plane import PlaneName


class PlaneLifecycle(Protocol):
    async def create(self, plane: PlaneName, owner: str) -> None:
        """The plane is there, with all that a project has from its first moment; ``owner`` is the
        user who administers it, or empty."""

    async def drain(self, plane: PlaneName) -> Sequence[str]:
        """Everything that is held back in the plane is asked to go; names what is still there."""

    async def delete(self, plane: PlaneName) -> None:
        """The plane is gone with all its data, and other planes know that."""
