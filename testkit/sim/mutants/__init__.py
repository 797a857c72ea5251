"""Mutants: defects that the simulator must find.

A mutant replaces a few functions of the product in this process while its context is open; the
product does not refer to it. Start with ``mutant.py``. To add one, write a context manager and a
line in the list of its module, then run ``make sim-mutants MUTANTS=its-name``: it searches for a
seed that finds the mutant and records the scenario in tests/sim/mutant_findings.
"""
