"""Detects that an image was not pulled because its registry did not answer.

Engines and kubelets have no error code for this, so their messages, which contain the error of the
network, are the only source.
"""

from __future__ import annotations

_NETWORK_ERRORS = (
    *("dial tcp", "dial udp", "no such host", "server misbehaving", "temporary failure in name"),
    *("connection refused", "connection reset", "connection timed out", "no route to host"),
    *("network is unreachable", "i/o timeout", "handshake timeout", "client.timeout exceeded"),
    *("context deadline exceeded", "unexpected eof"),
)


def is_registry_unreachable(message: str) -> bool:
    """Return True if the registry did not answer, so that the image may exist."""
    lower = message.lower()
    return any(error in lower for error in _NETWORK_ERRORS)
