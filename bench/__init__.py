"""Benches: ``make bench`` runs all, ``python -m bench store`` one.

Each bench is one file with ``def measure() -> list[Measurement]``, listed in ``bench/__main__.py``.
Numbers mean nothing without the machine, so each bench measures its own floor in the same run
(the bare disk, the bare library) and reports the share of it that is left.
"""
