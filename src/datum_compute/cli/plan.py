"""The plan of a deploy: what is, what is wanted, and what that changes; then carried out.

Nothing is written that was not shown: when somebody else changed the workload meanwhile, the edit
is made again on the new reading, and goes ahead only if it comes to the same changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datum_compute.api.changes import render_changes
from datum_compute.api.codec import JsonObject, typed
from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.mergepatch import merge_patch
from datum_compute.api.meta import Ref
from datum_compute.api.workload import Workload
from datum_compute.cli.edits import Edit
from datum_compute.cli.errors import ConflictError
from datum_compute.cli.session import Session

_TRIES = 5

Action = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class Plan:
    """``observed`` is None for a workload that does not exist yet."""

    observed: JsonObject | None
    desired: JsonObject
    lines: tuple[str, ...]

    @property
    def action(self) -> Action:
        if self.observed is None:
            return "created"
        return "updated" if self.lines else "unchanged"

    @property
    def replaces_instances(self) -> bool:
        return (
            self.observed is not None
            and self.observed["spec"]["template"] != self.desired["spec"]["template"]
        )


async def read_plan(session: Session, name: str, edit: Edit) -> Plan:
    try:
        observed = await session.client.get_plain(WORKLOAD, Ref(session.namespace, name))
    except NotFound:
        desired = edit(None)
        return Plan(None, desired, tuple(_summary(desired)))
    if observed["metadata"].get("deletionTimestamp"):
        raise ConflictError(
            f"Workload {name!r} is being deleted.",
            f"Wait until it is gone: {session.command('destroy', name, '-y')}",
        )
    desired = edit(observed)
    return Plan(observed, desired, tuple(render_changes(observed, desired)))


async def carry_out(session: Session, name: str, edit: Edit, plan: Plan) -> Workload:
    """Write the plan and answer the workload as written; a plan without changes writes nothing."""
    if plan.observed is None:
        return typed(await session.client.create_plain(WORKLOAD, plan.desired), Workload)
    if not plan.lines:
        return typed(plan.observed, Workload)
    for _ in range(_TRIES):
        assert plan.observed is not None, "the same changes come only from an existing workload"
        try:
            return await session.client.patch(
                WORKLOAD, Ref(session.namespace, name), _patch(plan.observed, plan.desired)
            )
        except Conflict:
            again = await read_plan(session, name, edit)
            if (again.observed is None, again.lines) != (False, plan.lines):
                raise ConflictError(
                    f"Workload {name!r} was changed by somebody else after the plan was shown.",
                    "Run this again to see the new plan.",
                ) from None
            plan = again
    raise ConflictError(
        f"Workload {name!r} keeps changing: {_TRIES} attempts to write it collided.",
        "Run this again in a moment.",
    )


def _patch(observed: JsonObject, desired: JsonObject) -> JsonObject:
    patch = merge_patch(observed, desired)
    version = {"resourceVersion": observed["metadata"]["resourceVersion"]}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def _summary(desired: JsonObject) -> list[str]:
    """A new workload in a few lines; environment variables by name only."""
    lines = []
    for container in desired["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]:
        lines.append(f"container {container['name']}: {container['image']}")
        if container.get("ports"):
            lines.append("  ports: " + ", ".join(str(p["port"]) for p in container["ports"]))
        if container.get("env"):
            lines.append("  env: " + ", ".join(e["name"] for e in container["env"]))
    for placement in desired["spec"]["placements"]:
        cities = ", ".join(placement["cityCodes"])
        minimum = placement["scaleSettings"]["minReplicas"]
        lines.append(f"placement {placement['name']}: at least {minimum} in each of {cities}")
    return lines
