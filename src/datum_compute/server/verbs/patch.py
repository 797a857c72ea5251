"""PATCH: the patch types by content type.

Strategic merge patch is for built-in kinds only. Unknown content types are rejected. To add a type:
write a function from the kind, the stored object and the decoded patch to the new object, and list
it in ``_PATCHES``. Server-side apply can also create objects and is in ``server/apply``.
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
    parse_field_validation,
    unsupported_media_type,
)
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.json_patch import apply_json_patch
from datum_compute.server.verbs.scale import propose_object
from datum_compute.server.verbs.strategic_merge import apply_strategic_merge
from datum_compute.server.verbs.update import UpdateRequest, change_object, update_managers


def _apply_merge_patch(kind: KindInfo[Any], old: JsonObject, patch: Any) -> Any:
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be a JSON object")
    return apply_merge_patch(old, patch)


def _apply_operations(kind: KindInfo[Any], old: JsonObject, patch: Any) -> Any:
    return apply_json_patch(old, patch)


_Patch = Callable[[KindInfo[Any], JsonObject, Any], Any]
_PATCHES: dict[str, _Patch] = {MERGE_PATCH: _apply_merge_patch, JSON_PATCH: _apply_operations}
_BUILT_IN_PATCHES = {**_PATCHES, STRATEGIC_PATCH: apply_strategic_merge}


def patch_types(kind: KindInfo[Any]) -> tuple[str, ...]:
    """Return the content types of a PATCH of a kind, the preferred one first."""
    return (*(_BUILT_IN_PATCHES if kind.built_in else _PATCHES), APPLY_PATCH)


def patch(context: ServerContext, request: ApiRequest) -> Awaitable[Response]:
    media_type = content_type(request.http.headers)
    if media_type == APPLY_PATCH:
        return apply(context, request)
    if media_type not in patch_types(request.kind):
        raise unsupported_media_type(media_type, patch_types(request.kind))
    if "force" in request.query:
        why = "Forbidden: may not be specified for non-apply patch"
        raise invalid_option("force", "FieldValueForbidden", why)
    apply_patch = _BUILT_IN_PATCHES[media_type]
    document = decode_json(request.http.body)

    def build(old: JsonObject) -> JsonObject:
        return as_object(apply_patch(request.kind, old, document))

    change = UpdateRequest(
        build=propose_object(request, build),
        validation=parse_field_validation(request.query, request.http.body),
        needs_version=False,
        set_managers=update_managers(context, request),
    )
    return change_object(context, request, change)
