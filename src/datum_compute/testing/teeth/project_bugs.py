"""Bugs in who may use compute, and in what becomes of projects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.plane import plane_role
from datum_compute.app.project_planes import ProjectPlanes
from datum_compute.controllers.membership import projects
from datum_compute.planes.lifecycle import delete_objects, list_objects
from datum_compute.planning import entitlements
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced


@contextmanager
def _revoked_in_name_only() -> Iterator[None]:
    """Access ends and nobody asks the workloads to go."""

    def nothing(_project: Any) -> bool:
        return False

    async def shut(_project: Any) -> bool:
        return True

    with (
        attribute_replaced(projects, "_runs_anything", lambda _: nothing),
        attribute_replaced(projects, "_is_shut", lambda _: shut),
    ):
        yield


@contextmanager
def _revocation_hits_everybody() -> Iterator[None]:
    """Whoever loses access takes the workloads of all others along."""

    def make(original: Any) -> Any:
        async def withdraw(context: Any, membership: Any, plane: Any, consumer: Any) -> Any:
            if membership.is_entitled(plane):
                for other in context.planes.engaged():
                    if plane_role(other) == "project":
                        client = context.planes.require(other).client
                        running = await list_objects(client, (WORKLOAD, DEPLOYMENT))
                        await delete_objects(client, running)
            return await original(context, membership, plane, consumer)

        return withdraw

    with attribute_replaced(projects, "_withdraw", make):
        yield


@contextmanager
def _consumer_outlives_its_project() -> Iterator[None]:
    """What was said of a project is believed of the next one with its name."""

    async def forgotten(_self: Any, _project: str) -> list[str]:
        return []

    with attribute_replaced(ProjectPlanes, "_end_access", lambda _: forgotten):
        yield


@contextmanager
def _entitled_at_cleared() -> Iterator[None]:
    """A revoked project looks as if it had never been let in."""

    def make(original: Any) -> Any:
        def report(requested: Any, phase: str, *others: Any, **named: Any) -> Any:
            if phase == "Rejected":
                status = msgspec.structs.replace(requested.entitlement.status, entitled_at=None)
                entitlement = msgspec.structs.replace(requested.entitlement, status=status)
                plan = original(_with(requested, entitlement), phase, *others, **named)
                for action in plan.actions:
                    action.status.setdefault("entitledAt", None)
                return plan
            return original(requested, phase, *others, **named)

        return report

    with function_replaced(entitlements._report, make):
        yield


def _with(requested: Any, entitlement: Any) -> Any:
    return replace(requested, entitlement=entitlement)


BUGS = (
    PlantedBug(
        "consumer-outlives-its-project",
        "a tenant's record is keyed by name and taken for that of the next tenant (I5)",
        _consumer_outlives_its_project,
        meets=("DeleteProject",),
    ),
    PlantedBug(
        "entitled-at-cleared",
        "a status is built anew and forgets what was said once and for good (I8)",
        _entitled_at_cleared,
        meets=("Decide",),
    ),
    PlantedBug(
        "revocation-hits-everybody",
        "a clean-up without its tenant: what one loses all lose (I14, I16)",
        _revocation_hits_everybody,
        meets=("Decide", "RenewAccess"),
    ),
    PlantedBug(
        "revoked-in-name-only",
        "access ends on paper and the workloads run on: nobody drained them (I16)",
        _revoked_in_name_only,
        meets=("Decide", "RenewAccess"),
    ),
)
