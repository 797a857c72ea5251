"""Admission rules by subject. ../chain.py lists which rules each kind passes, in order.

To add a rule: a function in the module of its subject, and a line in chain.py.
"""
