"""The world of the tutorial: what its user asks for, and what must hold.

What must hold is read off the committed rows, as everywhere in the simulator.
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
# Whoever starts on an old list, or writes late, may do the right thing too late.
_LATE = (StaleLists, DelayWrites, RepeatWrites, PauseHost, AnswerFromCache)


async def act(user: CustomUser) -> None:
    """What the user of the set asks for, each in its time."""
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
        late = any(isinstance(fault, _LATE) for fault in scenario.faults)
        return member_complaint(state, change.key, ordered=not late)
    if change.key.resource == ORDERED_SET.resource and change.body is None:
        return release_complaint(state, before.get(change.key))
    return ""


# --- what must hold


def member_complaint(state: ClusterState, key: ObjectKey, *, ordered: bool) -> str:
    """A new member has a place of its own, and all before it are there and ready."""
    made = state.rows[HUB][key]
    others = {k: row for k, row in members_of(state, _owner(made)) if k != key}
    places = {row["spec"]["ordinal"]: row for row in others.values()}
    ordinal = made["spec"]["ordinal"]
    if ordinal in places:
        return f"I1: two members are in place {ordinal}"
    ready = [n for n, row in places.items() if row.get("status", {}).get("ready")]
    if ordered and not set(range(ordinal)) <= set(ready):
        return f"I12: member {ordinal} is made while only {sorted(ready)} are ready"
    return ""


def release_complaint(state: ClusterState, gone: JsonObject | None) -> str:
    """A set goes only when none of its members is left."""
    left = [] if gone is None else list(members_of(state, gone["metadata"]["uid"]))
    return f"I15: the set left before {len(left)} of its members" if left else ""


def members_of(state: ClusterState, uid: str) -> Iterator[tuple[ObjectKey, JsonObject]]:
    for key, row in state.rows_of(HUB, MEMBER.resource):
        if _owner(row) == uid:
            yield key, row


def _owner(member: JsonObject) -> str:
    owners: list[Any] = member["metadata"].get("ownerReferences") or [{"uid": ""}]
    return str(owners[0]["uid"])


def sets_missing(state: ClusterState, wanted: Mapping[str, tuple[int, str]]) -> str:
    """In what the sets and their members are not yet as wanted: replicas and image by name."""
    sets = {key.name: row for key, row in state.rows_of(HUB, ORDERED_SET.resource)}
    members = [row["spec"] | row.get("status", {}) for _, row in _all_members(state)]
    if sorted(sets) != sorted(wanted):
        return f"sets are {sorted(sets)}"
    asked = [
        {"ordinal": ordinal, "image": image, "ready": True}
        for replicas, image in wanted.values()
        for ordinal in range(replicas)
    ]
    if sorted(members, key=repr) != sorted(asked, key=repr):
        return f"members are {members}"
    for name, (replicas, _) in wanted.items():
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
    missing=lambda state: sets_missing(state, {"web": (2, "web:3")}),
    tidy_up=tidy_up,
    left=lambda state: sets_missing(state, {}),
    violation=violation,
)

if __name__ == "__main__":
    sys.exit(custom_main(ORDERED_SETS))
