"""How a process opens its way to planes of other processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from datum_compute.app.environment import Ports
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.credentials import Outside
from datum_compute.client.bounded import BoundedTransport
from datum_compute.client.connect import open_transport
from datum_compute.client.transport.interface import Transport


def opener(
    ports: Ports, *, bounded: bool = True
) -> Callable[[Connection], AbstractAsyncContextManager[Transport]]:
    """For connections that bring all they need: no program is started to sign in. Those that are
    ``bounded`` are few; what users follow for as long as they like goes over others."""
    outside = Outside(environ={}, is_terminal=False, unix_s=ports.unix_s, random=ports.random)
    around = BoundedTransport if bounded else None
    return lambda connection: open_transport(connection, outside, around)
