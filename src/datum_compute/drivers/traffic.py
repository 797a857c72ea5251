"""The protocol for publishing ports: connections from outside reach ready machines.

Each named port of a deployment is published once, for all machines of the deployment that are
ready. The client of the ingress (``app/ingress_client.py``) implements the protocol. A platform
with simulated machines publishes no ports.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from datum_compute.api.traffic import Backend


class Traffic(Protocol):
    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        """Publish a named port of the owner; return host and port at which it is reachable.

        ``backends`` replace the earlier ones; none means that no machine is ready. ``last_port`` is
        used again if it is free.
        """
        ...

    def refuse(self, owner: str, *, refused: bool) -> None:
        """Refuse all connections to the ports of the owner at once, instead of holding them.

        An HTTP request gets status 503, and any other connection is closed.
        """
        ...

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        """Stop publishing the ports of the owner, except the names in ``kept``."""
        ...
