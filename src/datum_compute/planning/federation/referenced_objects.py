"""ConfigMaps and Secrets that deployments refer to (sources): their copies, and their resolution.

Copies on the hub:

- Each source that a deployment refers to has one copy of the same name in the hub namespace, and
  one policy that propagates it to the cities of those deployments.
- References are computed from the existing deployments. The annotation ``referenced-by`` lists
  them; a deployment that is being deleted waits until it is no longer listed.
- When a source is deleted, its copy stays until the last reference is gone, so that running
  instances can restart.
- An object without the label of a copy is not changed.

The resolution states which sources the project has, in which versions, or why they cannot be
delivered. It is an annotation of the deployment, from where it is copied to the cells:

- It belongs to one template. A cell compares the template hash, and waits until it has the versions
  of the resolution. So a restart directly after an edit of a source uses the edited version.
- It is written again only if the template or the set of available sources changes, not for a new
  version of a source.
- A finalizer keeps the deployment until no copy lists it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.referenced_data import Reference, references, sources
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, ConditionValue, Reason
from datum_compute.api.core import Namespace, Secret
from datum_compute.api.karmada import (
    ClusterAffinity,
    PropagationPlacement,
    PropagationPolicy,
    PropagationSpec,
    ResourceSelector,
)
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta.codec import (
    ApiStruct,
    DecodeError,
    decode,
    decode_as,
    sorted_bytes,
    to_json,
)
from datum_compute.api.meta.label_selector import LabelRequirement, LabelSelector
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref, ref_of
from datum_compute.api.planes import HUB, PlaneName, federation_namespace, source_copy_policy_name
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
    ObservedSources,
    SourceObject,
    check_sources,
    delivered_sources,
    has_copy_label,
    size_bytes,
    version_of,
)
from datum_compute.planning.workload.templates import template_hash

# Kubernetes limits names to 253 characters. A Work is named <name>-<ten characters>.
NAME_MAX = 242
# Every plane creates its own object of this name in each namespace.
RESERVED = frozenset({"ConfigMap/kube-root-ca.crt"})
# Upper limit of the delay after a missed event.
RECHECK_S = 60.0

_UNRESOLVED = ConditionValue(
    UNKNOWN, Reason.RESOLVING, "The ConfigMaps and Secrets are being looked up in the project"
)


# ---- Copies

_UNUSED = "no deployment refers to the source"


@dataclass(frozen=True, slots=True)
class SourceCopyState:
    """Objects of the hub for one source.

    ``copies`` are labeled as its copies, in any namespace. ``existing_at_target`` is the object
    that has the name and the namespace of the copy, whether it is a copy or not.
    """

    namespace: Namespace | None
    copies: Sequence[SourceObject]
    existing_at_target: SourceObject | None
    policy: PropagationPolicy | None


def active_references(deployments: Sequence[WorkloadDeployment]) -> list[WorkloadDeployment]:
    """Return the deployments that are not terminating and have the finalizer of this controller."""
    mark = labels.REFERENCED_DATA_FINALIZER
    return [d for d in deployments if mark in d.metadata.finalizers and not d.is_terminating]


def referring_deployments(copy: SourceObject) -> list[str]:
    """Return the deployments that a copy lists, as namespace/name in the project."""
    try:
        found = decode(copy.metadata.annotations.get(labels.REFERENCED_BY, "").encode())
    except DecodeError:
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


def plan_source_copy(
    kind: KindInfo[Any],
    key: tuple[PlaneName, Ref],
    namespace: Namespace | None,
    source: SourceObject | None,
    deployments: Sequence[WorkloadDeployment],
    hub: SourceCopyState,
) -> Plan:
    """Plan the copy of a source and its policy.

    ``key`` and ``namespace`` belong to the source; ``deployments`` refer to it.
    """
    project, ref = key
    active = active_references(deployments)
    target = federation_namespace(namespace.metadata.uid) if namespace is not None else ""
    unused = [c for c in hub.copies if c.metadata.namespace != target or not active]
    actions = [a for copy in unused for a in plan_copy_deletion(HUB, kind, copy, _UNUSED)]
    if not active or namespace is None:
        return Plan((*actions, *_policy_removal(hub.policy)))
    if hub.namespace is not None and hub.namespace.is_terminating:
        return Plan((*actions, Wait(f"hub namespace {target} is being removed")), RECHECK_S)
    if hub.existing_at_target is not None and not has_copy_label(hub.existing_at_target):
        waiting = Wait(f"the hub has another {kind.kind} {ref.name}")
        return Plan((*actions, waiting), RECHECK_S)
    desired_namespace = hub_namespace(project, namespace)
    actions += plan_object(
        HUB, NAMESPACE, desired_namespace, hub.namespace, "hub namespace of the project namespace"
    )
    actions += _plan_copy_of_source(kind, desired_namespace, source, active, hub.existing_at_target)
    policy = _build_policy(kind, Ref(target, ref.name), active)
    actions += plan_object(
        HUB, POLICY, policy, hub.policy, "propagates to the cities of its deployments"
    )
    return Plan(tuple(actions))


def _plan_copy_of_source(
    kind: KindInfo[Any],
    target: Namespace,
    source: SourceObject | None,
    active: Sequence[WorkloadDeployment],
    observed: SourceObject | None,
) -> list[Action]:
    if source is not None and _is_deliverable(source):
        content, version = source, source.metadata.resource_version
    elif observed is not None:
        content, version = observed, version_of(observed)
    else:
        return []
    desired = _desired_source_copy(target, content, version, active)
    retyped = observed is not None and _secret_type(observed) != _secret_type(content)
    recreate = "the type of a Secret cannot be changed" if retyped else ""
    return plan_mirror(
        HUB, kind, desired, observed, "copy of the project's object", recreate=recreate
    )


def _is_deliverable(source: SourceObject) -> bool:
    fits = size_bytes(source) <= SOURCE_BYTES_MAX and len(source.metadata.name) <= NAME_MAX
    return fits and not source.is_terminating


def _secret_type(held: SourceObject) -> str:
    return held.type if isinstance(held, Secret) else ""


def _desired_source_copy(
    target: Namespace,
    content: SourceObject,
    version: str,
    active: Sequence[WorkloadDeployment],
) -> SourceObject:
    names = sorted(str(ref_of(deployment)) for deployment in active)
    mark = Marks(
        {**target.metadata.labels, labels.REFERENCED_DATA: "true"},
        {labels.SOURCE_VERSION: version, labels.REFERENCED_BY: sorted_bytes(names).decode()},
    )
    return desired_copy(content, target.metadata.name, carry=Marks(), mark=mark)


def _build_policy(
    kind: KindInfo[Any], ref: Ref, active: Sequence[WorkloadDeployment]
) -> PropagationPolicy:
    cities = sorted({d.spec.city_code for d in active})
    served = LabelRequirement(key=labels.TOPOLOGY_CITY, operator="In", values=cities)
    in_cities = LabelSelector(match_expressions=[served])
    selector = ResourceSelector(api_version=kind.api_version, kind=kind.kind, name=ref.name)
    return PropagationPolicy(
        metadata=ObjectMeta(
            name=source_copy_policy_name(kind.kind, ref.name),
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


# ---- Resolution


class SourceResolution(ApiStruct, frozen=True, kw_only=True):
    """What was found in the project for the references of a template.

    ``versions`` are by ``Kind/name``. They are empty if ``reason`` states a problem.
    """

    template_hash: str = ""
    versions: dict[str, str] = {}
    reason: str = ""
    message: str = ""


def recorded_resolution(deployment: WorkloadDeployment) -> SourceResolution | None:
    """Return the resolution in the annotations; None if missing or malformed."""
    text = deployment.metadata.annotations.get(labels.RESOLVED_DATA, "")
    try:
        return decode_as(text.encode(), SourceResolution) if text else None
    except DecodeError:
        return None


def resolve_sources(deployment: WorkloadDeployment, observed: ObservedSources) -> SourceResolution:
    wanted, current = references(deployment.spec.template), template_hash(deployment.spec.template)
    verdict = _name_verdict(wanted) or check_sources(wanted, observed)
    if verdict.status != TRUE:
        return SourceResolution(
            template_hash=current, reason=str(verdict.reason), message=verdict.message
        )
    held = delivered_sources(wanted, observed)
    versions = {str(source): obj.metadata.resource_version for source, obj in held.items()}
    return SourceResolution(template_hash=current, versions=versions)


def _name_verdict(wanted: Sequence[Reference]) -> ConditionValue | None:
    too_long = [str(source) for source in sources(wanted) if len(source.name) > NAME_MAX]
    if too_long:
        message = f"Longer than {NAME_MAX} characters: {', '.join(too_long)}"
        return ConditionValue(FALSE, Reason.SOURCE_NAME_TOO_LONG, message[:1024])
    reserved = [str(source) for source in sources(wanted) if str(source) in RESERVED]
    if reserved:
        message = f"{reserved[0]} is not delivered: cells create their own; copy it to another name"
        return ConditionValue(FALSE, Reason.SOURCE_NAME_RESERVED, message)
    return None


def is_same_resolution(deployment: WorkloadDeployment, found: SourceResolution) -> bool:
    """Return True if the recorded resolution need not be replaced. Versions are not compared."""
    old = recorded_resolution(deployment)
    if old is None:
        return not references(deployment.spec.template)
    return (
        old.template_hash == found.template_hash
        and (old.reason, old.message) == (found.reason, found.message)
        and set(old.versions) == set(found.versions)
    )


def plan_release(
    project: PlaneName, deployment: WorkloadDeployment, remaining_copies: Sequence[str]
) -> Plan:
    """Release the deployment when ``remaining_copies``, the copies that list it, is empty."""
    mark = labels.REFERENCED_DATA_FINALIZER
    release = drop_finalizer(project, DEPLOYMENT, deployment, mark, waiting_for=remaining_copies)
    return Plan(tuple(release), requeue_after_s=RECHECK_S if remaining_copies else None)


def plan_resolution(
    project: PlaneName, deployment: WorkloadDeployment, found: SourceResolution
) -> Plan:
    mark = labels.REFERENCED_DATA_FINALIZER
    if references(deployment.spec.template):
        guard = add_finalizer(project, DEPLOYMENT, deployment, mark)
        if guard:
            return Plan(tuple(guard))
    requeue_s = RECHECK_S if found.reason else None
    if is_same_resolution(deployment, found):
        return Plan(requeue_after_s=requeue_s)
    metadata = {
        "resourceVersion": deployment.metadata.resource_version,
        "annotations": {
            labels.EXPECTED_DATA: sorted_bytes(sorted(found.versions)).decode(),
            labels.RESOLVED_DATA: sorted_bytes(to_json(found)).decode(),
        },
    }
    reason = found.reason or "its ConfigMaps and Secrets were looked up"
    patch = Patch(project, DEPLOYMENT, ref_of(deployment), {"metadata": metadata}, reason)
    return Plan((patch,), requeue_after_s=requeue_s)


def propagated_annotations(deployment: WorkloadDeployment) -> dict[str, str]:
    """Return the annotations that the hub's copy of the deployment receives."""
    annotations = deployment.metadata.annotations
    names = (labels.EXPECTED_DATA, labels.RESOLVED_DATA)
    return {name: annotations[name] for name in names if name in annotations}


def data_ready_condition(
    deployment: WorkloadDeployment | None,
    template: str,
    wanted: Sequence[Reference],
    observed: ObservedSources,
) -> ConditionValue:
    """Return whether the sources of an instance with this template hash are on its plane.

    A deployment that was copied from a project must have a resolution for this template. Any other
    deployment finds its sources on its own plane.
    """
    if deployment is None:
        return _UNRESOLVED
    if labels.SOURCE_GENERATION not in deployment.metadata.annotations:
        return check_sources(wanted, observed)
    found = recorded_resolution(deployment)
    if found is None or found.template_hash != template:
        return _UNRESOLVED
    if found.reason:
        return ConditionValue(FALSE, found.reason, found.message)
    missing = [
        str(source)
        for source in sources(wanted)
        if (version := found.versions.get(str(source)))
        and not _is_current_version(observed.present.get(source), version)
    ]
    if missing:
        message = f"Waiting for the cell to get {', '.join(missing)}"
        return ConditionValue(FALSE, Reason.AWAITING_PROPAGATION, message[:1024])
    return check_sources(wanted, observed)


def _is_current_version(held: SourceObject | None, version: str) -> bool:
    if held is None:
        return False
    arrived = version_of(held)
    if arrived.isdecimal() and version.isdecimal():
        return int(arrived) >= int(version)
    return arrived == version
