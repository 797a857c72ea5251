"""What is said when a server does not answer as it should, over whichever transport: what happened,
and what to do about it. Nothing of the request is in it."""

from __future__ import annotations

from datum_compute.api.errors import Unreachable

Silence = tuple[str, str]  # why, and what to do about it

_RUNNING = "Check that it is running and that the address is right."

HANDSHAKE_FAILED: Silence = ("the TLS handshake failed", "Check that the address speaks https.")
NO_SUCH_NAME: Silence = ("its name cannot be resolved", "Check the spelling of the host.")
NOT_IN_TIME: Silence = ("no answer in time", _RUNNING)
LOST: Silence = (
    "the connection was lost",
    "Try again; a change may or may not have been made.",
)


def not_trusted(message: object) -> Silence:
    why = f"its certificate is not trusted ({message})"
    return why, "Check the certificate authority in the kubeconfig."


def not_connected(error: OSError) -> Silence:
    return (error.strerror or "no connection").lower(), _RUNNING


def not_running(what: str) -> Silence:
    return what, _RUNNING


def unreachable(server: object, silence: Silence) -> Unreachable:
    why, advice = silence
    return Unreachable(f"{server} does not answer: {why}. {advice}")


def redirected(server: object, status: int) -> Unreachable:
    return Unreachable(
        f"{server} answers with a redirect ({status}). Use the address it leads to as the server."
    )
