"""Structural schemas: derived from kinds, checked, defaulted and pruned.

Start with derive.py (the schema of a kind), then validate.py (an object against its schema).
"""
