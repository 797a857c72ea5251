"""Telemetry: log lines, spans and their context, counters and histograms.

Start with ``logs.py``. The package imports no other package, and all packages except api and
planning may import it. Metrics are defined next to what they count (``server/metrics.py``,
``runtime/metrics.py``) with the classes of ``metrics.py``; ``app/metrics.py`` creates the registry.
Log lines and spans contain no secrets, bodies or headers, and text of users only after
``printable``.
"""
