"""Long texts that differ from each other, which caches must not keep."""

from __future__ import annotations

from tests.hostile.documents import CONFIG_MAPS
from tests.hostile.request import HostileRequest, project_request

_HEADER_CHARACTERS = 60_000
_REPEATED = 60

REQUESTS = (
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
