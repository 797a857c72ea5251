"""The hub namespace of a project namespace: its labels, and its deletion.

- While the source exists, the labels that name it are restored if they were edited.
- The hub namespace is deleted only if the source is gone. The uid of a source is never used again,
  so no object can be on its way to the hub namespace of a source that is gone.
- If the project cannot be read, that is no proof, and the hub namespace stays. The exception is a
  namespace that is marked as left by a removed project.
- It must be empty: no objects on the hub, and no Work that carries an object in it to a cell.
- The policy is deleted first. Until then the namespace names its source, so a crash in between
  leaves no object of unknown origin. Without deployments the policy is not created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datum_compute.api import labels
from datum_compute.api.clusterpropagationpolicy import ClusterPropagationPolicy
from datum_compute.api.identity import decoded_project, encoded_cluster, federation_namespace
from datum_compute.api.kinds import CLUSTER_POLICY, NAMESPACE
from datum_compute.api.meta import ObjectMeta, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PlaneName, member_name
from datum_compute.api.work import Work
from datum_compute.planning.apply import plan_object
from datum_compute.planning.plan import Delete, Plan, Wait

REASON = "its project namespace is gone"
RECHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class Home:
    """The hub namespace and its policy, either of which may be gone already."""

    namespace: Namespace | None
    policy: ClusterPropagationPolicy | None

    @property
    def identity(self) -> Mapping[str, str]:
        found = self.namespace or self.policy
        return found.metadata.labels if found is not None else {}

    @property
    def project(self) -> str:
        """The project that the labels name; empty if they name none."""
        return decoded_project(self.identity.get(labels.UPSTREAM_CLUSTER, "")) or ""

    @property
    def is_project_removed(self) -> bool:
        return labels.PROJECT_REMOVED in self.identity

    def names(self, project: PlaneName, source: Namespace) -> bool:
        """Return True if the labels name this source."""
        same_project = self.project == member_name(project)
        return same_project and self.identity.get(labels.UPSTREAM_NAMESPACE) == source.metadata.name


def plan_hub_namespace(
    home: Home, source: tuple[PlaneName, Namespace] | None, *, is_project_readable: bool
) -> Plan | None:
    """Plan from caches. Return None if the namespace may be deleted after live reads confirm it.

    ``source`` is the project namespace with the uid that the hub namespace is named after.
    """
    if source is not None:
        return plan_identity(home, *source)
    if not is_project_readable and not home.is_project_removed:
        return Plan()
    return None


def plan_removal(home: Home, use: str) -> Plan:
    """Plan after the live reads. ``use`` states what still needs the namespace, empty if nothing
    does."""
    if use:
        return Plan((Wait(use),), requeue_after_s=RECHECK_S)
    return plan_home(home)


def namespaces_of_contents(work: Work) -> list[str]:
    """Return the namespaces of the objects that the Work carries to its cell."""
    metadata = [m.get("metadata") for m in work.spec.workload.manifests if isinstance(m, dict)]
    found = [m.get("namespace") for m in metadata if isinstance(m, dict)]
    return [name for name in found if name and isinstance(name, str)]


def plan_home(home: Home) -> Plan:
    """Plan the deletion of an unused hub namespace. The policy is deleted first; its deletion
    wakes the controller, which then deletes the namespace."""
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
    if home.namespace is None or home.namespace.is_terminating or home.names(project, source):
        return Plan()
    desired = hub_namespace(project, source)
    reason = "its labels do not name the project namespace"
    return Plan(tuple(plan_object(HUB, NAMESPACE, desired, home.namespace, reason)))


def hub_namespace(project: PlaneName, source: Namespace) -> Namespace:
    """Return the hub namespace of a project namespace, as it is created."""
    name = federation_namespace(source.metadata.uid)
    return Namespace(metadata=ObjectMeta(name=name, labels=identity_labels(project, source)))


def identity_labels(project: PlaneName, source: Namespace) -> dict[str, str]:
    """Return the labels by which the hub and the cells find the project and its namespace."""
    return {
        labels.UPSTREAM_NAMESPACE: source.metadata.name,
        labels.UPSTREAM_CLUSTER: encoded_cluster(member_name(project)),
    }
