"""What somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_NAMES_MAX = 8
_LENGTH_MAX = 64  # comparing longer ones takes long, and nobody means one of ours by them


def hint(asked: str, offered: Iterable[str]) -> str:
    """The nearest names first, else what there is; empty if there is nothing."""
    names = sorted(offered)
    near = get_close_matches(asked[:_LENGTH_MAX], names, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = ", ..." if len(names) > _NAMES_MAX else ""
    return f"there are: {', '.join(names[:_NAMES_MAX])}{more}" if names else ""
