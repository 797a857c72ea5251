"""Users and an operator who perform the operations of a scenario.

They retry until a request gets a response, and accept that it was already applied. ``desired``
records the last request of each user: the state that the world must converge to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

from datum_compute.api import labels
from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
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
from datum_compute.api.karmada import NO_SCHEDULE
from datum_compute.api.kinds import (
    CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    KINDS,
    NAMESPACE,
    PROJECT,
    REVISION,
    SECRET,
    SERVER,
    WORK,
    WORKLOAD,
)
from datum_compute.api.membership import DRAINED
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.meta.timestamps import micro_timestamp, timestamp
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, project_plane
from datum_compute.client.client import BACKGROUND, Client
from datum_compute.planning.workload import history
from datum_compute.planning.workload.revisions import own_revisions
from testkit.sim.actors.operators import CellHosts, perform_on_cells, perform_on_projects
from testkit.sim.actors.retry import RETRY_S, wait_until_deleted
from testkit.sim.checks import data as data_checks
from testkit.sim.host import EPOCH_S
from testkit.sim.scenario.operations import (
    AllowFallback,
    AllowSurge,
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
    MoveBack,
    MoveWorkload,
    OnCells,
    OnProjects,
    Operation,
    OrderCities,
    ReferToData,
    ReplaceData,
    RestartCity,
    RestartWorkload,
    RevokeProject,
    RollCarefully,
    ScaleWorkload,
    StartWorkload,
    StopWorkload,
    UndoRollout,
    Visit,
)
from testkit.sim.scenario.scenario import city_of

NAMESPACE_NAME = "default"
FLEETING = "fleeting"  # the workload in short-lived namespaces
_UNKNOWN = {"apiVersion": "example.com/v1", "kind": "Poison", "metadata": {"name": "poison"}}
_DATA: tuple[KindInfo[Any], ...] = (CONFIG_MAP, SECRET)
_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class DesiredWorkload:
    image: str
    replicas: int
    cities: tuple[str, ...]
    data: bool = False  # whether it references ConfigMaps and Secrets
    fallback: tuple[str, ...] = ()  # cities that may replace a failed one
    fallback_after_s: int = 120
    sleep: LetSleep | None = None
    rolled: RollCarefully | None = None
    ordered: OrderCities | None = None
    stopped: bool | None = None  # None if it was never stopped
    surge: AllowSurge | None = None
    placement: str = "default"
    restarts: tuple[tuple[str, str], ...] = ()  # city and time of its last restart
    restarted_at: str | None = None  # None if it was never restarted, empty after an undo of that


# An operation that depends on access: project, operation, and whether it had an effect.
Effect = tuple[str, str, bool]


class Users:
    def __init__(
        self,
        client: Callable[[PlaneName], Client],
        log: Callable[[str], None],
        planes: Any,
        machines: CellHosts | None = None,
    ) -> None:
        self.desired: dict[tuple[str, str], DesiredWorkload] = {}
        # Objects that an operator changed, as (plane, name): some checks do not apply to them.
        self.tampered: dict[tuple[str, str], None] = {}
        self.revoked: dict[str, None] = {}  # projects that are deleted or being deleted
        self.new_projects: dict[str, None] = {}  # projects that were created while the world ran
        self.serving: dict[str, str] = {}  # cell by city, where cells join
        self.returned: set[str] = set()  # cells that were forced to leave and kept their store
        self.tokens = 0  # number of join tokens that were created
        self.effects: list[Effect] = []
        self.suspended: set[str] = set()  # projects that are never resumed
        # Returns True if the host of a plane is lost permanently; operators then stop retrying.
        self.is_lost: Callable[[str], bool] = lambda _plane: False
        self._machines = machines
        self.clients = {plane: client(plane) for plane in planes}
        self._client = client
        self.log = log

    async def perform_all(self, operations: Iterable[Operation]) -> None:
        """Perform all operations at their times. Operations on one workload run one after the
        other."""
        sequences: dict[tuple[str, str], list[Operation]] = {}
        for number, operation in enumerate(operations):
            if isinstance(operation, ByUser):
                sequences.setdefault((operation.project, operation.name), []).append(operation)
            elif isinstance(operation, Visit):
                continue  # performed by visitors.py
            elif isinstance(operation, OnProjects):
                sequences.setdefault(("project", operation.project), []).append(operation)
            elif isinstance(operation, OnCells):
                sequences.setdefault(("city", city_of(operation.cell)), []).append(operation)
            else:
                sequences[("operator", str(number))] = [operation]
        async with asyncio.TaskGroup() as group:
            for sequence in sequences.values():
                group.create_task(self._perform_in_order(sequence))

    async def delete_everything(self) -> None:
        for project, name in sorted(self.desired):
            await self._by_user(DeleteWorkload(0.0, project, name))

    async def _perform_in_order(self, sequence: list[Operation]) -> None:
        loop = asyncio.get_running_loop()
        for operation in sequence:
            await asyncio.sleep(max(0.0, operation.at_s - loop.time()))
            if isinstance(operation, ByUser):
                await self._by_user(operation)
            elif isinstance(operation, FleetingNamespace):
                await self._request_fallback_city(operation)
            elif isinstance(operation, OnProjects):
                await perform_on_projects(self, operation)
            elif isinstance(operation, OnCells):
                await perform_on_cells(self, operation)
            elif not isinstance(operation, Visit):
                await self._perform_operator_operation(operation)

    # --- users

    async def _by_user(self, operation: ByUser) -> None:
        key = (operation.project, operation.name)
        desired = self.desired.get(key)
        if isinstance(operation, CreateWorkload):
            if desired is None and operation.project not in self.revoked:
                self.desired[key] = DesiredWorkload(
                    operation.image,
                    operation.replicas,
                    operation.cities,
                    placement=operation.placement,
                )
                self.log(f"create {operation.name} in {operation.project}: {self.desired[key]}")
                await self._create(key, self.desired[key])
            return
        if isinstance(operation, ReplaceData):
            await self._replace_data(operation)
            return
        if desired is None:
            return
        if isinstance(operation, DeleteWorkload):
            self.log(f"delete {operation.name} in {operation.project}")
            del self.desired[key]
            ref, policy = Ref(NAMESPACE_NAME, operation.name), _policy(operation.orphan)
            user = self._user(operation.project)
            await self.retry_until_done(lambda: user.delete(WORKLOAD, ref, policy=policy))
            return
        if isinstance(operation, MoveBack):
            await self._move_back(key)
            return
        if isinstance(operation, UndoRollout):
            await self._undo(key, desired)
            return
        if isinstance(operation, RestartCity):
            self.desired[key] = _with_restart(desired, operation.city)
        else:
            self.desired[key] = _with_change(desired, operation)
        self.log(f"change {operation.name} in {operation.project}: {self.desired[key]}")
        await self._change(key, self.desired[key])
        if isinstance(operation, ReferToData):
            await asyncio.sleep(operation.late_s)
            await self._put_data(operation.project, operation.number)

    async def _replace_data(self, operation: ReplaceData) -> None:
        user, ref = self._user(operation.project), Ref(NAMESPACE_NAME, data_checks.NAME)
        self.log(f"the data of {operation.project} are replaced")
        for kind in _DATA:
            await self.retry_until_done(partial(user.delete, kind, ref))
        await asyncio.sleep(operation.away_s)
        await self._put_data(operation.project, operation.number)

    async def _put_data(self, project: str, number: int) -> None:
        user, ref = self._user(project), Ref(NAMESPACE_NAME, data_checks.NAME)
        metadata = {"name": ref.name, "namespace": ref.namespace}
        for kind in _DATA:
            content = data_checks.data_content(kind, project, number)
            head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
            await self.retry_until_done(partial(user.create_plain, kind, {**head, **content}))
            await self.retry_until_done(partial(user.patch_plain, kind, ref, content))

    async def _create(self, key: tuple[str, str], desired: DesiredWorkload) -> None:
        """Create the workload. Retry while an earlier object of the name is terminating.

        A project that is suspended accepts no new workload.
        """
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        while key[0] not in self.revoked:
            try:
                await user.create_plain(WORKLOAD, manifest(key, desired))
            except AlreadyExists:
                present = await self._update_seen_state(user, ref)
                if present is not None and not present.is_terminating:
                    return
                await asyncio.sleep(0.05)
            except (ApiError, Unreachable) as error:
                if isinstance(error, Invalid) and key[0] in self.suspended:
                    self.log(f"{key[0]} is suspended: {key[1]} is not created")
                    self.desired.pop(key, None)
                    self.effects.append((key[0], f"create {key[1]}", False))
                    return
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _change(self, key: tuple[str, str], desired: DesiredWorkload) -> None:
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        spec = manifest(key, desired)["spec"]
        await self.retry_until_done(lambda: user.patch(WORKLOAD, ref, {"spec": spec}))

    async def _move_back(self, key: tuple[str, str]) -> None:
        """Request the move with a time of the project's server, whose clock may differ."""
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        self.log(f"move {key[1]} in {key[0]} back")
        now = timestamp(EPOCH_S + asyncio.get_running_loop().time())
        patch = {"metadata": {"annotations": {labels.RETURNED_AT: now}}}
        await self.retry_until_done(lambda: user.patch(WORKLOAD, ref, patch))

    async def _undo(self, key: tuple[str, str], desired: DesiredWorkload) -> None:
        """Restore what the server has recorded, with the annotation of the command line."""
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        seen: tuple[Workload, list[WorkloadRevision]] | None = None

        async def read() -> None:
            nonlocal seen
            workload = await user.get(WORKLOAD, ref)
            listed = (await user.list(REVISION, NAMESPACE_NAME)).items
            seen = workload, own_revisions(workload, listed)

        await self.retry_until_done(read)
        if seen is None:
            return
        workload, own = seen
        target = history.find_undo_target(workload, own, None)
        if target is None:
            self.log(f"nothing to undo for {key[1]} in {key[0]}")
            return
        template = target.spec.template
        self.desired[key] = replace(
            desired,
            image=next(iter(history.images_of(template).values())),
            cities=tuple(target.spec.placements[0].city_codes),
            restarted_at=template.metadata.annotations.get(labels.RESTARTED_AT, ""),
        )
        self.log(f"undo {key[1]} in {key[0]}, to revision {target.spec.revision}")
        rollback = history.RequestedRollback(target.spec.revision, own[-1].spec.revision)
        patch = {
            "metadata": {"annotations": {labels.ROLLBACK: rollback.annotation}},
            "spec": manifest(key, self.desired[key])["spec"],
        }
        await self.retry_until_done(lambda: user.patch(WORKLOAD, ref, patch))

    async def _request_fallback_city(self, operation: FleetingNamespace) -> None:
        user, ref = self._user(operation.project), Ref("", operation.name)
        self.log(f"create namespace {operation.name} in {operation.project}")
        about = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.kind}
        namespace = {**about, "metadata": {"name": operation.name}}
        await self.retry_until_done(lambda: user.create_plain(NAMESPACE, namespace))
        desired = DesiredWorkload("fleeting:1", 1, operation.cities)
        workload = manifest((operation.project, FLEETING), desired)
        workload["metadata"]["namespace"] = operation.name
        await self.retry_until_done(lambda: user.create_plain(WORKLOAD, workload))
        await asyncio.sleep(operation.for_s)
        self.log(f"delete namespace {operation.name} in {operation.project}")
        await self.retry_until_done(lambda: user.delete(NAMESPACE, ref))

    async def _update_seen_state(self, user: Client, ref: Ref) -> Any:
        try:
            return await user.get(WORKLOAD, ref)
        except (ApiError, Unreachable):
            return None

    async def retry_until_done(
        self, send: Callable[[], Awaitable[object]], plane: str = ""
    ) -> None:
        """Repeat a request until it gets a response. With ``plane``, stop when its host is lost."""
        while not (plane and self.is_lost(plane)):
            try:
                await send()
            except (AlreadyExists, NotFound):
                return
            except (Invalid, BadRequest, Forbidden, MethodNotAllowed) as refused:
                self.log(f"refused: {refused}")
                return
            except (ApiError, Unreachable):
                await asyncio.sleep(RETRY_S)
            else:
                return

    @property
    def machines(self) -> CellHosts:
        assert self._machines is not None, "cells join and leave only if each is a process"
        return self._machines

    def client(self, plane: PlaneName) -> Client:
        return self.clients.get(plane) or self.clients.setdefault(plane, self._client(plane))

    def workload(
        self, key: tuple[str, str], replicas: int, cities: tuple[str, ...]
    ) -> tuple[DesiredWorkload, JsonObject]:
        """Return a new desired workload and its object."""
        desired = DesiredWorkload(f"{key[1]}:1", replicas, cities)
        return desired, manifest(key, desired)

    def _user(self, project: str) -> Client:
        return self.client(project_plane(project))

    # --- the operator

    async def _perform_operator_operation(self, operation: ByOperator) -> None:
        if isinstance(operation, ComposedOperation):
            await perform_composed(self, operation)
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
                await self._create_poison(plane, _BY_RESOURCE[resource])
            case _:
                assert_never(operation)

    async def _delete(
        self, plane: str, kind: KindInfo[Any], pick: int, prefix: str, *, orphan: bool = False
    ) -> None:
        found = await self.pick_object(plane, kind, pick, prefix)
        if found is not None:
            ref = _ref(found)
            self.tamper(plane, ref)
            self.log(f"operator deletes {kind.kind} {ref} on {plane}")
            client, policy = self.clients[PlaneName(plane)], _policy(orphan)
            await self.retry_until_done(lambda: client.delete(kind, ref, policy=policy), plane)

    async def _edit(self, operation: EditObject) -> None:
        kind = _BY_RESOURCE[operation.resource]
        found = await self.pick_object(operation.plane, kind, operation.pick, "")
        patch = _edit_of(operation, kind, found) if found is not None else None
        if found is not None and patch is not None:
            ref = _ref(found)
            self.tamper(operation.plane, ref)
            self.log(f"operator edits {kind.kind} {ref} on {operation.plane}: {patch}")
            client = self.clients[PlaneName(operation.plane)]
            await self.retry_until_done(
                lambda: client.patch_plain(kind, ref, patch), operation.plane
            )

    async def _create_poison(self, plane: str, kind: KindInfo[Any]) -> None:
        """Create an object of the kind whose name and labels match no other object."""
        found = await self.pick_object(plane, kind, 0, "")
        if found is None:
            return
        metadata = found["metadata"]
        malformed = {
            **found,
            "metadata": {
                "name": "poison",
                **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
                "labels": dict.fromkeys(metadata.get("labels", {}), "poison"),
                "annotations": dict.fromkeys(metadata.get("annotations", {}), "poison"),
            },
        }
        if kind is WORK:
            malformed["spec"] = {"workload": {"manifests": [_UNKNOWN]}}
        self.tamper(plane, Ref(metadata.get("namespace", ""), "poison"))
        self.log(f"operator creates {kind.kind} poison on {plane}")
        client = self.clients[PlaneName(plane)]
        await self.retry_until_done(lambda: client.create_plain(kind, malformed), plane)

    async def pick_object(
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


def manifest(key: tuple[str, str], desired: DesiredWorkload) -> JsonObject:
    """Return the object. Its environment contains a canary: a value that must not occur on planes
    of other projects."""
    project, name = key
    env: list[JsonObject] = [{"name": "CANARY", "value": canary(project)}]
    if desired.data:
        fields = data_checks.data_fields().items()
        env += [{"name": name, "valueFrom": source} for name, source in fields]
    container: JsonObject = {"name": "app", "image": desired.image, "env": env}
    scale_to_zero: JsonObject = {}
    if desired.sleep is not None:
        container["ports"] = [{"name": "http", "port": 80}]
        idle_after = f"{desired.sleep.idle_ms}ms"
        scale_to_zero = {"scaleToZero": {"idleAfter": idle_after, "mode": desired.sleep.mode}}
    placement: JsonObject = {
        "name": desired.placement,
        "cityCodes": list(desired.cities),
        "scaleSettings": {"minReplicas": desired.replicas},
    }
    if desired.rolled is not None:
        placement["scaleSettings"] |= {
            "minReadySeconds": desired.rolled.min_ready_s,
            "maxUnavailable": desired.rolled.max_unavailable,
        }
    rollout: JsonObject = {}
    if desired.ordered is not None:
        placement["scaleSettings"]["progressDeadlineSeconds"] = desired.ordered.deadline_s
        policy = {"cityOrder": desired.ordered.order, "onFailure": desired.ordered.on_failure}
        rollout = {"rollout": policy, "paused": desired.ordered.paused}
    if desired.surge is not None:
        limits = {
            "maxSurge": desired.surge.max_surge,
            "maxUnavailable": desired.surge.max_unavailable,
            "instanceManagementPolicy": desired.surge.policy,
        }
        placement["scaleSettings"] |= {n: limit for n, limit in limits.items() if limit is not None}
    restarts = [{"cityCode": city, "at": restarted_at} for city, restarted_at in desired.restarts]
    if fallback := [city for city in desired.fallback if city not in desired.cities]:
        placement["fallbackCityCodes"] = fallback
        placement["fallbackAfterSeconds"] = desired.fallback_after_s
    template: JsonObject = {
        "spec": {"runtime": {"sandbox": {"containers": [container]}}, **scale_to_zero}
    }
    if desired.restarted_at is not None:
        marks = {labels.RESTARTED_AT: desired.restarted_at or None}  # None removes it
        template["metadata"] = {"annotations": marks}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": name, "namespace": NAMESPACE_NAME},
        "spec": {
            "template": template,
            "placements": [placement],
            **({"restarts": restarts} if restarts else {}),
            **rollout,
            **({} if desired.stopped is None else {"stopped": desired.stopped}),
        },
    }


def _policy(orphan: bool) -> str:
    return "Orphan" if orphan else BACKGROUND


def canary(project: str) -> str:
    return f"canary-of-{project}"


def _with_restart(desired: DesiredWorkload, city: str) -> DesiredWorkload:
    """Record the restart and drop those of cities that the workload no longer lists, as the CLI
    does."""
    if city not in desired.cities:
        return desired
    now = micro_timestamp(EPOCH_S + asyncio.get_running_loop().time())
    others = [entry for entry in desired.restarts if entry[0] in desired.cities]
    return replace(
        desired, restarts=(*(entry for entry in others if entry[0] != city), (city, now))
    )


def _with_change(
    desired: DesiredWorkload,
    operation: ChangeImage
    | ScaleWorkload
    | MoveWorkload
    | AllowFallback
    | ReferToData
    | LetSleep
    | RollCarefully
    | AllowSurge
    | OrderCities
    | StopWorkload
    | StartWorkload
    | RestartWorkload,
) -> DesiredWorkload:
    match operation:
        case RestartWorkload(at_s=at_s):
            return replace(desired, restarted_at=str(at_s))
        case StopWorkload():
            return replace(desired, stopped=True)
        case StartWorkload():
            return replace(desired, stopped=False)
        case RollCarefully():
            return replace(desired, rolled=operation)
        case OrderCities():
            return replace(desired, ordered=operation)
        case AllowSurge():
            return replace(desired, surge=operation)
        case LetSleep(image=image):
            return replace(desired, image=image, sleep=operation)
        case AllowFallback(cities=cities, after_s=after_s):
            return replace(desired, fallback=cities, fallback_after_s=after_s)
        case ReferToData(image=image):
            return replace(desired, image=image, data=True)
        case ChangeImage(image=image):
            return replace(desired, image=image)
        case ScaleWorkload(replicas=replicas):
            return replace(desired, replicas=replicas)
        case MoveWorkload(cities=cities):
            return replace(desired, cities=cities)
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


async def perform_composed(users: Users, operation: ComposedOperation) -> None:
    match operation:
        case DeleteAll(_, plane, resource, prefix):
            await _delete_all(users, plane, resource, prefix)
        case DropField():
            await _drop_field(users, operation)
        case RevokeProject(_, project):
            await _revoke(users, project)
        case DrainCell(_, cell, for_s):
            await _drain(users, cell, for_s)
        case _:
            assert_never(operation)


async def _delete_all(users: Users, plane: str, resource: str, prefix: str) -> None:
    kind, client = _BY_RESOURCE[resource], users.clients[PlaneName(plane)]
    try:
        listed = (await client.list_plain(kind)).items
    except (ApiError, Unreachable):
        return
    found = [ref for ref in map(_ref, listed) if ref.name.startswith(prefix)]
    users.log(f"operator deletes {len(found)} {kind.plural} {prefix}* on {plane}")
    for ref in sorted(found):
        users.tamper(plane, ref)

    async def delete(ref: Ref) -> None:
        await users.retry_until_done(lambda: client.delete(kind, ref))

    async with asyncio.TaskGroup() as group:
        for ref in sorted(found):
            group.create_task(delete(ref))


async def _drop_field(users: Users, operation: DropField) -> None:
    kind = _BY_RESOURCE[operation.resource]
    found = await users.pick_object(operation.plane, kind, operation.pick, "")
    fields = sorted((found or {}).get("spec") or {})
    if found is None or not fields:
        return
    ref, name = _ref(found), fields[operation.pick % len(fields)]
    users.tamper(operation.plane, ref)
    users.log(f"an old writer drops spec.{name} of {kind.kind} {ref} on {operation.plane}")
    client = users.clients[PlaneName(operation.plane)]
    await users.retry_until_done(lambda: client.patch_plain(kind, ref, {"spec": {name: None}}))


async def _revoke(users: Users, project: str) -> None:
    users.log(f"operator revokes project {project}")
    users.revoked[project] = None
    for key in [key for key in users.desired if key[0] == project]:
        del users.desired[key]
    platform, ref = users.clients[PLATFORM], Ref("", project)
    await users.retry_until_done(lambda: platform.delete(PROJECT, ref))
    await wait_until_deleted(platform, PROJECT, ref)
    users.log(f"project {project} is gone")


async def _drain(users: Users, cell: str, for_s: float) -> None:
    """If two drains of a cell overlap, the later end counts."""
    client, ref = users.clients[HUB], Ref("", cell)
    for taints, then in (([{"key": DRAINED, "effect": NO_SCHEDULE}], "drains"), ([], "opens")):
        users.log(f"operator {then} cell {cell}")
        patch: JsonObject = {"spec": {"taints": taints}}
        await users.retry_until_done(lambda patch=patch: client.patch_plain(CLUSTER, ref, patch))  # type: ignore[misc]
        if taints:
            await asyncio.sleep(for_s)
