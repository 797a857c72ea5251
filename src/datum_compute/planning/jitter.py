"""Deterministic jitter, so that objects with equal delays are not reconciled at the same time."""

from __future__ import annotations

import zlib

from datum_compute.api.meta.objects import Ref


def with_jitter(seconds: float, ref: Ref) -> float:
    """Return ``seconds`` plus or minus at most 10 percent; the offset depends on the name only."""
    fraction = zlib.crc32(str(ref).encode()) % 1000 / 1000
    return seconds * (0.9 + 0.2 * fraction)
