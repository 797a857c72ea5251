"""Classifies errors that engines and kubelets report only as text.

Engines and kubelets return no code for these errors. Only this module searches their messages.
"""

from __future__ import annotations

# Exit codes of a shell that cannot start a command.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_START_ERRORS = {
    "executable file not found": NOT_FOUND,
    "no such file or directory": NOT_FOUND,
    "permission denied": NOT_EXECUTABLE,
}
_NETWORK_ERRORS = (
    *("dial tcp", "dial udp", "no such host", "server misbehaving", "temporary failure in name"),
    *("connection refused", "connection reset", "connection timed out", "no route to host"),
    *("network is unreachable", "i/o timeout", "handshake timeout", "client.timeout exceeded"),
    *("context deadline exceeded", "unexpected eof"),
)


def is_registry_unreachable(message: str) -> bool:
    """Return True if an image was not pulled because its registry did not respond.

    In this case the image may exist.
    """
    return any(_contains(message, error) for error in _NETWORK_ERRORS)


def start_error_code(message: str) -> int | None:
    """Return the exit code that a shell reports for this start error; None for other errors."""
    return next((code for error, code in _START_ERRORS.items() if _contains(message, error)), None)


def _contains(message: str, error: str) -> bool:
    return error in message.lower()
