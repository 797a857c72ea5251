"""CustomResourceDefinitions on planes of the embedded server.

- The objects of a terminating definition are deleted, then the definition.
- The status of any other definition is computed by the server with each write. The controller
  requests that after another definition is gone, whose names may have become available.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api.apiextensions import CLEANUP_FINALIZER
from datum_compute.api.inventory import StoredObject
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.planes import PlaneName
from datum_compute.planning.plan import Patch, PatchStatus, Plan

# Deletions cause events. This interval covers a missed one.
RECHECK_S = 10.0


def is_cleaning_up(definition: StoredObject) -> bool:
    """Return True if the definition waits for the deletion of its objects."""
    return definition.terminating and CLEANUP_FINALIZER in definition.finalizers


def select_objects_to_delete(objects: Sequence[StoredObject]) -> list[StoredObject]:
    """Return the objects of a definition that is cleaning up and has to delete them now."""
    return [held for held in objects if not held.terminating]


def plan_definition(
    plane: PlaneName, definition: StoredObject, remaining: Sequence[StoredObject]
) -> Plan:
    """Plan the release of a terminating definition, or the status of any other one.

    ``remaining`` are the objects of the definition. They are only needed while it is cleaning up.
    """
    if not definition.terminating:
        return _plan_status(plane, definition)
    if not is_cleaning_up(definition):
        return Plan()
    return Plan(requeue_after_s=RECHECK_S) if remaining else _plan_release(plane, definition)


def _plan_status(plane: PlaneName, definition: StoredObject) -> Plan:
    """Let the server compute the status again, which it does for an empty patch."""
    ref, version = definition.ref, definition.version
    return Plan((PatchStatus(plane, DEFINITION, ref, version, {}, "names may be available"),))


def _plan_release(plane: PlaneName, definition: StoredObject) -> Plan:
    kept = [f for f in definition.finalizers if f != CLEANUP_FINALIZER]
    patch = {"metadata": {"finalizers": kept or None, "resourceVersion": definition.version}}
    return Plan((Patch(plane, DEFINITION, definition.ref, patch, "its objects are gone"),))
