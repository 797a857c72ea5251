"""Copies projects and their content to another platform: plan, write in order, read back.

The target either stores projects (``platform``), which are then created too, or is one plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.compute.referenced_data import references, sources
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import is_true
from datum_compute.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from datum_compute.api.kinds import (
    CONFIG_MAP,
    ENTITLEMENT,
    NAMESPACE,
    NETWORK,
    PROJECT,
    SECRET,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.cli.commands.export import workload_manifest
from datum_compute.cli.errors import PendingError, TimedOutError
from datum_compute.client.client import Client

# --- The copied objects: workloads and the objects that they depend on
# Only the fields that users write are copied. Status, uid, version, owners and finalizers belong to
# a plane; the controllers of the target set their own.


_SOURCES: Mapping[str, KindInfo[Any]] = {"ConfigMap": CONFIG_MAP, "Secret": SECRET}
_KEPT_META = ("labels", "annotations")
_OF_A_CLIENT = ("kubectl.kubernetes.io/last-applied-configuration",)
_OF_A_PLANE = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class Copy:
    """An object for the target. It may be a Secret, so its manifest is never printed."""

    kind: KindInfo[Any]
    manifest: JsonObject = field(repr=False)

    @property
    def ref(self) -> Ref:
        metadata = self.manifest["metadata"]
        return Ref(metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.ref}"


@dataclass(frozen=True, slots=True)
class ProjectCopies:
    """The copies of a project, in the order of their dependencies."""

    entitlements: tuple[Copy, ...]
    namespaces: tuple[Copy, ...]
    objects: tuple[Copy, ...]
    missing: tuple[str, ...]  # objects that workloads refer to and that do not exist

    def all(self) -> tuple[Copy, ...]:
        return (*self.entitlements, *self.namespaces, *self.objects)


async def read_project(client: Client) -> ProjectCopies:
    """Read the objects to copy, without those that are being deleted."""
    workloads = [w for w in (await client.list_plain(WORKLOAD)).items if _is_kept(w)]
    copies, missing = [], []
    for kind, ref in _find_dependencies(workloads):
        try:
            copies.append(
                Copy(kind, without_server_fields(kind, await client.get_plain(kind, ref)))
            )
        except NotFound:
            missing.append(f"{kind.kind} {ref}")
    copies.extend(Copy(WORKLOAD, _workload(workload)) for workload in workloads)
    spaces = sorted({copy.ref.namespace for copy in copies})
    entitlements = (await client.list_plain(ENTITLEMENT)).items if workloads else []
    return ProjectCopies(
        tuple(
            Copy(ENTITLEMENT, without_server_fields(ENTITLEMENT, e))
            for e in entitlements
            if _is_kept(e)
        ),
        tuple(Copy(NAMESPACE, {**_head(NAMESPACE), "metadata": {"name": n}}) for n in spaces),
        tuple(copies),
        tuple(missing),
    )


def _find_dependencies(workloads: list[JsonObject]) -> Iterator[tuple[KindInfo[Any], Ref]]:
    """Yield each network and then each ConfigMap and Secret once, by namespace and name."""
    networks: set[Ref] = set()
    data: set[tuple[str, Ref]] = set()
    for workload in workloads:
        namespace = workload["metadata"]["namespace"]
        template = from_json(workload, Workload).spec.template
        for interface in template.spec.network_interfaces:
            network = interface.network
            networks.add(Ref(network.namespace or namespace, network.name))
        for source in sources(references(template)):
            data.add((source.kind, Ref(namespace, source.name)))
    yield from ((NETWORK, ref) for ref in sorted(networks))
    yield from ((_SOURCES[kind], ref) for kind, ref in sorted(data))


def without_server_fields(kind: KindInfo[Any], found: JsonObject) -> JsonObject:
    """Return the object without the fields that a server sets."""
    metadata = found["metadata"]
    kept: JsonObject = {"name": metadata["name"]}
    if metadata.get("namespace"):
        kept["namespace"] = metadata["namespace"]
    for name in _KEPT_META:
        own = {k: v for k, v in (metadata.get(name) or {}).items() if k not in _OF_A_CLIENT}
        if own:
            kept[name] = own
    content = {k: v for k, v in found.items() if k not in _OF_A_PLANE}
    return {**_head(kind), "metadata": kept, **content}


def _workload(found: JsonObject) -> JsonObject:
    shown = workload_manifest(found)
    metadata = {**shown["metadata"], "namespace": found["metadata"]["namespace"]}
    return {**shown, "metadata": metadata}


def _head(kind: KindInfo[Any]) -> JsonObject:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def _is_kept(found: JsonObject) -> bool:
    return not found["metadata"].get("deletionTimestamp")


# --- Copies on another plane: plan, write, read back
# Objects are written with server-side apply and a field manager of their own. Objects that are
# equal are not written, so an interrupted export can be repeated. A field of another manager that
# differs is a conflict, which only ``force`` overwrites.


MANAGER = "datumctl-export"
CREATE, CHANGE, KEEP, REFUSED = "create", "change", "exists", "refused"
_WHOLE = (
    "data",
    "binaryData",
    "stringData",
)  # maps that must be equal: the target may have no other entries
_ONLY_CREATED = (NAMESPACE, ENTITLEMENT)  # created if missing, never changed


@dataclass(frozen=True, slots=True)
class Step:
    copy: Copy
    action: str
    why: str = ""


async def plan_copy(client: Client, copy: Copy, *, force: bool) -> Step:
    """Return what a write would do, according to a dry run on the server."""
    found = await find_existing(client, copy)
    if found is not None and (copy.kind in _ONLY_CREATED or contains_fields(found, copy.manifest)):
        return Step(copy, KEEP)
    action = CREATE if found is None else CHANGE
    try:
        await _apply(client, copy, force=force, dry_run=True)
    except NotFound:
        return Step(copy, action, "checked after its namespace is created")
    except Conflict as error:
        return Step(copy, REFUSED, f"{error.message}; --force overwrites it")
    except ApiError as error:
        return Step(copy, REFUSED, error.message)
    return Step(copy, action)


async def write_copy(client: Client, copy: Copy, *, force: bool) -> str:
    """Write a copy if it differs, and return the action. Raise ApiError if it is rejected."""
    found = await find_existing(client, copy)
    if copy.kind in _ONLY_CREATED:
        if found is not None:
            return KEEP
        with suppress(AlreadyExists):
            await client.create_plain(copy.kind, copy.manifest)
        return CREATE
    if found is not None and contains_fields(found, copy.manifest):
        return KEEP
    await _apply(client, copy, force=force, dry_run=False)
    return CREATE if found is None else CHANGE


async def differences(client: Client, copy: Copy) -> str:
    """Return how the object on the target differs from the copy; empty if it does not."""
    found = await find_existing(client, copy)
    if found is None:
        return "is missing"
    if copy.kind in _ONLY_CREATED:
        return ""
    path = next(iter(_find_differences(found, copy.manifest, "")), "")
    return f"differs at {path}" if path else ""


async def find_existing(client: Client, copy: Copy) -> JsonObject | None:
    try:
        return await client.get_plain(copy.kind, copy.ref)
    except NotFound:
        return None


def contains_fields(found: JsonObject, wanted: JsonObject) -> bool:
    """Return True if the object contains every wanted field; the server may add further ones."""
    return not _find_differences(found, wanted, "")


def _find_differences(found: Any, wanted: Any, path: str) -> list[str]:
    """Return the paths that differ, without values, which may be secret."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        if path.lstrip(".") in _WHOLE and set(found) != set(wanted):
            return [path]
        return [
            where
            for key, value in wanted.items()
            for where in _find_differences(found.get(key), value, f"{path}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [where for i, (f, w) in pairs for where in _find_differences(f, w, f"{path}[{i}]")]
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


# --- moving


READY_S = 120
# The cities and networks of a new project appear some seconds after it is Ready.
SETTLE_S = 60.0
_AGAIN_S = 0.5

ReportCopy = Callable[[str, Copy, str], None]  # project, object, action


@dataclass(frozen=True, slots=True)
class Target:
    """``keeps_access``: the target decides requests of projects for access."""

    platform: Client | None
    plane_of: Callable[[str], Client]
    keeps_access: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """A project: the objects on the platform that define it, and its content."""

    project: str
    makers: tuple[Copy, ...]
    copies: ProjectCopies


async def plan_move(target: Target, move: Move, *, force: bool) -> list[Step]:
    steps = []
    if target.platform is not None:
        steps += [await plan_copy(target.platform, copy, force=force) for copy in move.makers]
        if not await _has_project(target.platform, move.project):
            why = "checked after its project is created"
            return [*steps, *(Step(copy, CREATE, why) for copy in move.copies.all())]
    plane = target.plane_of(move.project)
    return [*steps, *[await plan_copy(plane, c, force=force) for c in move.copies.all()]]


async def copy_project(target: Target, move: Move, report: ReportCopy, *, force: bool) -> None:
    """Write all objects of a project. Raise ApiError for the first one that is rejected."""
    fresh = False
    if target.platform is not None:
        fresh = not await _has_project(target.platform, move.project)
        for copy in move.makers:
            report(move.project, copy, await write_copy(target.platform, copy, force=force))
        await _wait_until_ready(target.platform, move.project)
    plane = target.plane_of(move.project)
    for copy in move.copies.entitlements:
        report(move.project, copy, await write_copy(plane, copy, force=force))
        await _wait_until_entitled(plane, move.project, copy)
    for copy in (*move.copies.namespaces, *move.copies.objects):

        async def write_again(copy: Copy = copy) -> str:
            return await write_copy(plane, copy, force=force)

        report(
            move.project, copy, await (_retry_while_new(write_again) if fresh else write_again())
        )


async def verify(target: Target, moves: Iterable[Move]) -> list[str]:
    """Return a sentence for each object that differs from its copy."""
    mismatches = []
    for move in moves:
        plane = target.plane_of(move.project)
        copies = [(plane, copy) for copy in move.copies.all()]
        if target.platform is not None:
            copies += [(target.platform, copy) for copy in move.makers]
        for client, copy in copies:
            if why := await differences(client, copy):
                mismatches.append(f"{copy} of project {move.project} {why}")
    return mismatches


async def _has_project(platform: Client, name: str) -> bool:
    try:
        await platform.get(PROJECT, Ref("", name))
    except NotFound:
        return False
    return True


async def _wait_until_ready(platform: Client, name: str) -> None:
    try:
        await platform.wait(
            PROJECT,
            Ref("", name),
            lambda found: found is not None and is_true(found.status.conditions, "Ready"),
            timeout_s=READY_S,
        )
    except TimeoutError:
        raise TimedOutError(
            f"Project {name} is not ready after {READY_S} s.",
            "Run the command again later: it continues where it stopped.",
        ) from None


async def _wait_until_entitled(plane: Client, project: str, copy: Copy) -> None:
    try:
        found = await plane.wait(
            ENTITLEMENT,
            copy.ref,
            lambda found: found is not None and found.status.phase not in ("", "Pending"),
            timeout_s=READY_S,
        )
    except TimeoutError:
        found = None
    if found is None or found.status.phase != "Active":
        phase = found.status.phase if found is not None else "Pending"
        raise PendingError(
            f"Project {project} has no access to {copy.ref.name} on the target yet ({phase}).",
            "Run the command again after the request is approved: it continues where it stopped.",
        )


async def _retry_while_new(write: Callable[[], Awaitable[str]]) -> str:
    """Retry while a new project is being set up; after ``SETTLE_S`` raise the last error."""
    deadline_s = asyncio.get_running_loop().time() + SETTLE_S
    while True:
        try:
            return await write()
        except (Invalid, Forbidden, NotFound):
            if asyncio.get_running_loop().time() > deadline_s:
                raise
        await asyncio.sleep(_AGAIN_S)
