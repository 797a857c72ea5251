"""What must hold of the record of changes after the calm: it ends with the present."""

from __future__ import annotations

import itertools

from datum_compute.api.codec import canonical, typed
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.api.plane import project_plane
from datum_compute.api.workload import Workload
from datum_compute.api.workloadrevision import WorkloadRevision
from datum_compute.planning.revisions import KEPT
from testkit.sim.checks.core import Core
from testkit.sim.checks.truth import Truth


def i13_history_ends_with_the_present(truth: Truth, core: Core) -> str:
    """I13: the newest revision of a workload is what it asks for; each differs from the one before;
    no more are kept than promised."""
    for project in core.projects:
        plane = project_plane(project)
        rows = [row for _, row in truth.of_resource(plane, REVISION.resource)]
        revisions = [typed(row, WorkloadRevision) for row in rows]
        workloads = (row for _, row in truth.of_resource(plane, WORKLOAD.resource))
        for row in (row for row in workloads if row.get("spec")):
            missing = _misrecorded(typed(row, Workload), revisions)
            if missing:
                return f"{plane}: {missing}"
    return ""


def _misrecorded(workload: Workload, revisions: list[WorkloadRevision]) -> str:
    uid, name = workload.metadata.uid, workload.metadata.name
    own = sorted(
        (r for r in revisions if r.spec.workload_ref.uid == uid), key=lambda r: r.spec.revision
    )
    if not own:
        return f"{name} has no revision"
    asked = [(canonical(r.spec.template), canonical(r.spec.placements)) for r in own]
    present = (canonical(workload.spec.template), canonical(workload.spec.placements))
    if asked[-1] != present:
        return f"the newest revision of {name} ({own[-1].spec.revision}) is not what it asks for"
    numbers = [revision.spec.revision for revision in own]
    twice = any(before == after for before, after in itertools.pairwise(asked))
    if twice or len(set(numbers)) != len(numbers):
        return f"a change of {name} is on record twice: {numbers}"
    return f"{len(own)} revisions of {name} are kept" if len(own) > KEPT else ""
