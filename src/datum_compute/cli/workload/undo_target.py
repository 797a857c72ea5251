"""Selects the revision that ``rollout undo`` restores, and restores a workload to it."""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.errors import ApiError
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.commands.history import (
    Recorded,
    comparable_spec,
    previous_revision,
    read_history,
)
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import UsageError
from datum_compute.cli.workload.manifest import with_defaults

Part = Literal["image", "template", "scale"]
PARTS: tuple[Part, ...] = ("image", "template", "scale")


async def can_undo(session: Session, workload: Workload) -> bool:
    """Return True if ``rollout undo`` finds a revision to restore."""
    try:
        found = await read_history(session, workload)
        find_undo_target(session, workload, found, None)
    except (UsageError, ApiError):
        return False
    return True


def find_undo_target(
    session: Session, workload: Workload, found: list[Recorded], only: Part | None
) -> Recorded:
    """Return the newest revision that differs in what is restored, or raise UsageError.

    After a change of scale that is an older revision than the previous one. After an automatic
    rollback it is the newest one, because the spec of the workload still has the failed template.
    """
    name, rolled_back = workload.metadata.name, workload.status.rollout.failed_revision is not None
    previous_revision(session, name, found)  # raises if there is none
    current = workload.spec if rolled_back else found[-1].revision.spec
    present = {"spec": with_defaults(comparable_spec(current))}
    for earlier in reversed(found if rolled_back else found[:-1]):
        then = deepcopy(present)
        restore(then, earlier.revision, only)
        if then != present:
            return earlier
    part = only or "anything but the number of instances"
    raise UsageError(
        f"No earlier revision of workload {name!r} differs in {part}.",
        f"List the revisions: {session.command('rollout', 'history', name)}",
    )


def restore(workload: JsonObject, target: WorkloadRevision, only: Part | None) -> None:
    """Change the workload back to the revision; with ``only``, only that part of it."""
    # Add the defaults that the server fills in; otherwise they would look like a change.
    spec, then = workload["spec"], with_defaults(comparable_spec(target.spec))
    match only:
        case "image":
            _restore_images(spec["template"], then["template"])
        case "template":
            spec["template"] = then["template"]
        case "scale":
            _restore_scale(spec["placements"], then["placements"])
        case None:
            spec["template"] = then["template"]
            present, spec["placements"] = spec["placements"], then["placements"]
            _restore_scale(spec["placements"], present)


def _restore_images(template: JsonObject, then: JsonObject) -> None:
    images = {container["name"]: container["image"] for container in _containers(then)}
    for container in _containers(template):
        container["image"] = images.get(container["name"], container["image"])


def _restore_scale(placements: list[JsonObject], then: list[JsonObject]) -> None:
    settings = {placement["name"]: placement["scaleSettings"] for placement in then}
    for placement in placements:
        placement["scaleSettings"] = settings.get(placement["name"], placement["scaleSettings"])


def _containers(template: JsonObject) -> list[JsonObject]:
    containers: list[JsonObject] = template["spec"]["runtime"]["sandbox"]["containers"]
    return containers
