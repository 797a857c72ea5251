"""CustomResourceDefinitions of the kinds of the platform, for clients that read them.

They are generated from the kinds and not stored. Every plane lists them besides the definitions of
its users. They cannot be changed or deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from datum_compute.api.apiextensions import ESTABLISHED, NAMES_ACCEPTED
from datum_compute.api.conditions import TRUE
from datum_compute.api.errors import ApiError
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.schema.derive import crd_manifest
from datum_compute.server.encoding.responses import forbidden, not_found
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record, decode_record
from datum_compute.store.store import Snapshot

_VERSION = 1  # lower than the version of every stored object


class BuiltinDefinitions:
    def __init__(self, kinds: Iterable[KindInfo[Any]], start_s: float) -> None:
        self._kinds = {kind.resource: kind for kind in kinds if not kind.built_in}
        self._start_s = start_s
        self._records: dict[str, Record] = {}

    def get(self, key: ObjectKey) -> Record | None:
        if key.resource != DEFINITION.storage or key.name not in self._kinds:
            return None
        if key.name not in self._records:
            obj = _build_definition(self._kinds[key.name], timestamp(self._start_s))
            self._records[key.name] = decode_record(key, _VERSION, encode(obj))
        return self._records[key.name]

    def add_to(self, snapshot: Snapshot, resource: str) -> Snapshot:
        """Add them to a list of definitions. Lists of other resources are returned unchanged."""
        if resource != DEFINITION.storage:
            return snapshot
        builtin = (self.get(ObjectKey(resource, "", name)) for name in self._kinds)
        records = [*snapshot.records, *(record for record in builtin if record is not None)]
        return Snapshot(snapshot.version, sorted(records, key=lambda record: record.key))

    def missing_error(self, kind: KindInfo[Any], key: ObjectKey) -> ApiError:
        """Return the error for a write to an object that is not in the store."""
        if self.get(key) is None:
            return not_found(kind, key.name)
        why = "the definition is part of the platform and cannot be changed"
        return forbidden(kind, key.name, why)


def _build_definition(kind: KindInfo[Any], now: str) -> JsonObject:
    manifest = crd_manifest(kind)
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    conditions = [
        {
            "type": condition,
            "status": TRUE,
            "lastTransitionTime": now,
            "reason": "PartOfThePlatform",
            "message": "the kind is part of the platform",
        }
        for condition in (NAMES_ACCEPTED, ESTABLISHED)
    ]
    metadata = {
        "name": name,
        "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "resourceVersion": str(_VERSION),
        "generation": 1,
        "creationTimestamp": now,
    }
    status = {
        "conditions": conditions,
        "acceptedNames": spec["names"],
        "storedVersions": [kind.version],
    }
    spec = {**spec, "conversion": {"strategy": "None"}}
    return {**manifest, "metadata": metadata, "spec": spec, "status": status}
