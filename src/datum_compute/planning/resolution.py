"""What a project found of the ConfigMaps and Secrets of a deployment, on record for its cells.

The record travels with the deployment as annotations. It speaks about one template, so a cell can
tell whether the project has looked since the template changed: only then does it say which
versions are to be waited for (a restart right after an edit gets the edit), or what is missing.
For one template it is written again only when what is there or missing changes; a source that is
edited changes nothing here.

A deployment with data is kept (finalizer) until no copy of a source is there for its sake.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.codec import ApiStruct, DecodeError, decode_as, plain, sorted_bytes
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, Verdict
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.references import Reference, references, sources
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.plan import Patch, Plan, add_finalizer, drop_finalizer
from datum_compute.planning.rollout.referenced_data import (
    Held,
    ObservedSources,
    data_verdict,
    taken,
    version_of,
)
from datum_compute.planning.template import template_hash

# Names end at 253. A Work of the hub is named <name>-<ten characters>.
NAME_MAX = 242
# Every plane has one of its own in each namespace, which is no copy of anything.
RESERVED = frozenset({"ConfigMap/kube-root-ca.crt"})
# A missed event costs at most this long.
RECHECK_S = 60.0

_NOT_LOOKED = Verdict(
    UNKNOWN, Reason.RESOLVING, "The ConfigMaps and Secrets are being looked up in the project"
)


class Resolved(ApiStruct, frozen=True, kw_only=True):
    """``versions`` by Kind/name; empty while ``reason`` says what is wrong with the sources."""

    template_hash: str = ""
    versions: dict[str, str] = {}
    reason: str = ""
    message: str = ""


def resolved(deployment: WorkloadDeployment) -> Resolved | None:
    """What is on record; None if nothing is, or nothing that can be read."""
    text = deployment.metadata.annotations.get(labels.RESOLVED_DATA, "")
    try:
        return decode_as(text.encode(), Resolved) if text else None
    except DecodeError:
        return None


def resolve(deployment: WorkloadDeployment, observed: ObservedSources) -> Resolved:
    wanted, current = references(deployment.spec.template), template_hash(deployment.spec.template)
    verdict = _name_verdict(wanted) or data_verdict(wanted, observed)
    if verdict.status != TRUE:
        return Resolved(template_hash=current, reason=str(verdict.reason), message=verdict.message)
    held = taken(wanted, observed)
    versions = {str(source): obj.metadata.resource_version for source, obj in held.items()}
    return Resolved(template_hash=current, versions=versions)


def _name_verdict(wanted: Sequence[Reference]) -> Verdict | None:
    long = [str(source) for source in sources(wanted) if len(source.name) > NAME_MAX]
    if long:
        message = f"Longer than {NAME_MAX} characters: {', '.join(long)}"
        return Verdict(FALSE, Reason.SOURCE_NAME_TOO_LONG, message[:1024])
    own = [str(source) for source in sources(wanted) if str(source) in RESERVED]
    if own:
        message = f"{own[0]} is not delivered: cells have one of their own; copy it to another name"
        return Verdict(FALSE, Reason.SOURCE_NAME_RESERVED, message)
    return None


def is_settled(deployment: WorkloadDeployment, found: Resolved) -> bool:
    """Whether what is on record still holds; other versions of the same sources are no news."""
    old = resolved(deployment)
    if old is None:
        return not references(deployment.spec.template)
    return (
        old.template_hash == found.template_hash
        and (old.reason, old.message) == (found.reason, found.message)
        and set(old.versions) == set(found.versions)
    )


def plan_release(
    project: PlaneName, deployment: WorkloadDeployment, held_back_by: Sequence[str]
) -> Plan:
    """``held_back_by`` are the copies that are still on the hub for its sake."""
    mark = labels.REFERENCED_DATA_FINALIZER
    release = drop_finalizer(project, DEPLOYMENT, deployment, mark, unfinished=held_back_by)
    return Plan(tuple(release), requeue_after_s=RECHECK_S if held_back_by else None)


def plan_resolution(project: PlaneName, deployment: WorkloadDeployment, found: Resolved) -> Plan:
    mark = labels.REFERENCED_DATA_FINALIZER
    if references(deployment.spec.template):
        guard = add_finalizer(project, DEPLOYMENT, deployment, mark)
        if guard:
            return Plan(tuple(guard))
    requeue_s = RECHECK_S if found.reason else None
    if is_settled(deployment, found):
        return Plan(requeue_after_s=requeue_s)
    metadata = {
        "resourceVersion": deployment.metadata.resource_version,
        "annotations": {
            labels.EXPECTED_DATA: sorted_bytes(sorted(found.versions)).decode(),
            labels.RESOLVED_DATA: sorted_bytes(plain(found)).decode(),
        },
    }
    reason = found.reason or "its data is looked up"
    patch = Patch(project, DEPLOYMENT, ref_of(deployment), {"metadata": metadata}, reason)
    return Plan((patch,), requeue_after_s=requeue_s)


def carried(deployment: WorkloadDeployment) -> dict[str, str]:
    """The annotations that go to the hub with the deployment."""
    annotations = deployment.metadata.annotations
    names = (labels.EXPECTED_DATA, labels.RESOLVED_DATA)
    return {name: annotations[name] for name in names if name in annotations}


def arrival_verdict(
    deployment: WorkloadDeployment | None,
    template: str,
    wanted: Sequence[Reference],
    observed: ObservedSources,
) -> Verdict:
    """Whether an instance made from ``template`` (its hash) has its data on its plane. A deployment
    that comes from a project must have the project's word first; any other finds its sources
    beside it."""
    if deployment is None:
        return _NOT_LOOKED
    if labels.SOURCE_GENERATION not in deployment.metadata.annotations:
        return data_verdict(wanted, observed)
    found = resolved(deployment)
    if found is None or found.template_hash != template:
        return _NOT_LOOKED
    if found.reason:
        return Verdict(FALSE, found.reason, found.message)
    missing = [
        str(source)
        for source in sources(wanted)
        if (version := found.versions.get(str(source)))
        and not _is_as_new(observed.held.get(source), version)
    ]
    if missing:
        message = f"Waiting for the cell to get {', '.join(missing)}"
        return Verdict(FALSE, Reason.AWAITING_PROPAGATION, message[:1024])
    return data_verdict(wanted, observed)


def _is_as_new(held: Held | None, version: str) -> bool:
    if held is None:
        return False
    arrived = version_of(held)
    if arrived.isdecimal() and version.isdecimal():
        return int(arrived) >= int(version)
    return arrived == version
