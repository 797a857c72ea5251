"""What the running code is working on, known to whoever writes a log line or a request below it.

Kept in context variables, so that tasks do not see each other's. A reconcile is entered and not
left: its worker's own lines about the outcome belong to it, and the next one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

Fields = Mapping[str, str]


def _nothing() -> Fields:
    return {}


# Of the request that is being answered; its answer carries it as audit-id.
REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
# Of the reconcile that is under way: controller, plane, kind, object, reconcile. Told when a line
# is written, which most reconciles never do.
RECONCILE: ContextVar[Callable[[], Fields]] = ContextVar("RECONCILE", default=_nothing)
# Of the span that is open, as the W3C header has it; empty while nothing is traced.
TRACEPARENT: ContextVar[str] = ContextVar("TRACEPARENT", default="")


def scope_fields() -> dict[str, str]:
    """Everything that is known, for a log line."""
    fields = dict(RECONCILE.get()())
    request_id = REQUEST_ID.get()
    if request_id:
        fields["request"] = request_id
    traceparent = TRACEPARENT.get()
    if traceparent:
        fields["trace"] = traceparent.split("-")[1]
    return fields


# --- Spans: one for each request and each reconcile, where somebody collects them
# A ``Tracer`` opens a span. Without one nothing is measured and nothing of OpenTelemetry is
# imported; ``otel.py`` makes one where the extra is installed and wanted.


class OpenSpan(Protocol):
    def set_attribute(self, key: str, value: str | int) -> None: ...


# Name, attributes, and the traceparent it continues (empty: that of the open span, if any).
Tracer = Callable[[str, Mapping[str, str], str], AbstractContextManager[OpenSpan]]
