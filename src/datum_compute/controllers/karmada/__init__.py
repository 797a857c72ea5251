"""Controllers of the embedded replacement of Karmada. They do not run if Karmada is installed.

Start with bindings.py, then works.py, which carries Works to cells.
"""
