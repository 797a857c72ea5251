"""The plan of a change: what is, what is wanted, and what that changes; then carried out.

The server itself says what would come of it (a dry run), so defaults and refusals are those of the
write. Nothing is written that was not shown: when somebody else changed the workload meanwhile, the
edit is made again on the new reading, and goes ahead only if it comes to the same changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import CHANGED_BY, DEPLOY
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.json_patch import merge_patch
from datum_compute.api.meta.objects import Ref
from datum_compute.api.object_diff import render_changes
from datum_compute.cli.deploykey import DeployKey, with_record
from datum_compute.cli.edits import Edit
from datum_compute.cli.errors import ConflictError
from datum_compute.cli.newworkload import summary
from datum_compute.cli.session import Session

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
    patch = merge_patch(observed, desired)
    version = {"resourceVersion": observed["metadata"]["resourceVersion"]}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def _shown(workload: JsonObject) -> JsonObject:
    """What people write of a workload, without what the server adds."""
    metadata = workload["metadata"]
    marks = metadata.get("annotations") or {}
    annotations = {key: value for key, value in marks.items() if key not in _NOT_SHOWN}
    kept = {"labels": metadata.get("labels") or {}, "annotations": annotations}
    return {"metadata": kept, "spec": workload["spec"]}
