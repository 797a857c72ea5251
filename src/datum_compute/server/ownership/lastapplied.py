"""The annotation in which kubectl's client-side apply remembers what it applied.

When the same user moves to server-side apply (the manager ``kubectl``), what the annotation says
and the object still holds is theirs already, so it is no conflict; and the annotation follows, so
that they can move back.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.server.apply.compare import applied_fields, compared
from datum_compute.server.apply.field_set import EMPTY, FieldSet, difference
from datum_compute.server.apply.field_shape import FieldMap
from datum_compute.server.apply.managed_fields import Manager
from datum_compute.server.encoding.body import decoded_json

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"


def allowed_by_last_apply(live: JsonObject, manager: Manager, shape: FieldMap) -> FieldSet:
    """The fields that kubectl may change although another manager owns them."""
    before = _last_applied(live) if manager.name == KUBECTL else None
    if before is None or before.get("apiVersion") != manager.api_version:
        return EMPTY
    found = compared(before, live, shape)
    return difference(difference(applied_fields(before, shape), found.changed), found.removed)


def with_last_applied(obj: JsonObject, config: JsonObject, manager: Manager) -> JsonObject:
    annotations = obj["metadata"].get("annotations")
    if manager.name != KUBECTL or not (
        isinstance(annotations, dict) and annotations.get(ANNOTATION)
    ):
        return obj
    metadata = config.get("metadata", {})
    own = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != ANNOTATION}
    shown = {**config, "metadata": {**metadata, "annotations": own}}
    text = encode(shown).decode() + "\n"
    changed = {**obj["metadata"], "annotations": {**annotations, ANNOTATION: text}}
    return {**obj, "metadata": changed}


def _last_applied(live: JsonObject) -> JsonObject | None:
    text: Any = (live["metadata"].get("annotations") or {}).get(ANNOTATION)
    if not isinstance(text, str):
        return None
    try:
        found = decoded_json(text.encode())
    except BadRequest:
        return None
    is_object = isinstance(found, dict) and isinstance(found.get("metadata", {}), dict)
    return found if is_object else None
