"""Writing copies of objects on another plane: planned first, written once, read back in the end.

Objects are written by server-side apply under a field manager of our own. What is as it should be
is left alone, so a run that was interrupted is simply run again. What somebody else changed there
is a conflict, and stays as it is unless ``force`` says otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from datum_compute.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from datum_compute.api.kinds import ENTITLEMENT, NAMESPACE
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.moving_read import Copy
from datum_compute.client.client import Client

MANAGER = "datumctl-export"
CREATE, CHANGE, KEEP, REFUSED = "create", "change", "is there", "refused"
_WHOLE = ("data", "binaryData", "stringData")  # maps that must be equal, not only hold ours
_ONLY_CREATED = (NAMESPACE, ENTITLEMENT)  # theirs, once they are there


@dataclass(frozen=True, slots=True)
class Step:
    copy: Copy
    action: str
    why: str = ""


async def plan_copy(client: Client, copy: Copy, *, force: bool) -> Step:
    """What writing it would do, asked of the server itself where it can know."""
    found = await found_there(client, copy)
    if found is not None and (copy.kind in _ONLY_CREATED or holds(found, copy.manifest)):
        return Step(copy, KEEP)
    action = CREATE if found is None else CHANGE
    try:
        await _apply(client, copy, force=force, dry_run=True)
    except NotFound:
        return Step(copy, action, "is checked when its namespace is there")
    except Conflict as error:
        return Step(copy, REFUSED, f"{error.message}; --force takes it over")
    except ApiError as error:
        return Step(copy, REFUSED, error.message)
    return Step(copy, action)


async def write_copy(client: Client, copy: Copy, *, force: bool) -> str:
    """Raises ApiError; answers what was done."""
    found = await found_there(client, copy)
    if copy.kind in _ONLY_CREATED:
        if found is not None:
            return KEEP
        with suppress(AlreadyExists):
            await client.create_plain(copy.kind, copy.manifest)
        return CREATE
    if found is not None and holds(found, copy.manifest):
        return KEEP
    await _apply(client, copy, force=force, dry_run=False)
    return CREATE if found is None else CHANGE


async def differences(client: Client, copy: Copy) -> str:
    """What is wrong with the object on the other side; empty if nothing is."""
    found = await found_there(client, copy)
    if found is None:
        return "is not there"
    if copy.kind in _ONLY_CREATED:
        return ""
    path = next(iter(_unlike(found, copy.manifest, "")), "")
    return f"differs at {path}" if path else ""


async def found_there(client: Client, copy: Copy) -> JsonObject | None:
    try:
        return await client.get_plain(copy.kind, copy.ref)
    except NotFound:
        return None


def holds(found: JsonObject, wanted: JsonObject) -> bool:
    """Whether everything that is wanted is there; the server may have added to it."""
    return not _unlike(found, wanted, "")


def _unlike(found: Any, wanted: Any, path: str) -> list[str]:
    """The paths where something else is found, values left out: they may be secret."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        if path.lstrip(".") in _WHOLE and set(found) != set(wanted):
            return [path]
        return [
            where
            for key, value in wanted.items()
            for where in _unlike(found.get(key), value, f"{path}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [where for i, (f, w) in pairs for where in _unlike(f, w, f"{path}[{i}]")]
    empty: tuple[Any, ...] = (None, "", 0, False, [], {})
    same = found == wanted or (found is None and wanted in empty)
    return [] if same else [path or "."]


async def _apply(client: Client, copy: Copy, *, force: bool, dry_run: bool) -> None:
    if copy.kind in _ONLY_CREATED:
        await client.create_plain(copy.kind, copy.manifest, dry_run=dry_run)
        return
    await client.apply_plain(
        copy.kind, copy.manifest, manager=MANAGER, force=force, dry_run=dry_run
    )
