"""Runs: one world, a search over seeds, shrinking, and worlds with controllers of your own.

Start with ``world.py`` (one run) and ``main.py`` (the command line).
"""
