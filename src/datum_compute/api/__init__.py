"""The language of the platform: kinds, metadata, conditions, errors and the one wire codec.

May not enter: I/O, the clock, logging, any other room.
To add a kind: write ``api/<kind>.py`` ending in ``KIND = KindInfo(...)`` and list it in
``api/kinds.py``. Schema, discovery, OpenAPI, client and table columns derive from it.
"""
