"""Classifies errors that engines and kubelets report only as text.

They have no code for these errors. All searches in the text of their messages are in this module.
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
    """Return True if an image was not pulled because its registry did not answer.

    The image may exist then.
    """
    return any(_contains(message, error) for error in _NETWORK_ERRORS)


def start_error_code(message: str) -> int | None:
    """Return the exit code that a shell has for a command that cannot be started."""
    return next((code for error, code in _START_ERRORS.items() if _contains(message, error)), None)


def _contains(message: str, error: str) -> bool:
    return error in message.lower()
