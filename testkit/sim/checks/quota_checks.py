"""What must hold of quota at every commit, over raw rows: I2 and I4.

Checks as in ``invariants.py``, which lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import CLAIM, CLUSTER, GRANT, NAMESPACE
from datum_compute.api.plane import HUB
from datum_compute.api.resourceclaim import GRANTED
from datum_compute.planning.gates import QUOTA
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.quota_totals import quota_problem, quota_totals
from testkit.sim.checks.truth import Step, Truth, is_terminating, is_true

_PREFIX = "instance-"


def i2_within_the_limit(truth: Truth, step: Step) -> str:
    """I2: nothing is granted beyond the limit. Only a claim that becomes granted can do that."""
    after, before = step.after, step.before
    if after is None or not is_true(after, GRANTED):
        return ""
    if before is not None and is_true(before, GRANTED):
        return ""
    rows = [
        (step.plane, row)
        for key, row in truth.rows[step.plane].items()
        if key.resource in (CLAIM.resource, GRANT.resource)
    ]
    earlier = [(plane, row) for plane, row in rows if row is not after]
    return quota_problem(quota_totals(earlier), quota_totals(rows))


def i2_claim_outlives_its_machine(truth: Truth, step: Step) -> str:
    """I2: what a machine uses is not given to others while it runs."""
    before = step.before
    if step.after is not None or before is None or not is_true(before, GRANTED):
        return ""
    told = before["metadata"].get("labels", {})
    cell, name = f"cell/{told.get(labels.SOURCE_CLUSTER)}", step.key.name.removeprefix(_PREFIX)
    slot = f"{told.get(labels.INSTANCE_NAMESPACE)}/{name}"
    if cell in truth.emptied or any(plane == cell for plane, _ in truth.tampered):
        return ""  # whoever knew of the machine is gone
    if cell in truth.given_up:
        return ""
    if _went_with_its_namespace(truth, step):
        return ""
    for plane, machine_id in truth.machines():
        lied_about = machine_id in truth.providers[plane].lied_about
        if plane == cell and machine_id.rpartition("/")[0] == slot and not lied_about:
            return f"I2: {step.plane} {step.key.name} is released, {cell} {machine_id} lives"
    return ""


def _went_with_its_namespace(truth: Truth, step: Step) -> bool:
    """A user may be rid of a namespace though a cell of it does not answer; its quota goes too."""
    assert step.before is not None
    namespace = truth.rows[step.plane].get(ObjectKey(NAMESPACE.resource, "", step.key.namespace))
    if namespace is None or not is_terminating(namespace):
        return False
    cell = step.before["metadata"].get("labels", {}).get(labels.SOURCE_CLUSTER, "")
    known = truth.rows.get(HUB, {}).get(ObjectKey(CLUSTER.resource, "", cell))
    return known is None or not is_true(known, "Ready")


def i4_gate_goes_with_its_grant(truth: Truth, step: Step) -> str:
    """I4: an instance loses its Quota gate only while a granted claim of its slot stands, and never
    gets it back."""
    before, after = step.before, step.after
    if not step.plane.startswith("cell/") or before is None or after is None:
        return ""
    if (step.plane, step.key.name) in truth.tampered:
        return ""
    was, is_now = _has_gate(before), _has_gate(after)
    if is_now and not was:
        return f"I4: {step.plane} {step.key.name} got its {QUOTA} gate back"
    if was and not is_now and not any(_granted_claims(truth, step)):
        return f"I4: {step.plane} {step.key.name} lost its {QUOTA} gate without a grant"
    return ""


def _has_gate(instance: JsonObject) -> bool:
    gates = instance.get("spec", {}).get("controller", {}).get("schedulingGates") or ()
    return any(gate.get("name") == QUOTA for gate in gates)


def _granted_claims(truth: Truth, step: Step) -> Iterator[ObjectKey]:
    """Of the slot, in whatever project."""
    home = (step.plane.partition("/")[2], step.key.namespace)
    for plane in truth.rows:
        if not plane.startswith("project/"):
            continue
        for key, row in truth.of_resource(plane, CLAIM.resource):
            told = row["metadata"].get("labels", {})
            place = (told.get(labels.SOURCE_CLUSTER), told.get(labels.INSTANCE_NAMESPACE))
            named = key.name == f"{_PREFIX}{step.key.name}"
            if named and place == home and is_true(row, GRANTED):
                yield key
