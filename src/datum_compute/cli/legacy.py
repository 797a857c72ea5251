"""The history that older command lines kept in a ConfigMap: read, where it is still there.

``compute.datumapis.com-revision-history.<workload>`` holds one JSON entry for each revision. Its
numbers are its own, so they are shown as ``legacy-N``. An entry that cannot be read is left out.
"""

from __future__ import annotations

import json

from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.session import Session

PREFIX = "legacy-"
_CONFIG_MAP = "compute.datumapis.com-revision-history."


async def read_legacy(session: Session, workload: Workload) -> list[WorkloadRevision]:
    """Oldest first; none where there is no such ConfigMap."""
    name = workload.metadata.name
    try:
        found = await session.client.get(CONFIG_MAP, Ref(session.namespace, _CONFIG_MAP + name))
    except (NotFound, Forbidden):
        return []
    read = [_revision(workload, text) for text in found.data.values()]
    return sorted((r for r in read if r is not None), key=lambda r: r.spec.revision)


def _revision(workload: Workload, text: str) -> WorkloadRevision | None:
    try:
        entry = json.loads(text)
        spec = json.loads(entry["spec"]) if isinstance(entry["spec"], str) else entry["spec"]
        return from_json(_document(workload, entry, spec), WorkloadRevision)
    except (ValueError, KeyError, TypeError, DecodeError):
        return None


def _document(workload: Workload, entry: JsonObject, spec: JsonObject) -> JsonObject:
    changes = entry.get("changes") or []
    return {
        "metadata": {
            "name": f"{PREFIX}{entry['rev']}",
            "creationTimestamp": entry.get("timestamp"),
        },
        "spec": {
            "workloadRef": {"name": workload.metadata.name, "uid": workload.metadata.uid},
            "revision": entry["rev"],
            "templateHash": entry.get("templateHash") or "",
            "template": spec["template"],
            "placements": spec["placements"],
            "changes": [changes] if isinstance(changes, str) else changes,
            "actor": entry.get("actor") or "",
        },
    }
