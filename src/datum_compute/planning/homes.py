"""The end of a home: the hub namespace of a project namespace, and its policy for the cells.

The policy goes first. While the namespace is there it says whose it was, so a crash in between
leaves nothing that nobody can tell the origin of; and without deployments nobody makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datum_compute.api import labels
from datum_compute.api.clusterpropagationpolicy import ClusterPropagationPolicy
from datum_compute.api.identity import encoded_cluster
from datum_compute.api.kinds import CLUSTER_POLICY, NAMESPACE
from datum_compute.api.meta import ObjectMeta, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PlaneName, member_name
from datum_compute.planning.actions import Delete, Plan
from datum_compute.planning.objects import plan_object

REASON = "its project namespace is gone"


@dataclass(frozen=True, slots=True)
class Home:
    """Either may be gone already; what is left says whose it was."""

    namespace: Namespace | None
    policy: ClusterPropagationPolicy | None

    @property
    def identity(self) -> Mapping[str, str]:
        found = self.namespace or self.policy
        return found.metadata.labels if found is not None else {}


def plan_home(home: Home) -> Plan:
    """For a home that is proven empty and without a source. The namespace goes in a later pass
    than the policy, which its end wakes."""
    policy, namespace = home.policy, home.namespace
    if policy is not None:
        if policy.is_terminating:
            return Plan()
        uid, version = policy.metadata.uid, policy.metadata.resource_version
        return Plan((Delete(HUB, CLUSTER_POLICY, ref_of(policy), uid, REASON, version),))
    if namespace is None or namespace.is_terminating:
        return Plan()
    uid, version = namespace.metadata.uid, namespace.metadata.resource_version
    return Plan((Delete(HUB, NAMESPACE, ref_of(namespace), uid, REASON, version),))


def plan_identity(home: Home, project: PlaneName, source: Namespace) -> Plan:
    """Restore the labels of the hub namespace that name its source."""
    if home.namespace is None or home.namespace.is_terminating:
        return Plan()
    named = Namespace(
        metadata=ObjectMeta(
            name=home.namespace.metadata.name, labels=identity_labels(project, source)
        )
    )
    reason = "its labels do not name the project namespace"
    return Plan(tuple(plan_object(HUB, NAMESPACE, named, home.namespace, reason)))


def identity_labels(project: PlaneName, source: Namespace) -> dict[str, str]:
    """Return the labels by which the hub and the cells find the project and its namespace."""
    return {
        labels.UPSTREAM_NAMESPACE: source.metadata.name,
        labels.UPSTREAM_CLUSTER: encoded_cluster(member_name(project)),
    }
