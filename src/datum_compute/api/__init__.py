"""The API: kinds, metadata, conditions, errors and the wire codec.

This package must not use I/O, the clock or logging. To add a kind: a class and its ``KindInfo`` in
the module of its group, and a line in ``api/kinds.py``. Start with compute/workload.py.
"""
