"""Bodies that are expensive to decode."""

from __future__ import annotations

from datum_compute.api.exchange import PROTOBUF
from tests.hostile.request import HostileRequest, project_request
from tests.server.running_server import WORKLOADS

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

REQUESTS = (
    HostileRequest(
        "JSON nested 50,000 levels deep",
        requests=lambda: [project_request("POST", WORKLOADS, b"[" * 50_000 + b"]" * 50_000)],
        status=400,
    ),
    HostileRequest(
        "JSON with a million empty objects",
        requests=lambda: [project_request("POST", WORKLOADS, b"[" + b"{}," * 999_999 + b"{}]")],
        status=413,
        mentions="it may have 60000",
    ),
    HostileRequest(
        "protobuf with a million fields",
        requests=lambda: [
            project_request(
                "POST", CONFIG_MAPS, b"k8s\0" + b"\x78\x01" * 1_000_000, content_type=PROTOBUF
            )
        ],
        status=413,
        mentions="more than 30000 fields",
    ),
)
