"""The plan of a change: what is, what is wanted, and what that changes; then carried out.

The server itself says what would come of it (a dry run), so defaults and refusals are those of the
write. Nothing is written that was not shown: when somebody else changed the workload meanwhile, the
edit is made again on the new reading, and goes ahead only if it comes to the same changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import CHANGED_BY, DEPLOY
from datum_compute.api.meta.codec import JsonObject, copied, decode, encode, from_json, sorted_bytes
from datum_compute.api.meta.json_patch import build_merge_patch
from datum_compute.api.meta.objects import Ref
from datum_compute.api.object_diff import render_changes, strip_common_prefix
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import ConflictError, UsageError
from datum_compute.cli.workload.edits import Edit

# --- A workload that does not exist yet, in lines: first what runs and where, then whatever else
# the manifest sets that is not the default. Environment variables are told by name only: their
# values
# are where secrets end up.


_CONTAINER = ("name", "image", "ports", "env")
_PLACEMENT = ("name", "cityCodes")
_METADATA = ("labels", "annotations")


def summary(outcome: JsonObject, desired: JsonObject) -> list[str]:
    """``outcome`` is the workload as the server would store it, ``desired`` what was written."""
    return [*_first(outcome["spec"]), *_further(desired)]


def _first(spec: JsonObject) -> Iterator[str]:
    for container in spec["template"]["spec"]["runtime"]["sandbox"]["containers"]:
        yield f"container {container['name']}: {container['image']}"
        if container.get("ports"):
            yield "  ports: " + ", ".join(str(p["port"]) for p in container["ports"])
        if container.get("env"):
            yield "  env: " + ", ".join(e["name"] for e in container["env"])
    for placement in spec["placements"]:
        cities = ", ".join(placement["cityCodes"])
        minimum = placement["scaleSettings"]["minReplicas"]
        yield f"placement {placement['name']}: at least {minimum} in each of {cities}"


def _further(desired: JsonObject) -> Iterator[str]:
    desired = decode(encode(from_json(desired, Workload)))  # without what is as it would be anyway
    metadata = desired.get("metadata", {})
    marks = {k: metadata[k] for k in _METADATA if metadata.get(k)}
    told = {"metadata": marks} if marks else {}
    for path, value in _leaves({**told, "spec": desired["spec"]}, ""):
        yield f"{strip_common_prefix(path)}: {_format_field(value)}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if not _is_told(path, name) and not _is_usual(name, inner):
                yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{item.get('name', index)}]")
    else:
        yield path, value


def _is_told(path: str, name: str) -> bool:
    """Whether the first lines have it."""
    place, _, _ = path.rpartition("[")
    if place.endswith(".containers"):
        return path.endswith("]") and name in _CONTAINER
    if place.endswith("spec.placements"):
        return name in _PLACEMENT or (path.endswith(".scaleSettings") and name == "minReplicas")
    return False


def _is_usual(name: str, value: Any) -> bool:
    """A size is always there, and empty if it is the usual one."""
    return name == "resources" and value == {}


def _format_field(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "set" if value == {} else str(value)


# --- ``--deploy-key``: one deploy, however often it is run
# The key is written with the change itself, on the Workload, with a digest of what was asked for
# and the generation that came of it. Run again, a deploy that finds its own record writes nothing
# and
# gives the answer of the first run: it goes on waiting for that generation.


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


# --- plan


FIELD_MANAGER = "datumctl-compute"
_TRIES = 5
_NOT_SHOWN = (CHANGED_BY, DEPLOY)

Action = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Plan:
    """``observed`` is None for a workload that does not exist yet; ``outcome`` is the workload as
    the server would store it."""

    name: str
    observed: JsonObject | None
    desired: JsonObject
    outcome: JsonObject
    lines: tuple[str, ...]

    @property
    def action(self) -> Action:
        if self.observed is None:
            return "created"
        return "updated" if self.lines else "unchanged"

    @property
    def removals(self) -> list[str]:
        """What would be taken away, in words; it is what a yes is needed for."""
        if self.observed is None:
            return []
        gone = [line.removesuffix(": removed") for line in self.lines if line.endswith(": removed")]
        after = {p["name"]: p for p in self.outcome["spec"]["placements"]}
        for placement in self.observed["spec"]["placements"]:
            gone += _taken_away(placement, after.get(placement["name"], placement))
        return gone


def _taken_away(before: JsonObject, after: JsonObject) -> list[str]:
    gone = [city for city in before["cityCodes"] if city not in after["cityCodes"]]
    fewer, many = (p["scaleSettings"]["minReplicas"] for p in (after, before))
    if fewer < many:
        gone.append(f"{many - fewer} of {many} instances in each city of {before['name']}")
    return gone


async def read_plan(session: Session, name: str, edit: Edit) -> Plan:
    """The plan against the workload as it is now."""
    for _ in range(_TRIES):
        observed = await _observed(session, name)
        desired = edit(observed)
        try:
            outcome = await write(session, observed, desired, dry_run=True)
        except Conflict:
            continue  # changed between the reading and the trial: read again
        if observed is None:
            return Plan(name, None, desired, outcome, tuple(summary(outcome, desired)))
        lines = render_changes(_shown(observed), _shown(outcome))
        return Plan(name, observed, desired, outcome, tuple(lines))
    raise _restless(name)


async def _observed(session: Session, name: str) -> JsonObject | None:
    try:
        observed = await session.client.get_plain(WORKLOAD, Ref(session.namespace, name))
    except NotFound:
        return None
    if observed["metadata"].get("deletionTimestamp"):
        raise ConflictError(
            f"Workload {name!r} is being deleted.",
            f"Wait until it is gone: {session.command('destroy', name, '-y')}",
        )
    return observed


async def carry_out(
    session: Session, edit: Edit, plan: Plan, key: DeployKey | None = None
) -> Workload:
    """Write the plan and answer the workload as written; a plan without changes writes nothing."""
    if plan.action == "unchanged":
        return from_json(plan.outcome, Workload)
    for _ in range(_TRIES):
        try:
            desired = with_record(plan.desired, key, plan.action, plan.outcome)
            return from_json(await write(session, plan.observed, desired), Workload)
        except Conflict:
            again = await read_plan(session, plan.name, edit)
            if (again.action, again.lines) != (plan.action, plan.lines):
                raise ConflictError(
                    f"Workload {plan.name!r} was changed by somebody else after the plan was "
                    "shown.",
                    "Run this again to see the new plan.",
                ) from None
            plan = again
    raise _restless(plan.name)


async def write(
    session: Session, observed: JsonObject | None, desired: JsonObject, *, dry_run: bool = False
) -> JsonObject:
    """Create, or patch what differs, as our own field manager; what is not ours stays as it is."""
    if observed is None:
        return await session.client.create_plain(
            WORKLOAD, desired, dry_run=dry_run, manager=FIELD_MANAGER
        )
    if observed == desired:
        return observed
    ref = Ref(session.namespace, observed["metadata"]["name"])
    return await session.client.patch_plain(
        WORKLOAD, ref, _patch(observed, desired), dry_run=dry_run, manager=FIELD_MANAGER
    )


def _restless(name: str) -> ConflictError:
    return ConflictError(
        f"Workload {name!r} keeps changing: {_TRIES} attempts to write it collided.",
        "Run this again in a moment.",
    )


def _patch(observed: JsonObject, desired: JsonObject) -> JsonObject:
    patch = build_merge_patch(observed, desired)
    version = {"resourceVersion": observed["metadata"]["resourceVersion"]}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def _shown(workload: JsonObject) -> JsonObject:
    """What people write of a workload, without what the server adds."""
    metadata = workload["metadata"]
    marks = metadata.get("annotations") or {}
    annotations = {key: value for key, value in marks.items() if key not in _NOT_SHOWN}
    kept = {"labels": metadata.get("labels") or {}, "annotations": annotations}
    return {"metadata": kept, "spec": workload["spec"]}
