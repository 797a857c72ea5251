"""What is said where the gateway of the platform has nothing to offer for an instance: the
simulated driver runs no process, and a plane of Kubernetes itself has no gateway."""

from __future__ import annotations

from typing import NoReturn

from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.gateway import NO_PROCESS
from datum_compute.cli.errors import OtherError
from datum_compute.cli.planegateway import knows_no_gateway
from datum_compute.cli.session import Session


class NoGatewayError(OtherError):
    reason = "NotSupported"


def refuse_without_process(
    session: Session, error: NotFound | Forbidden, what: str, name: str
) -> NoReturn:
    """For an answer that is about more than one instance which nobody runs any more."""
    if not knows_no_gateway(error) and NO_PROCESS not in error.message:
        raise error
    if NO_PROCESS in error.message:
        told = f"{name!r} is simulated and runs no process: it has no logs, no exec, no metrics."
    else:
        told = f"The platform that runs {name!r} offers no {what}."
    raise NoGatewayError(
        told,
        f"See what the platform did: {session.command('events')}",
    )
