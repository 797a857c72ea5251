"""PATCH: the patch types this server takes, by content type.

Server-side apply and strategic merge are refused, never taken for something else. To add a type:
a function from (present object, decoded patch) to the next object, listed in ``_PATCHES``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import BadRequest
from datum_compute.api.exchange import JSON_PATCH, MERGE_PATCH, Response
from datum_compute.api.mergepatch import merged
from datum_compute.server.call import Call
from datum_compute.server.catalogue import Catalogue
from datum_compute.server.document import as_object, check_depth, decoded_json
from datum_compute.server.fieldvalidation import field_validation
from datum_compute.server.jsonpatch import patched
from datum_compute.server.negotiation import content_type, unsupported
from datum_compute.server.ports import Ports
from datum_compute.server.update import Change, change_object


def _merge(old: JsonObject, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be a JSON object")
    return merged(old, patch)


_PATCHES: dict[str, Callable[[JsonObject, Any], Any]] = {MERGE_PATCH: _merge, JSON_PATCH: patched}


async def patch(ports: Ports, catalogue: Catalogue, call: Call) -> Response:
    found = content_type(call.request.headers)
    apply = _PATCHES.get(found)
    if apply is None:
        raise unsupported(found, tuple(_PATCHES))
    document = decoded_json(call.request.body)

    def propose(old: JsonObject) -> JsonObject:
        result = apply(old, document)
        check_depth(result)
        return as_object(result)

    validation = field_validation(call.query, call.request.body)
    change = Change(propose, validation, needs_version=False)
    return await change_object(ports, catalogue, call, change)
