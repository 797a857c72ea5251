"""The plan of a change to one workload, and the write that applies it.

The server itself computes the result of a plan with a dry run, so defaults and errors are those of
the write. Nothing is written that was not shown: after a write conflict the edit is repeated on the
new state, and applied only if it makes the same changes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import CHANGED_BY, DEPLOY, ROLLBACK
from datum_compute.api.meta.codec import JsonObject, deep_copy, from_json, sorted_bytes
from datum_compute.api.meta.json_patch import build_merge_patch
from datum_compute.api.meta.objects import Ref
from datum_compute.api.object_diff import ChangeKind, FieldChange, diff_objects
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import ConflictError, UsageError
from datum_compute.cli.workload.edits import Edit

FIELD_MANAGER = "datumctl-compute"
_ATTEMPTS_MAX = 5
_KEY_LENGTH_MAX = 128
_HIDDEN_ANNOTATIONS = (CHANGED_BY, DEPLOY, ROLLBACK)

PlanAction = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """``observed`` is None if the workload does not exist. ``outcome`` is the workload as the
    server would store it. A plan that creates a workload has no ``changes``."""

    name: str
    observed: JsonObject | None
    desired: JsonObject
    outcome: JsonObject
    changes: tuple[FieldChange, ...] = ()

    @property
    def action(self) -> PlanAction:
        if self.observed is None:
            return "created"
        return "updated" if self.changes else "unchanged"

    @property
    def removals(self) -> list[str]:
        """Return the fields, cities and instances that the plan removes, as text.

        A plan with removals requires confirmation.
        """
        if self.observed is None:
            return []
        removed = [c.path for c in self.changes if c.kind is ChangeKind.REMOVED]
        after = {p["name"]: p for p in self.outcome["spec"]["placements"]}
        for placement in self.observed["spec"]["placements"]:
            removed += _placement_removals(placement, after.get(placement["name"], placement))
        return removed


def _placement_removals(before: JsonObject, after: JsonObject) -> list[str]:
    removed = [city for city in before["cityCodes"] if city not in after["cityCodes"]]
    minimum_before, minimum_after = (p["scaleSettings"]["minReplicas"] for p in (before, after))
    if minimum_after < minimum_before:
        count = minimum_before - minimum_after
        removed.append(f"{count} of {minimum_before} instances in each city of {before['name']}")
    return removed


async def read_observed(session: Session, name: str) -> JsonObject | None:
    """Return the workload as stored, or None. Raise ConflictError if it is being deleted."""
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


async def build_plan(session: Session, name: str, edit: Edit) -> WorkloadPlan:
    return await build_plan_from(session, name, edit, await read_observed(session, name))


async def build_plan_from(
    session: Session, name: str, edit: Edit, observed: JsonObject | None
) -> WorkloadPlan:
    """Build the plan on a workload that was just read; read it again only after a conflict."""
    for _ in range(_ATTEMPTS_MAX):
        desired = edit(observed)
        try:
            outcome = await write_workload(session, observed, desired, dry_run=True)
        except Conflict:
            observed = await read_observed(session, name)
            continue
        if observed is None:
            return WorkloadPlan(name, None, desired, outcome)
        changes = diff_objects(_user_fields(observed), _user_fields(outcome))
        return WorkloadPlan(name, observed, desired, outcome, tuple(changes))
    raise _too_many_conflicts(name)


async def apply_plan(
    session: Session, edit: Edit, plan: WorkloadPlan, key: DeployKey | None = None
) -> Workload:
    """Write the plan and return the stored workload. A plan without changes writes nothing."""
    if plan.action == "unchanged":
        return from_json(plan.outcome, Workload)
    for _ in range(_ATTEMPTS_MAX):
        try:
            desired = annotate_deploy(plan.desired, key, plan.action, plan.outcome)
            return from_json(await write_workload(session, plan.observed, desired), Workload)
        except Conflict:
            repeated = await build_plan(session, plan.name, edit)
            if (repeated.action, repeated.changes) != (plan.action, plan.changes):
                raise ConflictError(
                    f"Workload {plan.name!r} was changed by another client after the plan was "
                    "shown.",
                    "Run the command again to see the new plan.",
                ) from None
            plan = repeated
    raise _too_many_conflicts(plan.name)


async def write_workload(
    session: Session, observed: JsonObject | None, desired: JsonObject, *, dry_run: bool = False
) -> JsonObject:
    """Create the workload, or patch the fields that differ, with the field manager of the CLI."""
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


def _too_many_conflicts(name: str) -> ConflictError:
    return ConflictError(
        f"Workload {name!r} keeps changing: {_ATTEMPTS_MAX} attempts to write it conflicted.",
        "Run the command again in a few seconds.",
    )


def _patch(observed: JsonObject, desired: JsonObject) -> JsonObject:
    patch = build_merge_patch(observed, desired)
    version = {"resourceVersion": observed["metadata"]["resourceVersion"]}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def _user_fields(workload: JsonObject) -> JsonObject:
    """Return the labels, annotations and spec, without annotations that the platform sets."""
    metadata = workload["metadata"]
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key not in _HIDDEN_ANNOTATIONS
    }
    kept = {"labels": metadata.get("labels") or {}, "annotations": annotations}
    return {"metadata": kept, "spec": workload["spec"]}


# --- ``--deploy-key``: a retry with the same key does not deploy twice
# The write that deploys also annotates the Workload with the key, a digest of the request, and the
# resulting generation. A deploy that finds its own annotation writes nothing and waits for that
# generation.


@dataclass(frozen=True, slots=True)
class DeployKey:
    key: str
    digest: str


def parse_deploy_key(key: str | None, request: Any) -> DeployKey | None:
    """``request`` is plain JSON that describes the deploy; the order of its fields is ignored."""
    if key is None:
        return None
    if not 1 <= len(key) <= _KEY_LENGTH_MAX:
        raise UsageError(f"--deploy-key must have 1 to {_KEY_LENGTH_MAX} characters.")
    return DeployKey(key, hashlib.sha256(sorted_bytes(request)).hexdigest()[:16])


def annotate_deploy(
    desired: JsonObject, key: DeployKey | None, action: PlanAction, outcome: JsonObject
) -> JsonObject:
    """Return the workload with the annotation of this deploy; unchanged without a key."""
    if key is None:
        return desired
    record = {
        "key": key.key,
        "digest": key.digest,
        "action": action,
        "generation": outcome["metadata"].get("generation", 1),
    }
    annotated = deep_copy(desired)
    annotations = annotated["metadata"].get("annotations") or {}
    annotated["metadata"]["annotations"] = {
        **annotations,
        DEPLOY: json.dumps(record, separators=(",", ":")),
    }
    return annotated


def find_earlier_deploy(observed: JsonObject | None, key: DeployKey | None) -> PlanAction | None:
    """Return what an earlier run of this deploy did, or None if there was none.

    Raise UsageError if the key belongs to another deploy, and ConflictError if the workload was
    changed after the earlier run.
    """
    record = _deploy_record(observed)
    if observed is None or key is None or record.get("key") != key.key:
        return None
    name = observed["metadata"]["name"]
    if record.get("digest") != key.digest:
        raise UsageError(
            f"--deploy-key {key.key!r} was used for another deploy of {name!r}.",
            "Use a new key for a new deploy.",
        )
    if observed["metadata"]["generation"] != record.get("generation"):
        raise ConflictError(
            f"The deploy {key.key!r} of {name!r} was applied before, and the workload was changed "
            "since; nothing was written.",
            "Use a new key to deploy over that change.",
        )
    return "created" if record.get("action") == "created" else "updated"


def _deploy_record(observed: JsonObject | None) -> JsonObject:
    annotations = (observed or {}).get("metadata", {}).get("annotations") or {}
    try:
        record = json.loads(annotations.get(DEPLOY, "{}"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
