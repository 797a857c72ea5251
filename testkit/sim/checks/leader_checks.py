"""The check of leader election (F16): a manager that does not hold the lease sends no write.

It is checked when a write is sent, because a request that is already under way must be harmless by
itself.
"""

from __future__ import annotations

from datum_compute.api.exchange import Request
from datum_compute.api.kinds import LEASE
from datum_compute.api.plane import HUB
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.truth import Truth
from testkit.sim.leading import LEADER_LEASES, LEASE_NAMESPACE
from testkit.sim.scenario.layout import MANAGERS
from testkit.sim.virtual_loop import HOST


def usurper_complaint(truth: Truth, source: str, request: Request) -> str:
    """I11: a write of a manager that does not hold every lease, as it is sent."""
    if source not in MANAGERS or request.method in ("GET", "HEAD"):
        return ""
    if f"/{LEASE.plural}" in request.path:
        return ""
    for name in LEADER_LEASES:
        row = truth.rows[HUB].get(ObjectKey(LEASE.storage, LEASE_NAMESPACE, name))
        holder = row["spec"].get("holderIdentity", "") if row is not None else ""
        if holder != HOST.get():
            return f"I11: {HOST.get()} writes {request.path}, the lease {name} is {holder}'s"
    return ""
