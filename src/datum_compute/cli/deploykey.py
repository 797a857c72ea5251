"""``--deploy-key``: one deploy, however often it is run.

The key is written with the change itself, on the Workload, with a digest of what was asked for and
the generation that came of it. Run again, a deploy that finds its own record writes nothing and
gives the answer of the first run: it goes on waiting for that generation.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from datum_compute.api.labels import DEPLOY
from datum_compute.api.meta.codec import JsonObject, copied, sorted_bytes
from datum_compute.cli.errors import ConflictError, UsageError


@dataclass(frozen=True, slots=True)
class DeployKey:
    key: str
    digest: str


def deploy_key(key: str | None, asked: Any) -> DeployKey | None:
    """``asked`` is what was asked for: plain JSON, whatever the order it was said in."""
    if key is None:
        return None
    if not key or len(key) > 128:
        raise UsageError("--deploy-key must have 1 to 128 characters.")
    return DeployKey(key, hashlib.sha256(sorted_bytes(asked)).hexdigest()[:16])


def with_record(
    desired: JsonObject, key: DeployKey | None, action: str, outcome: JsonObject
) -> JsonObject:
    """The workload with the record of this deploy; as it was without a key."""
    if key is None:
        return desired
    record = {
        "key": key.key,
        "digest": key.digest,
        "action": action,
        "generation": outcome["metadata"].get("generation", 1),
    }
    marked = copied(desired)
    annotations = marked["metadata"].get("annotations") or {}
    marked["metadata"]["annotations"] = {
        **annotations,
        DEPLOY: json.dumps(record, separators=(",", ":")),
    }
    return marked


def done_before(observed: JsonObject | None, key: DeployKey | None) -> str:
    """What this very deploy did when it was run before (created, updated); empty if it was not.

    A key that stands for something else, or whose deploy was overtaken, is refused."""
    record = _record(observed)
    if observed is None or key is None or record.get("key") != key.key:
        return ""
    name = observed["metadata"]["name"]
    if record.get("digest") != key.digest:
        raise UsageError(
            f"--deploy-key {key.key!r} was used for another deploy of {name!r}.",
            "Use a new key for a new deploy.",
        )
    if observed["metadata"]["generation"] != record.get("generation"):
        raise ConflictError(
            f"The deploy {key.key!r} of {name!r} was carried out, and the workload was changed "
            "after it; nothing was written.",
            "Use a new key to deploy over that change.",
        )
    return str(record.get("action", "updated"))


def _record(observed: JsonObject | None) -> JsonObject:
    annotations = (observed or {}).get("metadata", {}).get("annotations") or {}
    try:
        record = json.loads(annotations.get(DEPLOY, "{}"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
