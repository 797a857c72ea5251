"""Kinds that the server responds to and never stores: reviews, service account tokens, cell joins.

Start with ``handlers.py``, which has the table of handlers. To add a kind: write its handler and
list it there.
"""
