"""How a process opens its way to planes of other processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from datum_compute.app.ports import Ports
from datum_compute.client.bounded import BoundedTransport
from datum_compute.client.connecting import open_transport
from datum_compute.client.connection import Connection
from datum_compute.client.credentials import Outside
from datum_compute.client.transport import Transport


def opener(
    ports: Ports, *, lean: bool = False
) -> Callable[[Connection], AbstractAsyncContextManager[Transport]]:
    """For connections that bring all they need: no program is started to sign in. Only
    those that are ``lean`` can be upgraded to websockets; the others hold few connections."""
    outside = Outside(environ={}, is_terminal=False, unix_s=ports.unix_s, random=ports.random)
    around = None if lean else BoundedTransport
    return lambda connection: open_transport(connection, outside, around, lean=lean)
