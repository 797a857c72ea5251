"""Quantities of CPU and memory in whole base units: thousandths of a CPU, and MiB.

Fractions are rounded up, so that an instance never uses more than was counted.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

_DECIMAL = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_PARTS = {"m": 1, "u": 1000, "n": 1_000_000}  # in a thousandth
_MEBI = 1 << 20


@lru_cache(maxsize=1024)  # few different sizes are used
def millicores(amount: int | str) -> int:
    """Return the millicores of ``2``, ``1.5`` or ``500m``. Measured values have ``u``
    or ``n`` too.
    """
    text = str(amount)
    if text[-1:] in _PARTS:
        return _round_up(Fraction(text[:-1]) / _PARTS[text[-1]])
    return _round_up(Fraction(text) * 1000)


@lru_cache(maxsize=1024)
def mebibytes(amount: int | str) -> int:
    """Return the MiB of ``1073741824``, ``512Mi`` or ``2G``, rounded up."""
    text = str(amount)
    number, unit = text.rstrip("kKMGTPEi"), 1
    suffix = text[len(number) :]
    if suffix.endswith("i"):
        unit = 1024 ** _DECIMAL[suffix[0].replace("K", "k")]
    elif suffix:
        unit = 1000 ** _DECIMAL[suffix]
    return _round_up(Fraction(number) * unit / _MEBI)


def _round_up(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)
