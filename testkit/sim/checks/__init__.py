"""Checks: what must hold at every commit, while a world settles, and when it has settled.

``state.py`` holds the committed rows that the checks read. Start with ``invariants.py`` (at every
commit) and ``convergence.py`` (settled). docs/internals/simulator.md lists the rules by number.
"""
