"""Errors for instances without a gateway or without a process.

The simulated driver runs no process, and a Kubernetes cluster may have no gateway.
"""

from __future__ import annotations

from typing import NoReturn

from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.gateway import GatewayReason, has_gateway_reason, is_missing_gateway
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import OtherError


class NoGatewayError(OtherError):
    reason = "NotSupported"


def refuse_without_process(
    session: Session, error: NotFound | Forbidden, what: str, name: str
) -> NoReturn:
    """Raise NoGatewayError if the driver or the platform cannot serve the request at all.

    Any other error, such as an unknown instance, is raised unchanged.
    """
    is_simulated = has_gateway_reason(error, GatewayReason.INSTANCES_SIMULATED)
    if not is_simulated and not is_missing_gateway(error):
        raise error
    if is_simulated:
        message = f"{name!r} is simulated and runs no process: logs, exec and metrics do not exist."
    else:
        message = f"The platform of {name!r} does not support {what}."
    raise NoGatewayError(message, f"List the events: {session.command('events')}")
