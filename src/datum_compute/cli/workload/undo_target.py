"""The revision that ``rollout undo`` restores, and the change of the workload back to it."""

from __future__ import annotations

from copy import deepcopy

from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.errors import ApiError
from datum_compute.api.labels import ROLLBACK
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.commands.history import Recorded, comparable_spec, read_history
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import UsageError
from datum_compute.cli.workload.manifest import with_defaults
from datum_compute.planning.workload.history import (
    RequestedRollback,
    UndoPart,
    find_undo_target,
    images_of,
)

PARTS: tuple[UndoPart, ...] = ("image", "template", "scale")


async def can_undo(session: Session, workload: Workload) -> bool:
    """Return True if ``rollout undo`` finds a revision to restore."""
    try:
        found = await read_history(session, workload)
        select_undo_target(session, workload, found, None)
    except (UsageError, ApiError):
        return False
    return True


def select_undo_target(
    session: Session, workload: Workload, found: list[Recorded], only: UndoPart | None
) -> Recorded:
    """Return the newest revision that differs in what is restored, or raise UsageError."""
    name = workload.metadata.name
    target = find_undo_target(workload, [recorded.revision for recorded in found], only)
    if target is not None:
        return next(recorded for recorded in found if recorded.revision is target)
    hint = f"List the revisions: {session.command('rollout', 'history', name)}"
    if len(found) < 2:
        raise UsageError(f"Workload {name!r} has only one revision.", hint)
    part = only or "anything but restarts and the number of instances"
    raise UsageError(f"No earlier revision of workload {name!r} differs in {part}.", hint)


def restore_and_annotate(
    workload: JsonObject, target: Recorded, only: UndoPart | None, newest: WorkloadRevision
) -> None:
    """Restore the revision, and annotate the workload so that the history shows a rollback."""
    before = deepcopy(workload["spec"])
    restore(workload, target.revision, only)
    # Revisions named ``legacy-N`` were recorded by an older command line, not by the controller.
    is_numbered = target.name == str(target.revision.spec.revision)
    if is_numbered and only in (None, "template") and workload["spec"] != before:
        rollback = RequestedRollback(target.revision.spec.revision, newest.spec.revision)
        workload["metadata"].setdefault("annotations", {})[ROLLBACK] = rollback.annotation


def restore(workload: JsonObject, target: WorkloadRevision, only: UndoPart | None) -> None:
    """Change the workload back to the revision; with ``only``, only that part of it."""
    # Add the defaults that the server fills in; otherwise they would look like a change.
    spec, then = workload["spec"], with_defaults(comparable_spec(target.spec))
    match only:
        case "image":
            _restore_images(spec["template"], images_of(target.spec.template))
        case "template":
            spec["template"] = then["template"]
        case "scale":
            _restore_scale(spec["placements"], then["placements"])
        case None:
            spec["template"] = then["template"]
            present, spec["placements"] = spec["placements"], then["placements"]
            _restore_scale(spec["placements"], present)


def _restore_images(template: JsonObject, images: dict[str, str]) -> None:
    for container in template["spec"]["runtime"]["sandbox"]["containers"]:
        container["image"] = images.get(container["name"], container["image"])


def _restore_scale(placements: list[JsonObject], then: list[JsonObject]) -> None:
    settings = {placement["name"]: placement["scaleSettings"] for placement in then}
    for placement in placements:
        placement["scaleSettings"] = settings.get(placement["name"], placement["scaleSettings"])
