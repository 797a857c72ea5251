"""Quota claims that a cell has left behind: with it went whoever could give them back.

A claim bears the name of its cell. While the cell is a member, silent or not, its claims are its
own: what they were given for may run. One that has left is forgotten with all that it had, so what
it held is free for others.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.kinds import CLAIM
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.planning.actions import Action, Delete, Plan, drop_finalizer


def plan_left_claims(project: PlaneName, cell: str, claims: Sequence[ResourceClaim]) -> Plan:
    """``cell`` is proven to be no member; ``claims`` are those of the project that bear its name.
    Deleted first, then let go, as the cell would."""
    actions: list[Action] = []
    for claim in claims:
        if claim.is_terminating:
            actions += drop_finalizer(project, CLAIM, claim, labels.CLAIM_FINALIZER)
        else:
            uid, reason = claim.metadata.uid, f"cell {cell} has left"
            actions.append(Delete(project, CLAIM, ref_of(claim), uid, reason))
    return Plan(tuple(actions))
