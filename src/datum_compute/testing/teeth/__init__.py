"""Planted bugs: what the simulator must find, or it proves nothing.

A bug is a value (``bug.py``) that, for as long as its context lasts, replaces a few functions of
the product in this process. The product knows nothing of it. To plant another: a function that
yields with the bug in place, one line in the list of its file, and ``make sim-teeth``, which finds
a seed for it and records it in tests/sim/teeth_findings.
"""
