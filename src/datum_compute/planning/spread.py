"""Spreads what would otherwise happen all at once, the same way every time."""

from __future__ import annotations

import zlib

from datum_compute.api.meta import Ref


def spread(seconds: float, ref: Ref) -> float:
    """Up to a tenth more or less, by the name: ten thousand objects do not come back together."""
    share = zlib.crc32(str(ref).encode()) % 1000 / 1000
    return seconds * (0.9 + 0.2 * share)
