"""What engines and kubelets say when a registry did not answer, as opposed to having said no.

They have no code for it, only the words of the network below them.
"""

from __future__ import annotations

_WORDS = (
    *("dial tcp", "dial udp", "no such host", "server misbehaving", "temporary failure in name"),
    *("connection refused", "connection reset", "connection timed out", "no route to host"),
    *("network is unreachable", "i/o timeout", "handshake timeout", "client.timeout exceeded"),
    *("context deadline exceeded", "unexpected eof"),
)


def is_registry_unreachable(words: str) -> bool:
    """Whether the registry was not reached: the image may well be there."""
    said = words.lower()
    return any(word in said for word in _WORDS)
