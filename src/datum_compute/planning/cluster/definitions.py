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


def plan_definition(
    plane: PlaneName, definition: StoredObject, remaining: Sequence[StoredObject]
) -> Plan:
    """Release a terminating definition without objects, or let the server compute the status.

    ``remaining`` are the objects of the definition. They are only needed while it is cleaning up.
    """
    ref, version = definition.ref, definition.version
    if not definition.terminating:
        # An empty patch makes the server compute the status again.
        return Plan((PatchStatus(plane, DEFINITION, ref, version, {}, "names may be available"),))
    if not is_cleaning_up(definition):
        return Plan()
    if remaining:
        return Plan(requeue_after_s=RECHECK_S)
    kept = [f for f in definition.finalizers if f != CLEANUP_FINALIZER]
    metadata = {"finalizers": kept or None, "resourceVersion": version}
    return Plan((Patch(plane, DEFINITION, ref, {"metadata": metadata}, "its objects are gone"),))
