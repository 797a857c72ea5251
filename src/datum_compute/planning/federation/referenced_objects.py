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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api import labels
from datum_compute.api.codec import DecodeError, decode, sorted_bytes
from datum_compute.api.identity import companion_policy_name, federation_namespace
from datum_compute.api.kinds import NAMESPACE, POLICY
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
from datum_compute.planning.plan import Action, Delete, Plan, Wait
from datum_compute.planning.resolution import NAME_MAX
from datum_compute.planning.rollout.referenced_data import (
    SOURCE_BYTES_MAX,
    Held,
    is_companion,
    size_bytes,
    version_of,
)

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
