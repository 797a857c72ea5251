"""Carries out what ``project_operations.py`` says.

Whoever takes access away waits until it is gone with all that ran; so what is wanted afterwards is
certain. Nobody waits for ever for what depends on others: a request may stay undecided.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

from datum_compute.api.codec import JsonObject
from datum_compute.api.conditions import is_true
from datum_compute.api.entitlements import ACTIVE, consumer_name
from datum_compute.api.errors import AlreadyExists, ApiError, Invalid, NotFound, Unreachable
from datum_compute.api.kinds import CONSUMER, ENTITLEMENT, PROJECT, SERVICE, WORKLOAD
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM, project_plane
from datum_compute.api.quotametrics import SERVICE as COMPUTE
from datum_compute.api.quotametrics import SERVICE_NAME
from testkit.sim.actors.patience import AGAIN_S, until, until_gone
from testkit.sim.scenario.project_operations import (
    CreateProject,
    Decide,
    DeleteProject,
    DeployIn,
    GateCompute,
    OnProjects,
    RenewAccess,
    RequestAccess,
)

if TYPE_CHECKING:
    from testkit.sim.actors.people import People

# How long somebody tries to deploy before taking no for an answer.
_PATIENCE_S = 20.0
_REF = Ref("", COMPUTE)
_AGAINST = ("Denied", "Suspended", "Removed")


async def carry_out_on_projects(people: People, operation: OnProjects) -> None:
    project = operation.project
    if isinstance(operation, CreateProject):
        await _create(people, project)
        return
    if project not in people.newcomers:
        return  # it was never created, or is deleted
    people.say(f"{operation}")
    match operation:
        case GateCompute(_, _, gated):
            mode = "GatedByProvider" if gated else "SelfService"
            patch = {"spec": {"enablementPolicy": {"mode": mode}}}
            await people.insist(lambda: people.client(PLATFORM).patch(SERVICE, _REF, patch))
        case RequestAccess():
            await _request(people, project)
        case Decide(_, _, decision):
            await _decide(people, project, decision)
        case RenewAccess():
            await _renew(people, project)
        case DeployIn():
            await _deploy(people, operation)
        case DeleteProject():
            await _delete(people, project)
        case _:
            assert_never(operation)


async def _create(people: People, project: str) -> None:
    if project in people.newcomers:
        return
    people.say(f"operator creates project {project}")
    platform, ref = people.client(PLATFORM), Ref("", project)
    body = {
        "apiVersion": PROJECT.api_version,
        "kind": PROJECT.kind,
        "metadata": {"name": project},
        "spec": {"ownerRef": {"kind": "Organization", "name": "default"}},
    }
    await people.insist(lambda: platform.create_plain(PROJECT, body))
    people.newcomers[project] = None

    async def is_ready() -> bool:
        return is_true((await platform.get(PROJECT, ref)).status.conditions, "Ready")

    await until(is_ready)


async def _request(people: People, project: str) -> None:
    body = {
        "apiVersion": ENTITLEMENT.api_version,
        "kind": ENTITLEMENT.kind,
        "metadata": {"name": COMPUTE},
        "spec": {"serviceRef": {"name": COMPUTE}},
    }
    user = people.client(project_plane(project))
    await people.insist(lambda: user.create_plain(ENTITLEMENT, body))


async def _decide(people: People, project: str, decision: str) -> None:
    platform = people.client(PLATFORM)
    ref = Ref("", consumer_name(SERVICE_NAME, project))
    if decision == "Removed":
        await people.insist(lambda: platform.delete(CONSUMER, ref))
    else:
        spec: JsonObject = {"approval": {"decision": decision}}
        if decision in ("Suspended", "Resumed"):
            spec = {"suspended": decision == "Suspended"}
        await people.insist(lambda: platform.patch(CONSUMER, ref, {"spec": spec}))
    if decision in _AGAINST:
        await until(lambda: _is_torn_down(people, project))


async def _is_torn_down(people: People, project: str) -> bool:
    """Access is gone, and so is what ran; nobody wants it any more."""
    user = people.client(project_plane(project))
    try:
        phase = (await user.get(ENTITLEMENT, _REF)).status.phase
    except NotFound:
        phase = None
    gone = phase != ACTIVE and not (await user.list(WORKLOAD)).items
    if gone:
        _forget(people, project)
    return gone


async def _renew(people: People, project: str) -> None:
    user = people.client(project_plane(project))
    await people.insist(lambda: user.delete(ENTITLEMENT, _REF))
    await until_gone(user, ENTITLEMENT, _REF)
    _forget(people, project)
    await _request(people, project)


async def _deploy(people: People, operation: DeployIn) -> None:
    key = (operation.project, operation.name)
    if key in people.wanted:
        return
    user = people.client(project_plane(operation.project))
    wanted, workload = people.workload(key, operation.replicas, operation.cities)
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + _PATIENCE_S
    while True:
        try:
            await user.create_plain(WORKLOAD, workload)
        except AlreadyExists:
            people.wanted[key] = wanted
            return
        except Invalid:
            if loop.time() > ends_s:
                people.say(f"{operation.project} has no access")
                return
        except (ApiError, Unreachable):
            pass  # it may have arrived
        else:
            people.wanted[key] = wanted
            return
        await asyncio.sleep(AGAIN_S)


async def _delete(people: People, project: str) -> None:
    platform, ref = people.client(PLATFORM), Ref("", project)
    await people.insist(lambda: platform.delete(PROJECT, ref))
    await until_gone(platform, PROJECT, ref)
    _forget(people, project)
    del people.newcomers[project]
    people.say(f"project {project} is gone")


def _forget(people: People, project: str) -> None:
    for key in [key for key in people.wanted if key[0] == project]:
        del people.wanted[key]
