"""Controllers of the embedded stand-in for Karmada. They do not run beside a real Karmada.

Start with bindings.py, then works.py, which carries Works to cells.
"""
