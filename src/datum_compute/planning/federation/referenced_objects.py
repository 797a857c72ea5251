"""Companions: the copies of a project's ConfigMaps and Secrets on the hub, and where they go.

Rules kept here:
- One companion for each source that some deployment refers to, of the same name, in the hub
  namespace of its namespace; and one policy that takes it to the cities of those deployments and
  to no others.
- The references are counted from the deployments that are there, not from a number that is kept;
  ``referenced-by`` shows the count and is what the deployments wait for when they go.
- A source that goes leaves its companion where it is while somebody refers to it: what runs can
  start again. It goes with the last reference.
- Nothing that is not marked as a companion is ever touched.

What a project found of the ConfigMaps and Secrets of a deployment, on record for its cells.

The record travels with the deployment as annotations. It speaks about one template, so a cell can
tell whether the project has looked since the template changed: only then does it say which
versions are to be waited for (a restart right after an edit gets the edit), or what is missing.
For one template it is written again only when what is there or missing changes; a source that is
edited changes nothing here.

A deployment with data is kept (finalizer) until no copy of a source is there for its sake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api import labels
from datum_compute.api.codec import ApiStruct, DecodeError, decode, decode_as, plain, sorted_bytes
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, ConditionValue
from datum_compute.api.identity import companion_policy_name, federation_namespace
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta import KindInfo, ObjectMeta, Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.api.propagationpolicy import (
    ClusterAffinity,
    LabelRequirement,
    LabelSelector,
    PropagationPlacement,
    PropagationPolicy,
    PropagationSpec,
    ResourceSelector,
)
from datum_compute.api.reasons import Reason
from datum_compute.api.references import Reference, references, sources
from datum_compute.api.secret import Secret
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.apply import plan_object
from datum_compute.planning.federation.hub_namespaces import hub_namespace
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.plan import (
    Action,
    Delete,
    Patch,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.rollout.referenced_data import (
    SOURCE_BYTES_MAX,
    Held,
    ObservedSources,
    data_verdict,
    is_companion,
    size_bytes,
    taken,
    version_of,
)
from datum_compute.planning.workload.templates import template_hash

# Names end at 253. A Work of the hub is named <name>-<ten characters>.
NAME_MAX = 242
# Every plane has one of its own in each namespace, which is no copy of anything.
RESERVED = frozenset({"ConfigMap/kube-root-ca.crt"})
# A missed event costs at most this long.


_NOT_LOOKED = ConditionValue(
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


def _name_verdict(wanted: Sequence[Reference]) -> ConditionValue | None:
    long = [str(source) for source in sources(wanted) if len(source.name) > NAME_MAX]
    if long:
        message = f"Longer than {NAME_MAX} characters: {', '.join(long)}"
        return ConditionValue(FALSE, Reason.SOURCE_NAME_TOO_LONG, message[:1024])
    own = [str(source) for source in sources(wanted) if str(source) in RESERVED]
    if own:
        message = f"{own[0]} is not delivered: cells have one of their own; copy it to another name"
        return ConditionValue(FALSE, Reason.SOURCE_NAME_RESERVED, message)
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
    release = drop_finalizer(project, DEPLOYMENT, deployment, mark, waiting_for=held_back_by)
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
) -> ConditionValue:
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
        return ConditionValue(FALSE, found.reason, found.message)
    missing = [
        str(source)
        for source in sources(wanted)
        if (version := found.versions.get(str(source)))
        and not _is_as_new(observed.held.get(source), version)
    ]
    if missing:
        message = f"Waiting for the cell to get {', '.join(missing)}"
        return ConditionValue(FALSE, Reason.AWAITING_PROPAGATION, message[:1024])
    return data_verdict(wanted, observed)


def _is_as_new(held: Held | None, version: str) -> bool:
    if held is None:
        return False
    arrived = version_of(held)
    if arrived.isdecimal() and version.isdecimal():
        return int(arrived) >= int(version)
    return arrived == version


RECHECK_S = 60.0
_UNUSED = "no deployment refers to the source"


@dataclass(frozen=True, slots=True)
class CompanionState:
    """What the hub holds for one source. ``companions`` are those that say they are its copies, in
    whichever namespace; ``taken`` is whatever has the companion's name where it belongs."""

    namespace: Namespace | None
    companions: Sequence[Held]
    taken: Held | None
    policy: PropagationPolicy | None


def referrers(deployments: Sequence[WorkloadDeployment]) -> list[WorkloadDeployment]:
    """Those that count: they stay, and have said that they wait for the copies when they go."""
    mark = labels.REFERENCED_DATA_FINALIZER
    return [d for d in deployments if mark in d.metadata.finalizers and not d.is_terminating]


def referenced_by(companion: Held) -> list[str]:
    """The deployments, as namespace/name in the project."""
    try:
        found = decode(companion.metadata.annotations.get(labels.REFERENCED_BY, "").encode())
    except DecodeError:
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


def plan_companion(
    kind: KindInfo[Any],
    key: tuple[PlaneName, Ref],
    namespace: Namespace | None,
    source: Held | None,
    deployments: Sequence[WorkloadDeployment],
    hub: CompanionState,
) -> Plan:
    """``key`` and ``namespace`` are those of the source; ``deployments`` refer to it."""
    project, ref = key
    counted = referrers(deployments)
    target = federation_namespace(namespace.metadata.uid) if namespace is not None else ""
    strays = [c for c in hub.companions if c.metadata.namespace != target or not counted]
    actions = [a for stray in strays for a in plan_copy_deletion(HUB, kind, stray, _UNUSED)]
    if not counted or namespace is None:
        return Plan((*actions, *_policy_removal(hub.policy)))
    if hub.namespace is not None and hub.namespace.is_terminating:
        return Plan((*actions, Wait(f"hub namespace {target} is being removed")), RECHECK_S)
    if hub.taken is not None and not is_companion(hub.taken):
        waiting = Wait(f"the hub has a {kind.kind} {ref.name} of its own")
        return Plan((*actions, waiting), RECHECK_S)
    home = hub_namespace(project, namespace)
    actions += plan_object(HUB, NAMESPACE, home, hub.namespace, "home of the project namespace")
    actions += _upsert(kind, home, source, counted, hub.taken)
    policy = _policy(kind, Ref(target, ref.name), counted)
    actions += plan_object(HUB, POLICY, policy, hub.policy, "where its deployments are")
    return Plan(tuple(actions))


def _upsert(
    kind: KindInfo[Any],
    home: Namespace,
    source: Held | None,
    counted: Sequence[WorkloadDeployment],
    observed: Held | None,
) -> list[Action]:
    if source is not None and _is_deliverable(source):
        content, version = source, source.metadata.resource_version
    elif observed is not None:
        content, version = observed, version_of(observed)
    else:
        return []
    desired = _companion(home, content, version, counted)
    retyped = observed is not None and _type(observed) != _type(content)
    recreate = "the type of a Secret cannot be changed" if retyped else ""
    return plan_mirror(HUB, kind, desired, observed, "copy of the project's", recreate=recreate)


def _is_deliverable(source: Held) -> bool:
    small = size_bytes(source) <= SOURCE_BYTES_MAX and len(source.metadata.name) <= NAME_MAX
    return small and not source.is_terminating


def _type(held: Held) -> str:
    return held.type if isinstance(held, Secret) else ""


def _companion(
    home: Namespace, content: Held, version: str, counted: Sequence[WorkloadDeployment]
) -> Held:
    names = sorted(str(ref_of(deployment)) for deployment in counted)
    mark = Marks(
        {**home.metadata.labels, labels.REFERENCED_DATA: "true"},
        {labels.SOURCE_VERSION: version, labels.REFERENCED_BY: sorted_bytes(names).decode()},
    )
    return desired_copy(content, home.metadata.name, carry=Marks(), mark=mark)


def _policy(
    kind: KindInfo[Any], ref: Ref, counted: Sequence[WorkloadDeployment]
) -> PropagationPolicy:
    cities = sorted({d.spec.city_code for d in counted})
    served = LabelRequirement(key=labels.TOPOLOGY_CITY, operator="In", values=cities)
    in_cities = LabelSelector(match_expressions=[served])
    selector = ResourceSelector(api_version=kind.api_version, kind=kind.kind, name=ref.name)
    return PropagationPolicy(
        metadata=ObjectMeta(
            name=companion_policy_name(kind.kind, ref.name),
            namespace=ref.namespace,
            labels={labels.REFERENCED_DATA: "true"},
        ),
        spec=PropagationSpec(
            resource_selectors=[selector],
            placement=PropagationPlacement(
                cluster_affinity=ClusterAffinity(label_selector=in_cities)
            ),
        ),
    )


def _policy_removal(policy: PropagationPolicy | None) -> list[Action]:
    if policy is None or policy.metadata.labels.get(labels.REFERENCED_DATA) != "true":
        return []
    uid = policy.metadata.uid
    return [Delete(HUB, POLICY, ref_of(policy), uid, _UNUSED)]
