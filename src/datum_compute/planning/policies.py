"""Which policies the hub needs: one for every city that a project namespace uses, and one that
takes the namespace itself to the cells of those cities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datum_compute.api import labels
from datum_compute.api.clusterpropagationpolicy import ClusterPropagationPolicy
from datum_compute.api.identity import city_policy_name
from datum_compute.api.kinds import CLUSTER_POLICY, DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta import ObjectMeta, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB
from datum_compute.api.propagationpolicy import (
    ClusterAffinity,
    LabelRequirement,
    LabelSelector,
    PropagationPlacement,
    PropagationPolicy,
    PropagationSpec,
    ResourceSelector,
    SpreadConstraint,
    Suspension,
)
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.apply import plan_object
from datum_compute.planning.plan import Action, Delete, Plan

_OURS = {labels.MANAGED_BY: labels.PRODUCT}
# Karmada would run a deployment on every cell of its city; the embedded hub never does.
_ONE_CELL = SpreadConstraint(spread_by_field="cluster", min_groups=1, max_groups=1)
_IDENTITY = (labels.UPSTREAM_CLUSTER, labels.UPSTREAM_NAMESPACE)


def plan_policies(
    namespace: Namespace,
    deployments: Iterable[WorkloadDeployment],
    policies: Sequence[PropagationPolicy],
    namespace_policy: ClusterPropagationPolicy | None,
) -> Plan:
    """``namespace`` is a hub namespace; the rest is what the hub holds for it."""
    if namespace.is_terminating:
        return Plan()
    cities = sorted({d.spec.city_code for d in deployments})
    observed = {p.metadata.name: p for p in policies}
    actions: list[Action] = []
    for city in cities:
        present = observed.pop(city_policy_name(city), None)
        desired = _city_policy(namespace.metadata.name, city, _suspension_of(present))
        actions += plan_object(HUB, POLICY, desired, present, f"{city} is in use")
    actions += _removals(observed.values())
    # A namespace stays in every city it ever went to: taking it from a cell would take along
    # what is still being removed there, and what is just arriving.
    reached = sorted({*cities, *_cities_of(namespace_policy)})
    if reached:
        desired_policy = _namespace_policy(namespace, reached, _suspension_of(namespace_policy))
        actions += plan_object(
            HUB, CLUSTER_POLICY, desired_policy, namespace_policy, f"used in {', '.join(reached)}"
        )
    return Plan(tuple(actions))


def _removals(unused: Iterable[PropagationPolicy]) -> list[Action]:
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
    """An operator's to set and to lift: the only field of a policy that is not ours."""
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
    """With the identity of the namespace, which it may outlive."""
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
