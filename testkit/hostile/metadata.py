"""Patches and errors of metadata with many entries."""

from __future__ import annotations

from typing import Any

from datum_compute.api.http import STRATEGIC_PATCH
from testkit.hostile.documents import CONFIG_MAPS
from testkit.hostile.request import HostileRequest, project_request

_MANY = 20_000
_NO_OWNER = {"apiVersion": "", "kind": "", "name": "", "uid": ""}


def _config_map(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many", **metadata}}


def _finalizers(prefix: str, count: int = _MANY) -> list[str]:
    return [f"example.com/{prefix}{number}" for number in range(count)]


def _patch_with_finalizers(
    field: str, prefix: str, status: int = 200, mentions: str = ""
) -> HostileRequest:
    return HostileRequest(
        f"strategic merge patch with {_MANY:,} entries of {field}",
        setup=lambda: [
            project_request("POST", CONFIG_MAPS, _config_map(finalizers=_finalizers("old", 1000)))
        ],
        requests=lambda: [
            project_request(
                "PATCH",
                f"{CONFIG_MAPS}/many",
                {"metadata": {field: _finalizers(prefix)}},
                content_type=STRATEGIC_PATCH,
            )
        ],
        status=status,
        mentions=mentions,
    )


REQUESTS = (
    _patch_with_finalizers("finalizers", "new", status=422, mentions="at most 1000"),
    _patch_with_finalizers("$deleteFromPrimitiveList/finalizers", "new"),
    _patch_with_finalizers("$setElementOrder/finalizers", "old"),
    HostileRequest(
        "50,000 invalid labels",
        requests=lambda: [
            project_request(
                "POST", CONFIG_MAPS, _config_map(labels={f"-{n}": "x" for n in range(50_000)})
            )
        ],
        status=422,
        mentions="more than 100 errors",
    ),
    HostileRequest(
        "50,000 invalid keys of a ConfigMap",
        requests=lambda: [
            project_request(
                "POST", CONFIG_MAPS, {**_config_map(), "data": {f"/{n}": "" for n in range(50_000)}}
            )
        ],
        status=422,
        mentions="more than 100 errors",
    ),
    HostileRequest(
        "11,000 owners with empty fields",
        requests=lambda: [
            project_request("POST", CONFIG_MAPS, _config_map(ownerReferences=[_NO_OWNER] * 11_000))
        ],
        status=422,
        mentions="more than 100 errors",
    ),
)
