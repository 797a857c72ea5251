"""Quota claims that no cell will release, because the cell or its namespace is gone.

While the cell is a member and has the namespace, its claims are its own, whether it answers or not:
the instances they were granted for may run.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.kinds import CLAIM
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.planning.plan import Action, Delete, Plan, drop_finalizer


def plan_left_claims(project: PlaneName, claims: Sequence[ResourceClaim], reason: str) -> Plan:
    """Delete the claims, then remove their finalizer, as the cell would.

    The caller has proven that no instance can run on them.
    """
    actions: list[Action] = []
    for claim in claims:
        if claim.is_terminating:
            actions += drop_finalizer(project, CLAIM, claim, labels.CLAIM_FINALIZER)
        else:
            actions.append(Delete(project, CLAIM, ref_of(claim), claim.metadata.uid, reason))
    return Plan(tuple(actions))
