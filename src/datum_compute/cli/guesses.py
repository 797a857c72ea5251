"""What somebody may have meant who wrote a name or a flag that there is not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_NAMES_MAX = 10
_ALIKE = 0.7
# What other tools call it.
_ELSEWHERE = {
    **dict.fromkeys(("--replicas", "--min-replicas", "--scale", "--count", "--instances"), "--min"),
    **dict.fromkeys(("--cities", "--region", "--location", "--zone"), "--city"),
    **dict.fromkeys(("--background", "--daemon", "-d"), "--detach"),
    **dict.fromkeys(("--format", "--json", "--yaml"), "--output"),
    **dict.fromkeys(("--force", "--assume-yes", "--auto-approve"), "--yes"),
    **dict.fromkeys(("--size", "--type"), "--instance-type"),
    "--all": "--all-namespaces",
    "--filename": "--file",
    "--watch": "--follow",
}


def named_hint(asked: str, names: Iterable[str]) -> str:
    """The nearest name, else what there is; empty if there is nothing."""
    known = sorted(names)
    close = get_close_matches(asked, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    more = ", ..." if len(known) > _NAMES_MAX else ""
    return f"There are: {', '.join(known[:_NAMES_MAX])}{more}" if known else ""


def meant_option(asked: str, known: Sequence[str], arguments: Sequence[str]) -> tuple[str, str]:
    """The flag as it was written, and the one that was meant; empty if nobody can tell.

    ``-image=x`` is read as ``-i ...``, so the words of the command line are looked at too.
    """
    if len(asked) == 2:
        for word in arguments:
            name = f"-{word.partition('=')[0]}"
            if word.startswith(asked) and name in known:
                return name[1:], name
    other = _ELSEWHERE.get(asked, "")
    if other in known:
        return asked, other
    close = get_close_matches(asked, known, n=1, cutoff=_ALIKE)
    return asked, close[0] if close else ""
