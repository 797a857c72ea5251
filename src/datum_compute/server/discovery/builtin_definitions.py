"""The definitions of the platform's own kinds, for clients that look a kind up there.

They are made from the kinds and lie in no store: every plane shows the same ones beside those of
its users, and nobody can change or delete them.
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
from datum_compute.store.records import Record, indexed
from datum_compute.store.store import Snapshot

_VERSION = 1  # older than anything a plane stores


class BuiltinDefinitions:
    def __init__(self, kinds: Iterable[KindInfo[Any]], start_s: float) -> None:
        self._kinds = {kind.resource: kind for kind in kinds if not kind.built_in}
        self._start_s = start_s
        self._made: dict[str, Record] = {}

    def get(self, key: ObjectKey) -> Record | None:
        if key.resource != DEFINITION.storage or key.name not in self._kinds:
            return None
        if key.name not in self._made:
            obj = _definition(self._kinds[key.name], timestamp(self._start_s))
            self._made[key.name] = indexed(key, _VERSION, encode(obj))
        return self._made[key.name]

    def added_to(self, snapshot: Snapshot, resource: str) -> Snapshot:
        """A list of definitions with these among them; any other list as it is."""
        if resource != DEFINITION.storage:
            return snapshot
        own = (self.get(ObjectKey(resource, "", name)) for name in self._kinds)
        records = [*snapshot.records, *(record for record in own if record is not None)]
        return Snapshot(snapshot.version, sorted(records, key=lambda record: record.key))

    def absence(self, kind: KindInfo[Any], key: ObjectKey) -> ApiError:
        """Why an object that is not in the store cannot be changed."""
        if self.get(key) is None:
            return not_found(kind, key.name)
        why = "it is part of the platform and cannot be changed"
        return forbidden(kind, key.name, why)


def _definition(kind: KindInfo[Any], now: str) -> JsonObject:
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
