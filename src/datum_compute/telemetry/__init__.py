"""What a process tells of itself: log lines, spans, and what they are about.

A leaf: it imports nothing of ours, and every room but api and planning may use it. Metrics live
beside what they count (``server/metrics.py``, ``runtime/metrics.py``, ...); the process's registry
is made in ``app/metrics.py``.

May not enter: secrets, bodies, headers; text of users other than through ``printable``.
"""
