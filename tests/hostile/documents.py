"""Bodies that are expensive to decode."""

from __future__ import annotations

from tests.hostile.request import HostileRequest, project_request
from tests.server.running_server import WORKLOADS

REQUESTS = (
    HostileRequest(
        "JSON nested 50,000 levels deep",
        requests=lambda: [project_request("POST", WORKLOADS, b"[" * 50_000 + b"]" * 50_000)],
        status=400,
    ),
)
