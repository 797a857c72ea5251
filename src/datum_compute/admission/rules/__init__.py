"""Admission rules by subject: one module per kind or group of kinds.

To add a rule, write a function in the module of its subject and list it in ``../chain.py``, or in
``../context_rules.py`` if it depends on other objects or on permissions.
"""
