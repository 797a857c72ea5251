"""Users and an operator, doing what the scenario says, as stubbornly as people are.

No answer means asking again; already done is done. What users want in the end is what they last
asked for: ``wanted`` is the truth that the world must converge to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

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
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    KINDS,
    NAMESPACE,
    SECRET,
    SERVER,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName, project_plane
from datum_compute.client.client import Client
from datum_compute.testing import data_checks
from datum_compute.testing.operations import (
    ByOperator,
    ByUser,
    ChangeImage,
    CreatePoison,
    CreateWorkload,
    DeleteNamespace,
    DeleteObject,
    DeleteWorkload,
    EditObject,
    Move,
    Operation,
    ReferToData,
    ReplaceData,
    Scale,
)

NAMESPACE_NAME = "default"
_AGAIN_S = 0.3
_UNKNOWN = {"apiVersion": "example.com/v1", "kind": "Poison", "metadata": {"name": "poison"}}
_DATA: tuple[KindInfo[Any], ...] = (CONFIG_MAP, SECRET)
_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Wanted:
    image: str
    replicas: int
    cities: tuple[str, ...]
    data: bool = False  # whether it refers to some


class People:
    def __init__(
        self, client: Callable[[PlaneName], Client], say: Callable[[str], None], planes: Any
    ) -> None:
        self.wanted: dict[tuple[str, str], Wanted] = {}
        # Planes and names that an operator had a hand in: not everything holds for those.
        self.tampered: dict[tuple[str, str], None] = {}
        self._clients = {plane: client(plane) for plane in planes}
        self._say = say

    async def act(self, operations: Iterable[Operation]) -> None:
        """All of them, each in its time; those of one workload one after the other."""
        lanes: dict[tuple[str, str], list[Operation]] = {}
        for number, operation in enumerate(operations):
            if isinstance(operation, ByUser):
                lanes.setdefault((operation.project, operation.name), []).append(operation)
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
            else:
                await self._by_operator(operation)

    # --- users

    async def _by_user(self, operation: ByUser) -> None:
        key = (operation.project, operation.name)
        wanted = self.wanted.get(key)
        if isinstance(operation, CreateWorkload):
            if wanted is None:
                self.wanted[key] = Wanted(operation.image, operation.replicas, operation.cities)
                self._say(f"create {operation.name} in {operation.project}: {self.wanted[key]}")
                await self._create(key, self.wanted[key])
            return
        if isinstance(operation, ReplaceData):
            await self._replace_data(operation)
            return
        if wanted is None:
            return
        if isinstance(operation, DeleteWorkload):
            self._say(f"delete {operation.name} in {operation.project}")
            del self.wanted[key]
            ref = Ref(NAMESPACE_NAME, operation.name)
            user = self._user(operation.project)
            await self._insist(lambda: user.delete(WORKLOAD, ref))
            return
        self.wanted[key] = _changed(wanted, operation)
        self._say(f"change {operation.name} in {operation.project}: {self.wanted[key]}")
        await self._change(key, self.wanted[key])
        if isinstance(operation, ReferToData):
            await asyncio.sleep(operation.late_s)
            await self._put_data(operation.project, operation.number)

    async def _replace_data(self, operation: ReplaceData) -> None:
        user, ref = self._user(operation.project), Ref(NAMESPACE_NAME, data_checks.NAME)
        self._say(f"the data of {operation.project} is replaced")
        for kind in _DATA:
            await self._insist(partial(user.delete, kind, ref))
        await asyncio.sleep(operation.away_s)
        await self._put_data(operation.project, operation.number)

    async def _put_data(self, project: str, number: int) -> None:
        user, ref = self._user(project), Ref(NAMESPACE_NAME, data_checks.NAME)
        metadata = {"name": ref.name, "namespace": ref.namespace}
        for kind in _DATA:
            content = data_checks.data_content(kind, project, number)
            head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
            await self._insist(partial(user.create_plain, kind, {**head, **content}))
            await self._insist(partial(user.patch_plain, kind, ref, content))

    async def _create(self, key: tuple[str, str], wanted: Wanted) -> None:
        """An earlier one of the name may still be leaving: then again, until it is ours."""
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        while True:
            try:
                await user.create_plain(WORKLOAD, manifest(key, wanted))
            except AlreadyExists:
                present = await self._look(user, ref)
                if present is not None and not present.is_terminating:
                    return
                await asyncio.sleep(0.05)
            except (ApiError, Unreachable):
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def _change(self, key: tuple[str, str], wanted: Wanted) -> None:
        user, ref = self._user(key[0]), Ref(NAMESPACE_NAME, key[1])
        spec = manifest(key, wanted)["spec"]
        await self._insist(lambda: user.patch(WORKLOAD, ref, {"spec": spec}))

    async def _look(self, user: Client, ref: Ref) -> Any:
        try:
            return await user.get(WORKLOAD, ref)
        except (ApiError, Unreachable):
            return None

    async def _insist(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await ask()
            except (AlreadyExists, NotFound):
                return
            except (Invalid, BadRequest, Forbidden, MethodNotAllowed) as refused:
                self._say(f"refused: {refused}")
                return
            except (ApiError, Unreachable):
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def _user(self, project: str) -> Client:
        return self._clients[project_plane(project)]

    # --- the operator

    async def _by_operator(self, operation: ByOperator) -> None:
        match operation:
            case DeleteObject(_, plane, resource, pick):
                await self._delete(plane, _BY_RESOURCE[resource], pick, prefix="")
            case DeleteNamespace(_, plane, pick):
                await self._delete(plane, NAMESPACE, pick, prefix="ns-")
            case EditObject():
                await self._edit(operation)
            case CreatePoison(_, plane, resource):
                await self._poison(plane, _BY_RESOURCE[resource])
            case _:
                assert_never(operation)

    async def _delete(self, plane: str, kind: KindInfo[Any], pick: int, prefix: str) -> None:
        found = await self._picked(plane, kind, pick, prefix)
        if found is not None:
            ref = _ref(found)
            self._tamper(plane, ref)
            self._say(f"operator deletes {kind.kind} {ref} on {plane}")
            await self._insist(lambda: self._clients[PlaneName(plane)].delete(kind, ref))

    async def _edit(self, operation: EditObject) -> None:
        kind = _BY_RESOURCE[operation.resource]
        found = await self._picked(operation.plane, kind, operation.pick, "")
        patch = _edit_of(operation, kind, found) if found is not None else None
        if found is not None and patch is not None:
            ref = _ref(found)
            self._tamper(operation.plane, ref)
            self._say(f"operator edits {kind.kind} {ref} on {operation.plane}: {patch}")
            client = self._clients[PlaneName(operation.plane)]
            await self._insist(lambda: client.patch_plain(kind, ref, patch))

    async def _poison(self, plane: str, kind: KindInfo[Any]) -> None:
        """A copy of an object of the kind with a name and labels that belong to nothing."""
        found = await self._picked(plane, kind, 0, "")
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
        self._tamper(plane, Ref(metadata.get("namespace", ""), "poison"))
        self._say(f"operator creates {kind.kind} poison on {plane}")
        client = self._clients[PlaneName(plane)]
        await self._insist(lambda: client.create_plain(kind, odd))

    async def _picked(
        self, plane: str, kind: KindInfo[Any], pick: int, prefix: str
    ) -> JsonObject | None:
        try:
            listed = (await self._clients[PlaneName(plane)].list_plain(kind)).items
        except (ApiError, Unreachable):
            return None
        items = [item for item in listed if item["metadata"]["name"].startswith(prefix)]
        items.sort(key=_ref)
        return items[pick % len(items)] if items else None

    def _tamper(self, plane: str, ref: Ref) -> None:
        self.tampered[(plane, ref.name)] = None


def manifest(key: tuple[str, str], wanted: Wanted) -> JsonObject:
    """The environment holds a canary: a value of one project that no other may ever see."""
    project, name = key
    env: list[JsonObject] = [{"name": "CANARY", "value": canary(project)}]
    if wanted.data:
        taken = data_checks.data_fields().items()
        env += [{"name": name, "valueFrom": source} for name, source in taken]
    container = {"name": "app", "image": wanted.image, "env": env}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": name, "namespace": NAMESPACE_NAME},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [
                {
                    "name": "default",
                    "cityCodes": list(wanted.cities),
                    "scaleSettings": {"minReplicas": wanted.replicas},
                }
            ],
        },
    }


def canary(project: str) -> str:
    return f"canary-of-{project}"


def _changed(wanted: Wanted, operation: ChangeImage | Scale | Move | ReferToData) -> Wanted:
    match operation:
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
