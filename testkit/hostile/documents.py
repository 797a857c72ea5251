"""Bodies that are expensive to decode, and long texts that caches must not keep."""

from __future__ import annotations

from datum_compute.api.http import PROTOBUF, Request
from testkit.api_server.running_server import WORKLOADS
from testkit.hostile.request import HostileRequest, project_request

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

_HEADER_CHARACTERS = 60_000
_REPEATED = 60
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def _wide_config_maps(count: int, keys: int) -> list[Request]:
    """Requests that create ConfigMaps with many keys."""
    return [
        project_request(
            "POST",
            CONFIG_MAPS,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"wide-{number}"},
                "data": {f"key{key}": "" for key in range(keys)},
            },
        )
        for number in range(count)
    ]


def _large_config_maps(count: int) -> list[Request]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "x" * 1_000_000}}
    return [
        project_request("POST", CONFIG_MAPS, {**body, "metadata": {"name": f"large-{number}"}})
        for number in range(count)
    ]


REQUESTS = (
    HostileRequest(
        "list as a table with the objects, of 10 objects with 25,000 keys",
        setup=lambda: _wide_config_maps(10, 25_000),
        requests=lambda: [
            project_request("GET", CONFIG_MAPS, accept=_TABLE, includeObject="Object")
        ],
        status=200,
    ),
    HostileRequest(
        "list as a table with the objects, of 50 MB",
        setup=lambda: _large_config_maps(50),
        requests=lambda: [
            project_request("GET", CONFIG_MAPS, accept=_TABLE, includeObject="Object")
        ],
        status=400,
        mentions="parameter limit",
    ),
    HostileRequest(
        "deletion of a collection of 50 MB",
        setup=lambda: _large_config_maps(50),
        requests=lambda: [project_request("DELETE", CONFIG_MAPS)],
        status=200,
    ),
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
    HostileRequest(
        "Accept headers with 30,000 media types",
        requests=lambda: [
            project_request("GET", CONFIG_MAPS, accept="a," * (_HEADER_CHARACTERS // 2) + f"a/{n}")
            for n in range(_REPEATED)
        ],
        status=406,
        mentions="at most 4096 characters",
    ),
    HostileRequest(
        "label keys of 1.4 MB",
        requests=lambda: [
            project_request(
                "POST",
                CONFIG_MAPS,
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "long", "labels": {f"{n}{'x' * 1_400_000}": "x"}},
                },
            )
            for n in range(_REPEATED)
        ],
        status=422,
        mentions="no more than 63 characters",
    ),
)
