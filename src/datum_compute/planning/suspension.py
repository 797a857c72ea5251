"""What is not sent to cells: held by its policy, or by a hold of its own.

Both are operators' to set and to lift, and both are said in one field of the binding, as with
Karmada. A note on the binding says what the policy has added, so that a policy that is resumed
takes its own hold along and no other; with Karmada it takes both.
"""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.clusterresourcebinding import ClusterResourceBinding
from datum_compute.api.propagationpolicy import SuspendClusters, Suspension
from datum_compute.api.resourcebinding import ResourceBinding

Hold = frozenset[str]  # names of clusters
EVERYWHERE = "*"


def plan_hold(
    binding: ResourceBinding | ClusterResourceBinding | None, policy: Suspension | None
) -> tuple[Suspension | None, dict[str, str]]:
    """What the binding shall say, and its note of what comes from the policy."""
    present = binding.spec.suspension if binding is not None else None
    note = binding.metadata.annotations.get(labels.HELD_BY_POLICY) if binding is not None else None
    said, theirs = _hold(present), _hold(policy)
    own = said - frozenset((note or "").split(","))
    added = ",".join(sorted(theirs - own))
    # As it was written, if it says the same.
    wanted = present if said == own | theirs else _suspension(own | theirs)
    return wanted, {labels.HELD_BY_POLICY: added} if added or note else {}


def _hold(suspension: Suspension | None) -> Hold:
    if suspension is None:
        return frozenset()
    named = suspension.dispatching_on_clusters
    clusters = named.cluster_names if named is not None else []
    return frozenset([*clusters, *([EVERYWHERE] if suspension.dispatching else [])])


def _suspension(hold: Hold) -> Suspension | None:
    if not hold:
        return None
    clusters = sorted(hold - {EVERYWHERE})
    return Suspension(
        dispatching=True if EVERYWHERE in hold else None,
        dispatching_on_clusters=SuspendClusters(cluster_names=clusters) if clusters else None,
    )
