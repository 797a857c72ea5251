"""Spans: one for each request and each reconcile, where somebody collects them.

A ``Tracer`` opens a span. Without one nothing is measured and nothing of OpenTelemetry is
imported; ``otel.py`` makes one where the extra is installed and wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol


class OpenSpan(Protocol):
    def set_attribute(self, key: str, value: str | int) -> None: ...


# Name, attributes, and the traceparent it continues (empty: that of the open span, if any).
Tracer = Callable[[str, Mapping[str, str], str], AbstractContextManager[OpenSpan]]
