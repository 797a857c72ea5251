"""Selectors that are expensive to parse or to check."""

from __future__ import annotations

from testkit.hostile.documents import CONFIG_MAPS
from testkit.hostile.request import HostileRequest, project_request

_SECRETS = "/api/v1/namespaces/default/secrets"

REQUESTS = (
    HostileRequest(
        "label selector with 60,000 spaces",
        requests=lambda: [
            project_request("GET", CONFIG_MAPS, labelSelector=f"a{' ' * 60_000}b"),
        ],
        status=400,
        mentions="at most 16384 characters",
    ),
    HostileRequest(
        "label selector with as many spaces as are allowed",
        requests=lambda: [
            project_request("GET", CONFIG_MAPS, labelSelector=f"a{' ' * 16_000}b"),
        ],
        status=400,
        mentions="unable to parse",
    ),
    HostileRequest(
        "field selector with as many spaces as are allowed",
        requests=lambda: [
            project_request("GET", CONFIG_MAPS, fieldSelector=f"metadata.name={' ' * 16_000}="),
        ],
        status=400,
        mentions="invalid field selector",
    ),
    HostileRequest(
        "label selector with 2,000 terms",
        requests=lambda: [
            project_request(
                "GET", CONFIG_MAPS, labelSelector=",".join(f"!k{n}" for n in range(2_000))
            ),
        ],
        status=400,
        mentions="at most 100 requirements",
    ),
    HostileRequest(
        "field selector with 100 terms and a Secret of 25,000 keys",
        setup=lambda: [
            project_request(
                "POST",
                _SECRETS,
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "wide"},
                    "data": {f"key{number}": "" for number in range(25_000)},
                },
            )
        ],
        requests=lambda: [
            project_request(
                "GET", _SECRETS, fieldSelector=",".join(f"type!=t{n}" for n in range(100))
            )
        ],
        status=200,
    ),
)
