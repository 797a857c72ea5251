"""The language of the platform: kinds, metadata, conditions, errors and the one wire codec.

May not enter: I/O, the clock, logging, any other room.
To add a kind: a class and its ``KindInfo`` in a module of its group, and a line in
``api/kinds.py``. Schema, discovery, OpenAPI, client and table columns derive from it.
"""
