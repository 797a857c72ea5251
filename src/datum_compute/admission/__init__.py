"""Defaulting and validation that a schema cannot say, used by the server (and a webhook later).

May not enter: writes, rollout decisions.
To add a rule: a function in the file of its kind, listed in ``chain.py``.
"""
