"""Defaulting and validation that a schema cannot say, for the embedded server and for the webhook.

May not enter: writes, rollout decisions.
To add a rule: a function in the file of its kind, listed in ``chain.py``; one that must know more
than the object says what it asks, and is listed in ``reading.py``.
"""
