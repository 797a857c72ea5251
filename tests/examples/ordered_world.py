"""The simulated world of the tutorial: the requests of its user, and its invariants.

The invariants are checked on the committed rows, as everywhere in the simulator.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.store.journal import Change, ObjectKey
from examples.ordered_set.__main__ import define
from examples.ordered_set.controllers import controllers
from examples.ordered_set.kinds import MEMBER, ORDERED_SET
from testkit.sim.checks.state import ClusterState, Rows
from testkit.sim.run.custom_world import WINDOW_S, CustomProgram, CustomUser, custom_main
from testkit.sim.scenario.faults import (
    AnswerFromCache,
    DelayWrites,
    PauseHost,
    RepeatWrites,
    StaleLists,
)
from testkit.sim.scenario.scenario import Scenario

SET = Ref("default", "web")
# With these faults a controller may read an old list or write late, so the order may be violated.
_DELAYING_FAULTS = (StaleLists, DelayWrites, RepeatWrites, PauseHost, AnswerFromCache)


async def act(user: CustomUser) -> None:
    """Create the set and change it four times, at random times."""
    spec: JsonObject = {"replicas": 3, "image": "web:1"}
    made = {
        "apiVersion": ORDERED_SET.api_version,
        "kind": ORDERED_SET.kind,
        "metadata": {"name": SET.name, "namespace": SET.namespace},
        "spec": spec,
    }
    await user.retry_until_done(lambda: user.client.create_plain(ORDERED_SET, made))
    for changed in ({"replicas": 5}, {"image": "web:2"}, {"replicas": 2}, {"image": "web:3"}):
        await asyncio.sleep(user.random.uniform(0, WINDOW_S / 3))
        patch = {"spec": dict(changed)}
        await user.retry_until_done(lambda patch=patch: user.client.patch(ORDERED_SET, SET, patch))  # type: ignore[misc]


async def tidy_up(user: CustomUser) -> None:
    await user.retry_until_done(lambda: user.client.delete(ORDERED_SET, SET))


def violation(state: ClusterState, before: Rows, change: Change, scenario: Scenario) -> str:
    if change.key.resource == MEMBER.resource and change.key not in before and change.body:
        late = any(isinstance(fault, _DELAYING_FAULTS) for fault in scenario.faults)
        return check_new_member(state, change.key, ordered=not late)
    if change.key.resource == ORDERED_SET.resource and change.body is None:
        return check_released_set(state, before.get(change.key))
    return ""


# --- invariants


def check_new_member(state: ClusterState, key: ObjectKey, *, ordered: bool) -> str:
    """A new member has an unused ordinal, and all members with lower ordinals are ready."""
    made = state.rows[HUB][key]
    others = {k: row for k, row in members_of(state, _owner(made)) if k != key}
    by_ordinal = {row["spec"]["ordinal"]: row for row in others.values()}
    ordinal = made["spec"]["ordinal"]
    if ordinal in by_ordinal:
        return f"I1: two members have ordinal {ordinal}"
    ready = [n for n, row in by_ordinal.items() if row.get("status", {}).get("ready")]
    if ordered and not set(range(ordinal)) <= set(ready):
        return f"I12: member {ordinal} is created while only {sorted(ready)} are ready"
    return ""


def check_released_set(state: ClusterState, gone: JsonObject | None) -> str:
    """A set is deleted only after all of its members."""
    left = [] if gone is None else list(members_of(state, gone["metadata"]["uid"]))
    return f"I15: the set was deleted before {len(left)} of its members" if left else ""


def members_of(state: ClusterState, uid: str) -> Iterator[tuple[ObjectKey, JsonObject]]:
    for key, row in state.rows_of(HUB, MEMBER.resource):
        if _owner(row) == uid:
            yield key, row


def _owner(member: JsonObject) -> str:
    owners: list[Any] = member["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(owners[0]["uid"])


def describe_difference(state: ClusterState, desired: Mapping[str, tuple[int, str]]) -> str:
    """Describe the first difference to the desired replicas and image of each set."""
    sets = {key.name: row for key, row in state.rows_of(HUB, ORDERED_SET.resource)}
    members = [row["spec"] | row.get("status", {}) for _, row in _all_members(state)]
    if sorted(sets) != sorted(desired):
        return f"sets are {sorted(sets)}"
    expected = [
        {"ordinal": ordinal, "image": image, "ready": True}
        for replicas, image in desired.values()
        for ordinal in range(replicas)
    ]
    if sorted(members, key=repr) != sorted(expected, key=repr):
        return f"members are {members}"
    for name, (replicas, _) in desired.items():
        status = sets[name].get("status", {})
        counts = [status.get(n) for n in ("replicas", "readyReplicas", "updatedReplicas")]
        if counts != [replicas] * 3:
            return f"set {name} counts {counts}"
    return ""


def _all_members(state: ClusterState) -> Iterator[tuple[ObjectKey, JsonObject]]:
    return state.rows_of(HUB, MEMBER.resource)


ORDERED_SETS = CustomProgram(
    controllers=lambda _ports: controllers("hub"),
    prepare=define,
    act=act,
    missing=lambda state: describe_difference(state, {"web": (2, "web:3")}),
    tidy_up=tidy_up,
    left=lambda state: describe_difference(state, {}),
    violation=violation,
)

if __name__ == "__main__":
    sys.exit(custom_main(ORDERED_SETS))
