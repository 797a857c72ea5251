"""Users and an operator, doing what the scenario says, as stubbornly as people are.

No answer means asking again; already done is done. What users want in the end is what they last
asked for: ``wanted`` is the truth that the world must converge to.

Carries out what ``composed_operations.py`` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from datum_compute.api import labels
from datum_compute.api.cellidentity import DRAINED
from datum_compute.api.cluster import NO_SCHEDULE
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Unreachable,
)
from datum_compute.api.kinds import (
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    KINDS,
    NAMESPACE,
    PROJECT,
    SECRET,
    SERVER,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import HUB, PLATFORM, PlaneName, project_plane
from datum_compute.api.timestamps import timestamp
from datum_compute.client.client import BACKGROUND, Client
from testkit.sim.actors.operators import Machines, carry_out_on_cells, carry_out_on_projects
from testkit.sim.actors.retry import AGAIN_S, until_gone
from testkit.sim.checks import data as data_checks
from testkit.sim.host import EPOCH_S
from testkit.sim.scenario.operations import (
    AllowFallback,
    ByOperator,
    ByUser,
    ChangeImage,
    ComposedOperation,
    CreatePoison,
    CreateWorkload,
    DeleteAll,
    DeleteNamespace,
    DeleteObject,
    DeleteWorkload,
    DrainCell,
    DropField,
    EditObject,
    FleetingNamespace,
    LetSleep,
    Move,
    MoveBack,
    OnCells,
    OnProjects,
    Operation,
    ReferToData,
    ReplaceData,
    RevokeProject,
    RollCarefully,
    Scale,
    Visit,
)
from testkit.sim.scenario.scenario import city_of

NAMESPACE_NAME = "default"
FLEETING = "fleeting"  # the workload in namespaces that do not last
_UNKNOWN = {"apiVersion": "example.com/v1", "kind": "Poison", "metadata": {"name": "poison"}}
_DATA: tuple[KindInfo[Any], ...] = (CONFIG_MAP, SECRET)
_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Wanted:
    image: str
    replicas: int
    cities: tuple[str, ...]
    data: bool = False  # whether it refers to some
    fallback: tuple[str, ...] = ()  # cities that may take the share of one that fails
    fallback_after_s: int = 120
    sleep: LetSleep | None = None
    rolled: RollCarefully | None = None


class People:
    def __init__(
        self,
        client: Callable[[PlaneName], Client],
        say: Callable[[str], None],
        planes: Any,
        machines: Machines | None = None,
    ) -> None:
        self.wanted: dict[tuple[str, str], Wanted] = {}
        # Planes and names that an operator had a hand in: not everything holds for those.
        self.tampered: dict[tuple[str, str], None] = {}
        self.revoked: dict[str, None] = {}  # projects that are gone, or on their way out
        self.newcomers: dict[str, None] = {}  # projects that came while the world ran
        self.serving: dict[str, str] = {}  # cells by their city, where cells join
        self.tokens = 0  # how many were made to join with
        # Whether the host of a plane is lost permanently, so that operators stop retrying.
        self.is_lost: Callable[[str], bool] = lambda _plane: False
        self._machines = machines
        self.clients = {plane: client(plane) for plane in planes}
        self._client = client
        self.say = say

    async def act(self, operations: Iterable[Operation]) -> None:
        """All of them, each in its time; those of one workload one after the other."""
        lanes: dict[tuple[str, str], list[Operation]] = {}
        for number, operation in enumerate(operations):
            if isinstance(operation, ByUser):
                lanes.setdefault((operation.project, operation.name), []).append(operation)
            elif isinstance(operation, Visit):
                continue  # visitors are others: visitors.py
            elif isinstance(operation, OnProjects):
                lanes.setdefault(("project", operation.project), []).append(operation)
            elif isinstance(operation, OnCells):
                lanes.setdefault(("city", city_of(operation.cell)), []).append(operation)
            else:
                lanes[("operator", str(number))] = [operation]
        async with asyncio.TaskGroup() as group:
            for lane in lanes.values():
                group.create_task(self._act_in_order(lane))

    async def delete_everything(self) -> None:
        for project, name in sorted(self.wanted):
            await self._by_user(DeleteWorkload(0.0, project, name))

    async def _act_in_order(self, lane: list[Operation]) -> None:
        loop = asyncio.get_running_loop()
        for operation in lane:
            await asyncio.sleep(max(0.0, operation.at_s - loop.time()))
            if isinstance(operation, ByUser):
                await self._by_user(operation)
            elif isinstance(operation, FleetingNamespace):
                await self._lend(operation)
            elif isinstance(operation, OnProjects):
                await carry_out_on_projects(self, operation)
            elif isinstance(operation, OnCells):
                await carry_out_on_cells(self, operation)
            elif not isinstance(operation, Visit):
                await self._by_operator(operation)

    # --- users

    async def _by_user(self, operation: ByUser) -> None:
        key = (operation.project, operation.name)
        wanted = self.wanted.get(key)
        if isinstance(operation, CreateWorkload):
            if wanted is None and operation.project not in self.revoked:
                self.wanted[key] = Wanted(operation.image, operation.replicas, operation.cities)
                self.say(f"create {operation.name} in {operation.project}: {self.wanted[key]}")
                await self._create(key, self.wanted[key])
            return
        if isinstance(operation, ReplaceData):
            await self._replace_data(operation)
            return
        if wanted is None:
            return
        if isinstance(operation, DeleteWorkload):
            self.say(f"delete {operation.name} in {operation.project}")
            del self.wanted[key]
            ref, policy = Ref(NAMESPACE_NAME, operation.name), _policy(operation.orphan)
            user = self._user(operation.project)
            await self.insist(lambda: user.delete(WORKLOAD, ref, policy=policy))
            return
        if isinstance(operation, MoveBack):
            await self._move_back(key)
            return
        self.wanted[key] = _changed(wanted, operation)
        self.say(f"change {operation.name} in {operation.project}: {self.wanted[key]}")
        await self._change(key, self.wanted[key])
        if isinstance(operation, ReferToData):
            await asyncio.sleep(operation.late_s)
            await self._put_data(operation.project, operation.number)

    async def _replace_data(self, operation: ReplaceData) -> None:
        user, ref = self._user(operation.project), Ref(NAMESPACE_NAME, data_checks.NAME)
        self.say(f"the data of {operation.project} is replaced")
        for kind in _DATA:
            await self.insist(partial(user.delete, kind, ref))
        await asyncio.sleep(operation.away_s)
        await self._put_data(operation.project, operation.number)

    async def _put_data(self, project: str, number: int) -> None:
        user, ref = self._user(project), Ref(NAMESPACE_NAME, data_checks.NAME)
        metadata = {"name": ref.name, "namespace": ref.namespace}
        for kind in _DATA:
            content = data_checks.data_content(kind, project, number)
            head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
            await self.insist(partial(user.create_plain, kind, {**head, **content}))
            await self.insist(partial(user.patch_plain, kind, ref, content))

    async def _create(self, key: tuple[str, str], wanted: Wanted) -> None:
        """An earlier one of the name may still be leaving: then again, until it is ours."""
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        while key[0] not in self.revoked:
            try:
                await user.create_plain(WORKLOAD, manifest(key, wanted))
            except AlreadyExists:
                present = await self._look(user, ref)
                if present is not None and not present.is_terminating:
                    return
                await asyncio.sleep(0.05)
            except (ApiError, Unreachable):
                await asyncio.sleep(AGAIN_S)
            else:
                return

    async def _change(self, key: tuple[str, str], wanted: Wanted) -> None:
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        spec = manifest(key, wanted)["spec"]
        await self.insist(lambda: user.patch(WORKLOAD, ref, {"spec": spec}))

    async def _move_back(self, key: tuple[str, str]) -> None:
        """As of the time that the project itself has: it may differ from everybody else's."""
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        self.say(f"move {key[1]} in {key[0]} back")
        now = timestamp(EPOCH_S + asyncio.get_running_loop().time())
        patch = {"metadata": {"annotations": {labels.RETURNED_AT: now}}}
        await self.insist(lambda: user.patch(WORKLOAD, ref, patch))

    async def _lend(self, operation: FleetingNamespace) -> None:
        user, ref = self._user(operation.project), Ref("", operation.name)
        self.say(f"create namespace {operation.name} in {operation.project}")
        about = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.kind}
        namespace = {**about, "metadata": {"name": operation.name}}
        await self.insist(lambda: user.create_plain(NAMESPACE, namespace))
        wanted = Wanted("fleeting:1", 1, operation.cities)
        workload = manifest((operation.project, FLEETING), wanted)
        workload["metadata"]["namespace"] = operation.name
        await self.insist(lambda: user.create_plain(WORKLOAD, workload))
        await asyncio.sleep(operation.for_s)
        self.say(f"delete namespace {operation.name} in {operation.project}")
        await self.insist(lambda: user.delete(NAMESPACE, ref))

    async def _look(self, user: Client, ref: Ref) -> Any:
        try:
            return await user.get(WORKLOAD, ref)
        except (ApiError, Unreachable):
            return None

    async def insist(self, ask: Callable[[], Awaitable[object]], plane: str = "") -> None:
        """Repeat a request until it is answered. With ``plane``, until its host is lost at most."""
        while not (plane and self.is_lost(plane)):
            try:
                await ask()
            except (AlreadyExists, NotFound):
                return
            except (Invalid, BadRequest, Forbidden, MethodNotAllowed) as refused:
                self.say(f"refused: {refused}")
                return
            except (ApiError, Unreachable):
                await asyncio.sleep(AGAIN_S)
            else:
                return

    @property
    def machines(self) -> Machines:
        assert self._machines is not None, "cells come and go only where each is a process"
        return self._machines

    def client(self, plane: PlaneName) -> Client:
        return self.clients.get(plane) or self.clients.setdefault(plane, self._client(plane))

    def workload(
        self, key: tuple[str, str], replicas: int, cities: tuple[str, ...]
    ) -> tuple[Wanted, JsonObject]:
        """A new one: what is wanted, and the object that says so."""
        wanted = Wanted(f"{key[1]}:1", replicas, cities)
        return wanted, manifest(key, wanted)

    def _user(self, project: str) -> Client:
        return self.client(project_plane(project))

    # --- the operator

    async def _by_operator(self, operation: ByOperator) -> None:
        if isinstance(operation, ComposedOperation):
            await carry_out_composed(self, operation)
            return
        match operation:
            case DeleteObject(_, plane, resource, pick, orphan):
                kind = _BY_RESOURCE[resource]
                await self._delete(plane, kind, pick, prefix="", orphan=orphan)
            case DeleteNamespace(_, plane, pick):
                await self._delete(plane, NAMESPACE, pick, prefix="ns-")
            case EditObject():
                await self._edit(operation)
            case CreatePoison(_, plane, resource):
                await self._poison(plane, _BY_RESOURCE[resource])
            case _:
                assert_never(operation)

    async def _delete(
        self, plane: str, kind: KindInfo[Any], pick: int, prefix: str, *, orphan: bool = False
    ) -> None:
        found = await self.picked(plane, kind, pick, prefix)
        if found is not None:
            ref = _ref(found)
            self.tamper(plane, ref)
            self.say(f"operator deletes {kind.kind} {ref} on {plane}")
            client, policy = self.clients[PlaneName(plane)], _policy(orphan)
            await self.insist(lambda: client.delete(kind, ref, policy=policy), plane)

    async def _edit(self, operation: EditObject) -> None:
        kind = _BY_RESOURCE[operation.resource]
        found = await self.picked(operation.plane, kind, operation.pick, "")
        patch = _edit_of(operation, kind, found) if found is not None else None
        if found is not None and patch is not None:
            ref = _ref(found)
            self.tamper(operation.plane, ref)
            self.say(f"operator edits {kind.kind} {ref} on {operation.plane}: {patch}")
            client = self.clients[PlaneName(operation.plane)]
            await self.insist(lambda: client.patch_plain(kind, ref, patch), operation.plane)

    async def _poison(self, plane: str, kind: KindInfo[Any]) -> None:
        """A copy of an object of the kind with a name and labels that belong to nothing."""
        found = await self.picked(plane, kind, 0, "")
        if found is None:
            return
        metadata = found["metadata"]
        odd = {
            **found,
            "metadata": {
                "name": "poison",
                **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
                "labels": dict.fromkeys(metadata.get("labels", {}), "poison"),
                "annotations": dict.fromkeys(metadata.get("annotations", {}), "poison"),
            },
        }
        if kind is WORK:
            odd["spec"] = {"workload": {"manifests": [_UNKNOWN]}}
        self.tamper(plane, Ref(metadata.get("namespace", ""), "poison"))
        self.say(f"operator creates {kind.kind} poison on {plane}")
        client = self.clients[PlaneName(plane)]
        await self.insist(lambda: client.create_plain(kind, odd), plane)

    async def picked(
        self, plane: str, kind: KindInfo[Any], pick: int, prefix: str
    ) -> JsonObject | None:
        try:
            listed = (await self.clients[PlaneName(plane)].list_plain(kind)).items
        except (ApiError, Unreachable):
            return None
        items = [item for item in listed if item["metadata"]["name"].startswith(prefix)]
        items.sort(key=_ref)
        return items[pick % len(items)] if items else None

    def tamper(self, plane: str, ref: Ref) -> None:
        self.tampered[(plane, ref.name)] = None


def manifest(key: tuple[str, str], wanted: Wanted) -> JsonObject:
    """The environment holds a canary: a value of one project that no other may ever see."""
    project, name = key
    env: list[JsonObject] = [{"name": "CANARY", "value": canary(project)}]
    if wanted.data:
        taken = data_checks.data_fields().items()
        env += [{"name": name, "valueFrom": source} for name, source in taken]
    container: JsonObject = {"name": "app", "image": wanted.image, "env": env}
    asleep: JsonObject = {}
    if wanted.sleep is not None:
        container["ports"] = [{"name": "http", "port": 80}]
        idle_after = f"{wanted.sleep.idle_ms}ms"
        asleep = {"scaleToZero": {"idleAfter": idle_after, "mode": wanted.sleep.mode}}
    placement: JsonObject = {
        "name": "default",
        "cityCodes": list(wanted.cities),
        "scaleSettings": {"minReplicas": wanted.replicas},
    }
    if wanted.rolled is not None:
        placement["scaleSettings"] |= {
            "minReadySeconds": wanted.rolled.min_ready_s,
            "maxUnavailable": wanted.rolled.max_unavailable,
        }
    if fallback := [city for city in wanted.fallback if city not in wanted.cities]:
        placement["fallbackCityCodes"] = fallback
        placement["fallbackAfterSeconds"] = wanted.fallback_after_s
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": name, "namespace": NAMESPACE_NAME},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}, **asleep}},
            "placements": [placement],
        },
    }


def _policy(orphan: bool) -> str:
    return "Orphan" if orphan else BACKGROUND


def canary(project: str) -> str:
    return f"canary-of-{project}"


def _changed(
    wanted: Wanted,
    operation: ChangeImage | Scale | Move | AllowFallback | ReferToData | LetSleep | RollCarefully,
) -> Wanted:
    match operation:
        case RollCarefully():
            return replace(wanted, rolled=operation)
        case LetSleep(image=image):
            return replace(wanted, image=image, sleep=operation)
        case AllowFallback(cities=cities, after_s=after_s):
            return replace(wanted, fallback=cities, fallback_after_s=after_s)
        case ReferToData(image=image):
            return replace(wanted, image=image, data=True)
        case ChangeImage(image=image):
            return replace(wanted, image=image)
        case Scale(replicas=replicas):
            return replace(wanted, replicas=replicas)
        case Move(cities=cities):
            return replace(wanted, cities=cities)
        case _:
            assert_never(operation)


def _ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _edit_of(operation: EditObject, kind: KindInfo[Any], found: JsonObject) -> JsonObject | None:
    metadata, pick = found["metadata"], operation.pick
    match operation.part:
        case "label" | "annotation":
            entries = sorted(metadata.get(f"{operation.part}s", {}))
            if not entries:
                return None
            value = None if pick % 2 else "junk"
            return {"metadata": {f"{operation.part}s": {entries[pick % len(entries)]: value}}}
        case "owner":
            owned = "ownerReferences" in metadata
            return {"metadata": {"ownerReferences": None}} if owned else None
        case _:
            return _spec_edit(kind)


def _spec_edit(kind: KindInfo[Any]) -> JsonObject | None:
    evil = [{"name": "app", "image": "evil:1"}]
    runtime = {"runtime": {"sandbox": {"containers": evil}}}
    if kind is DEPLOYMENT:
        return {"spec": {"scaleSettings": {"minReplicas": 7}, "template": {"spec": runtime}}}
    if kind is INSTANCE:
        return {"spec": runtime}
    if kind is SERVER:
        return {"spec": {"containers": evil}}
    return {"spec": {"clusters": []}} if kind.kind == "ResourceBinding" else None


async def carry_out_composed(people: People, operation: ComposedOperation) -> None:
    match operation:
        case DeleteAll(_, plane, resource, prefix):
            await _delete_all(people, plane, resource, prefix)
        case DropField():
            await _drop_field(people, operation)
        case RevokeProject(_, project):
            await _revoke(people, project)
        case DrainCell(_, cell, for_s):
            await _drain(people, cell, for_s)
        case _:
            assert_never(operation)


async def _delete_all(people: People, plane: str, resource: str, prefix: str) -> None:
    kind, client = _BY_RESOURCE[resource], people.clients[PlaneName(plane)]
    try:
        listed = (await client.list_plain(kind)).items
    except (ApiError, Unreachable):
        return
    found = [ref for ref in map(_ref, listed) if ref.name.startswith(prefix)]
    people.say(f"operator deletes {len(found)} {kind.plural} {prefix}* on {plane}")
    for ref in sorted(found):
        people.tamper(plane, ref)

    async def delete(ref: Ref) -> None:
        await people.insist(lambda: client.delete(kind, ref))

    async with asyncio.TaskGroup() as group:
        for ref in sorted(found):
            group.create_task(delete(ref))


async def _drop_field(people: People, operation: DropField) -> None:
    kind = _BY_RESOURCE[operation.resource]
    found = await people.picked(operation.plane, kind, operation.pick, "")
    fields = sorted((found or {}).get("spec") or {})
    if found is None or not fields:
        return
    ref, name = _ref(found), fields[operation.pick % len(fields)]
    people.tamper(operation.plane, ref)
    people.say(f"an old writer drops spec.{name} of {kind.kind} {ref} on {operation.plane}")
    client = people.clients[PlaneName(operation.plane)]
    await people.insist(lambda: client.patch_plain(kind, ref, {"spec": {name: None}}))


async def _revoke(people: People, project: str) -> None:
    people.say(f"operator revokes project {project}")
    people.revoked[project] = None
    for key in [key for key in people.wanted if key[0] == project]:
        del people.wanted[key]
    platform, ref = people.clients[PLATFORM], Ref("", project)
    await people.insist(lambda: platform.delete(PROJECT, ref))
    await until_gone(platform, PROJECT, ref)
    people.say(f"project {project} is gone")


async def _drain(people: People, cell: str, for_s: float) -> None:
    """Twice the same of a cell: the later end counts, as it would for people."""
    client, ref = people.clients[HUB], Ref("", cell)
    for taints, then in (([{"key": DRAINED, "effect": NO_SCHEDULE}], "drains"), ([], "opens")):
        people.say(f"operator {then} cell {cell}")
        patch: JsonObject = {"spec": {"taints": taints}}
        await people.insist(lambda patch=patch: client.patch_plain(CLUSTER, ref, patch))  # type: ignore[misc]
        if taints:
            await asyncio.sleep(for_s)
