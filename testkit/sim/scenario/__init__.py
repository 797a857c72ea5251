"""Scenarios: what happens in a run, as plain data generated from a seed.

Start with ``scenario.py`` (the value) and ``generate.py`` (how it is drawn). ``operations.py`` and
``faults.py`` hold the steps.
"""
