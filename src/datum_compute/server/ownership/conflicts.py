"""What an apply is told when others own what it would change, in the words of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import groupby
from operator import itemgetter

import orjson

from datum_compute.api.errors import Cause, Conflict
from datum_compute.server.apply.field_set import FieldSet, Path, paths
from datum_compute.server.apply.managed_fields import UPDATE, Entry

REASON = "FieldManagerConflict"
CAUSES_MAX = 100


def conflict_error(found: Sequence[tuple[Entry, FieldSet]]) -> Conflict:
    """One cause for each field and manager, up to CAUSES_MAX. The message states how many there
    are in total."""
    count = 0
    listed: list[tuple[str, str]] = []
    for entry, fields in sorted(found, key=lambda item: _shown_manager(item[0])):
        members = list(paths(fields))
        count += len(members)
        if room := CAUSES_MAX - len(listed):
            manager = _shown_manager(entry)
            listed += [(manager, shown_path(path)) for path in nsmallest(room, members)]
    listed.sort()
    causes = [Cause(path, REASON, f"conflict with {manager}") for manager, path in listed]
    return Conflict(_message(listed, count), causes=causes)


def _message(listed: Sequence[tuple[str, str]], count: int) -> str:
    if count == 1:
        manager, path = listed[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    lines: list[str] = []
    for manager, group in groupby(listed, key=itemgetter(0)):
        lines.append(f"conflicts with {manager}:")
        lines += [f"- {path}" for _, path in group]
    if count > len(listed):
        lines.append(f"and {count - len(listed)} more")
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def _shown_manager(entry: Entry) -> str:
    shown = f'"{entry.get("manager", "")}"'
    if subresource := entry.get("subresource"):
        shown += f' with subresource "{subresource}"'
    return f"{shown} using {entry['apiVersion']}" if entry["operation"] == UPDATE else shown


def shown_path(path: Path) -> str:
    """``.spec.containers[name="app"].image``"""
    return "".join(_shown_step(step) for step in path)


def _shown_step(step: str) -> str:
    prefix, text = step[:2], step[2:]
    if prefix == "f:":
        return f".{text}"
    if prefix == "k:":
        keys = orjson.loads(text)
        listed = ",".join(f"{name}={orjson.dumps(keys[name]).decode()}" for name in sorted(keys))
        return f"[{listed}]"
    return f"[={text}]" if prefix == "v:" else f"[{text}]"
