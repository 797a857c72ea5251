"""The hub namespace of a project namespace: its labels, its deletion and its policies.

Labels and deletion; the source is the project namespace:

- While the source exists, the labels that name it are restored if they were edited.
- The hub namespace is deleted only if the source is gone. The uid of a source is never reused, so
  no new object can arrive in the hub namespace of a source that is gone.
- A deployment in the hub namespace of a source that is gone is deleted if it is a copy: a project
  releases its deployments only after their copies are gone, so a restore from a backup has brought
  it back. A deployment without the annotation of the federator is no copy and stays.
- If the project cannot be read, the source is not proven to be gone, and the hub namespace stays.
  The exception is a hub namespace that is marked as left by a removed project.
- The hub namespace must be empty: no objects on the hub, and no Work that carries an object in it
  to a cell.
- The policy is deleted before the namespace. The namespace names the source until the end, so a
  crash between the two deletions leaves no object of unknown source. Without deployments the policy
  is not created again.

Policies: one for each city that deployments in the hub namespace use, and one that propagates the
namespace itself to the cells of those cities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import (
    ClusterAffinity,
    ClusterPropagationPolicy,
    PropagationPlacement,
    PropagationPolicy,
    PropagationSpec,
    ResourceSelector,
    SpreadConstraint,
    Suspension,
    Work,
)
from datum_compute.api.kinds import CLUSTER_POLICY, DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta.label_selector import LabelRequirement, LabelSelector
from datum_compute.api.meta.objects import ObjectMeta, ref_of
from datum_compute.api.planes import (
    HUB,
    PlaneName,
    city_policy_name,
    decode_project_label,
    encode_cluster_label,
    federation_namespace,
    member_name,
)
from datum_compute.planning.apply import plan_object
from datum_compute.planning.federation.mirror import plan_copy_deletion
from datum_compute.planning.plan import Action, Delete, Plan, Wait

REASON = "its project namespace is gone"
RECHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class HubNamespace:
    """The hub namespace and its policy, either of which may be gone already."""

    namespace: Namespace | None
    policy: ClusterPropagationPolicy | None

    @property
    def identity(self) -> Mapping[str, str]:
        labeled = self.namespace or self.policy
        return labeled.metadata.labels if labeled is not None else {}

    @property
    def project(self) -> str:
        """The project that the labels name; empty if they name none."""
        return decode_project_label(self.identity.get(labels.UPSTREAM_CLUSTER, "")) or ""

    @property
    def is_project_removed(self) -> bool:
        return labels.PROJECT_REMOVED in self.identity

    def is_for(self, project: PlaneName, source: Namespace) -> bool:
        """Return True if the labels name this source."""
        same_project = self.project == member_name(project)
        return same_project and self.identity.get(labels.UPSTREAM_NAMESPACE) == source.metadata.name


def plan_hub_namespace(
    observed: HubNamespace, source: tuple[PlaneName, Namespace] | None, *, is_project_readable: bool
) -> Plan | None:
    """Return the plan that follows from cached objects.

    Return None if the namespace appears to be unused; live reads have to confirm that before it is
    deleted. ``source`` is the project namespace whose uid is in the name of the hub namespace.
    """
    if source is not None:
        return plan_identity_labels(observed, *source)
    if not is_project_readable and not observed.is_project_removed:
        return Plan((Wait("the project cannot be read"),), requeue_after_s=RECHECK_S)
    return None


def plan_orphan_deletions(deployments: Iterable[WorkloadDeployment]) -> Plan:
    """Plan the deletion of the copies in a hub namespace whose source is gone."""
    actions = [
        action
        for deployment in deployments
        if labels.SOURCE_GENERATION in deployment.metadata.annotations
        for action in plan_copy_deletion(HUB, DEPLOYMENT, deployment, REASON, unchanged=True)
    ]
    return Plan(tuple(actions), requeue_after_s=RECHECK_S if actions else None)


def plan_removal(observed: HubNamespace, use: str) -> Plan:
    """Return the plan that follows from live reads.

    ``use`` states what still needs the namespace; it is empty if nothing does.
    """
    if use:
        return Plan((Wait(use),), requeue_after_s=RECHECK_S)
    return plan_namespace_deletion(observed)


def namespaces_of_contents(work: Work) -> list[str]:
    """Return the namespaces of the objects that the Work carries to its cell."""
    metadata = [m.get("metadata") for m in work.spec.workload.manifests if isinstance(m, dict)]
    found = [m.get("namespace") for m in metadata if isinstance(m, dict)]
    return [name for name in found if name and isinstance(name, str)]


def plan_namespace_deletion(observed: HubNamespace) -> Plan:
    """Plan the deletion of an unused hub namespace.

    The policy is deleted first. The event of its deletion starts the reconcile that deletes the
    namespace.
    """
    policy, namespace = observed.policy, observed.namespace
    if policy is not None:
        if policy.is_terminating:
            return Plan()
        uid, version = policy.metadata.uid, policy.metadata.resource_version
        return Plan((Delete(HUB, CLUSTER_POLICY, ref_of(policy), uid, REASON, version),))
    if namespace is None or namespace.is_terminating:
        return Plan()
    uid, version = namespace.metadata.uid, namespace.metadata.resource_version
    return Plan((Delete(HUB, NAMESPACE, ref_of(namespace), uid, REASON, version),))


def plan_identity_labels(observed: HubNamespace, project: PlaneName, source: Namespace) -> Plan:
    """Restore the labels of the hub namespace that name its source."""
    if (
        observed.namespace is None
        or observed.namespace.is_terminating
        or observed.is_for(project, source)
    ):
        return Plan()
    desired = hub_namespace(project, source)
    reason = "its labels do not name the project namespace"
    return Plan(tuple(plan_object(HUB, NAMESPACE, desired, observed.namespace, reason)))


def hub_namespace(project: PlaneName, source: Namespace) -> Namespace:
    """Return the hub namespace of a project namespace, as it is created."""
    name = federation_namespace(source.metadata.uid)
    return Namespace(metadata=ObjectMeta(name=name, labels=identity_labels(project, source)))


def identity_labels(project: PlaneName, source: Namespace) -> dict[str, str]:
    """Return the labels by which the hub and the cells find the project and its namespace."""
    return {
        labels.UPSTREAM_NAMESPACE: source.metadata.name,
        labels.UPSTREAM_CLUSTER: encode_cluster_label(member_name(project)),
    }


_OURS = {labels.MANAGED_BY: labels.PRODUCT}
# Karmada would run a deployment on every cell of its city. The embedded hub always selects one.
_ONE_CELL = SpreadConstraint(spread_by_field="cluster", min_groups=1, max_groups=1)
_IDENTITY = (labels.UPSTREAM_CLUSTER, labels.UPSTREAM_NAMESPACE)


def plan_policies(
    namespace: Namespace,
    deployments: Iterable[WorkloadDeployment],
    policies: Sequence[PropagationPolicy],
    namespace_policy: ClusterPropagationPolicy | None,
) -> Plan:
    """Plan the policies of a hub namespace.

    ``deployments`` and ``policies`` are those in the hub namespace. ``namespace_policy`` is the
    existing policy that propagates the namespace itself.
    """
    if namespace.is_terminating:
        return Plan()
    cities = sorted({d.spec.city_code for d in deployments})
    observed = {p.metadata.name: p for p in policies}
    actions: list[Action] = []
    for city in cities:
        present = observed.pop(city_policy_name(city), None)
        desired = _city_policy(namespace.metadata.name, city, _suspension_of(present))
        actions += plan_object(HUB, POLICY, desired, present, f"{city} is in use")
    actions += _delete_policies(observed.values())
    # The namespace stays on every cell that ever received it. Its removal from a cell would also
    # delete objects that are still terminating there, and objects that are just arriving.
    reached = sorted({*cities, *_cities_of(namespace_policy)})
    if reached:
        desired_policy = _namespace_policy(namespace, reached, _suspension_of(namespace_policy))
        actions += plan_object(
            HUB, CLUSTER_POLICY, desired_policy, namespace_policy, f"used in {', '.join(reached)}"
        )
    return Plan(tuple(actions))


def _delete_policies(unused: Iterable[PropagationPolicy]) -> list[Action]:
    return [
        Delete(
            HUB,
            POLICY,
            ref_of(policy),
            policy.metadata.uid,
            "no deployment uses its city",
            version=policy.metadata.resource_version,
        )
        for policy in unused
        if policy.metadata.labels.get(labels.MANAGED_BY) == labels.PRODUCT
    ]


def _suspension_of(
    policy: PropagationPolicy | ClusterPropagationPolicy | None,
) -> Suspension | None:
    """Return the suspension, which operators set. No other field of a policy is kept."""
    return policy.spec.suspension if policy is not None else None


def _city_policy(namespace: str, city: str, suspension: Suspension | None) -> PropagationPolicy:
    in_city = LabelSelector(match_labels={labels.TOPOLOGY_CITY: city})
    return PropagationPolicy(
        metadata=ObjectMeta(name=city_policy_name(city), namespace=namespace, labels=_OURS),
        spec=PropagationSpec(
            resource_selectors=[
                ResourceSelector(
                    api_version=DEPLOYMENT.api_version, kind=DEPLOYMENT.kind, label_selector=in_city
                )
            ],
            placement=PropagationPlacement(
                cluster_affinity=ClusterAffinity(label_selector=in_city),
                spread_constraints=[_ONE_CELL],
            ),
            suspension=suspension,
        ),
    )


def _cities_of(policy: ClusterPropagationPolicy | None) -> list[str]:
    selector = policy.spec.placement.cluster_affinity.label_selector if policy else None
    requirements = selector.match_expressions if selector else []
    return [city for r in requirements if r.key == labels.TOPOLOGY_CITY for city in r.values]


def _namespace_policy(
    namespace: Namespace, cities: list[str], suspension: Suspension | None
) -> ClusterPropagationPolicy:
    """Return the policy that propagates the namespace itself.

    It has the identity labels of the namespace, because the policy may exist longer.
    """
    name, known = namespace.metadata.name, namespace.metadata.labels
    identity = {key: known[key] for key in _IDENTITY if key in known}
    in_cities = LabelSelector(
        match_expressions=[LabelRequirement(key=labels.TOPOLOGY_CITY, operator="In", values=cities)]
    )
    return ClusterPropagationPolicy(
        metadata=ObjectMeta(name=name, labels={**_OURS, **identity}),
        spec=PropagationSpec(
            resource_selectors=[
                ResourceSelector(api_version=NAMESPACE.api_version, kind=NAMESPACE.kind, name=name)
            ],
            placement=PropagationPlacement(
                cluster_affinity=ClusterAffinity(label_selector=in_cities)
            ),
            suspension=suspension,
        ),
    )
