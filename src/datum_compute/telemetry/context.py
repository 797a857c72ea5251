"""The request, reconcile and span that the current task works on, for log lines and requests.

The values are context variables, so that each task has its own. The reconcile of a worker stays set
after it ends: the worker's log lines about its outcome belong to it. The next reconcile replaces
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

Fields = Mapping[str, str]


def _no_fields() -> Fields:
    return {}


# The id of the current request; its response has the same id in the header audit-id.
REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
# The fields of the current reconcile: controller, plane, kind, object, reconcile. A function,
# because most reconciles write no log line.
RECONCILE: ContextVar[Callable[[], Fields]] = ContextVar("RECONCILE", default=_no_fields)
# The current span, in the format of the W3C header; empty without tracing.
TRACEPARENT: ContextVar[str] = ContextVar("TRACEPARENT", default="")


def scope_fields() -> dict[str, str]:
    """Return all fields of the context, for a log line."""
    fields = dict(RECONCILE.get()())
    request_id = REQUEST_ID.get()
    if request_id:
        fields["request"] = request_id
    traceparent = TRACEPARENT.get()
    if traceparent:
        fields["trace"] = traceparent.split("-")[1]
    return fields


# --- Spans: one per request and per reconcile
# A ``Tracer`` opens a span. ``otel.py`` creates one if the extra is installed and tracing is
# enabled. Without a tracer, nothing is measured, and OpenTelemetry is not imported.


class OpenSpan(Protocol):
    def set_attribute(self, key: str, value: str | int) -> None: ...


# Arguments: name, attributes, and the traceparent to continue (empty: the current span, if any).
Tracer = Callable[[str, Mapping[str, str], str], AbstractContextManager[OpenSpan]]
