"""The end of a home: the hub namespace of a project namespace, and its policy for the cells.

The policy goes first. While the namespace is there it says whose it was, so a crash in between
leaves nothing that nobody can tell the origin of; and without deployments nobody makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datum_compute.api.clusterpropagationpolicy import ClusterPropagationPolicy
from datum_compute.api.kinds import CLUSTER_POLICY, NAMESPACE
from datum_compute.api.meta import ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB
from datum_compute.planning.actions import Delete, Plan

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
