"""PATCH: the patch types this server takes, by content type.

Strategic merge is for built-in kinds only. Others are refused, never taken for something else. To
add a type: a function from (kind, present object, decoded patch) to the next object, listed in
``_PATCHES``. Server-side apply also creates and has owners of its own, so it has its own file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from datum_compute.api.errors import BadRequest
from datum_compute.api.http import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Response
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.json_patch import apply_merge_patch
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.apply.apply import apply
from datum_compute.server.apply.managed_fields import invalid_option
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.body import as_object, decode_json
from datum_compute.server.encoding.request_options import (
    content_type,
    field_validation,
    unsupported,
)
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.json_patch import apply_json_patch
from datum_compute.server.verbs.scale import propose_object
from datum_compute.server.verbs.strategic_merge import strategically_merged
from datum_compute.server.verbs.update import UpdateRequest, change_object, plain_owner


def _merge(kind: KindInfo[Any], old: JsonObject, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be a JSON object")
    return apply_merge_patch(old, patch)


def _operations(kind: KindInfo[Any], old: JsonObject, patch: Any) -> Any:
    return apply_json_patch(old, patch)


_Patch = Callable[[KindInfo[Any], JsonObject, Any], Any]
_PATCHES: dict[str, _Patch] = {MERGE_PATCH: _merge, JSON_PATCH: _operations}
_OF_BUILT_IN = {**_PATCHES, STRATEGIC_PATCH: strategically_merged}


def patch_types(kind: KindInfo[Any]) -> tuple[str, ...]:
    """The content types of a PATCH of a kind, the first the one to prefer."""
    return (*(_OF_BUILT_IN if kind.built_in else _PATCHES), APPLY_PATCH)


def patch(context: ServerContext, request: ApiRequest) -> Awaitable[Response]:
    found = content_type(request.http.headers)
    if found == APPLY_PATCH:
        return apply(context, request)
    if found not in patch_types(request.kind):
        raise unsupported(found, patch_types(request.kind))
    if "force" in request.query:
        why = "Forbidden: may not be specified for non-apply patch"
        raise invalid_option("force", "FieldValueForbidden", why)
    function = _OF_BUILT_IN[found]
    document = decode_json(request.http.body)

    change = UpdateRequest(
        # No patch makes a document deeper than the object and the patch are.
        propose=propose_object(
            request, lambda old: as_object(function(request.kind, old, document))
        ),
        validation=field_validation(request.query, request.http.body),
        needs_version=False,
        own=plain_owner(context, request),
    )
    return change_object(context, request, change)
