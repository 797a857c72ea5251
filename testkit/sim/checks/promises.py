"""More of what must hold at every commit: rollouts, rollouts called done, namespaces that go.

Checks as in ``invariants.py``, which lists them.
"""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import BINDING, DEPLOYMENT, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.plane import HUB, PlaneName, cell_plane, member_name
from datum_compute.api.reasons import Reason
from datum_compute.app.project_planes import AWAITED
from datum_compute.app.wiring import EVERYTHING
from datum_compute.planes.lifecycle import finalized_kinds_on
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.state import Step, Truth, condition, is_terminating, is_true

# A machine takes longer than that to stop, and a cell that works well less to say so.
LEAVING_TOLD_S = 0.05
# The hub may believe for that long that a cell serves its former city: a silent watch is replaced
# within a minute.
MOVE_OBSERVED_S = 60.0


def i7_done_is_done(truth: Truth, step: Step) -> str:
    """I7: a workload is called rolled out only when each of its cells has its newest spec."""
    row = step.after
    if row is None or is_terminating(row) or not _says_done(row) or truth.emptied:
        return ""
    spec, uid = row.get("spec", {}), row["metadata"]["uid"]
    for placement in spec.get("placements", ()):
        if placement.get("fallbackCityCodes"):
            continue  # it may be done in another city
        replicas = placement.get("scaleSettings", {}).get("minReplicas", 1)
        for city in placement["cityCodes"]:
            cells = truth.cells_of(city)
            if any(plane in cells for plane, _ in truth.tampered):
                continue
            known = [_wants(d) for cell in cells for d in _deployments(truth, cell, uid)]
            known += [_wants(d) for d in _deployments_before_move(truth, city, uid)]
            if (_image(spec["template"]), replicas) not in known:
                return f"I7: {step.plane} {step.key.name} is called done; {city} has heard {known}"
    return ""


def _says_done(row: JsonObject) -> bool:
    status = row.get("status") or {}
    if status.get("observedGeneration") != row["metadata"]["generation"]:
        return False
    progress = condition(row, "Progressing")
    if progress is not None and progress["reason"] != Reason.ROLLOUT_COMPLETE:
        return False  # a surplus in one city may make up for what another lacks
    desired = status.get("desiredReplicas", 0)
    counts = (status.get(n, 0) for n in ("updatedReplicas", "readyReplicas", "replicas"))
    return desired > 0 and all(count == desired for count in counts)


def _deployments(truth: Truth, cell: str, workload_uid: str) -> list[JsonObject]:
    return [
        row
        for _, row in truth.of_resource(cell, DEPLOYMENT.resource)
        if row["metadata"].get("labels", {}).get(labels.WORKLOAD_UID) == workload_uid
    ]


def _deployments_before_move(truth: Truth, city: str, workload_uid: str) -> list[JsonObject]:
    """Return the deployments of the workload on a cell that has just lost the city, as long as the
    hub still binds them to that cell. Once a binding has changed, only the new cell counts."""
    return [
        row
        for cell, (former, moved_s) in truth.former_city.items()
        if former == city and truth.now() - moved_s < MOVE_OBSERVED_S
        for row in _deployments(truth, cell, workload_uid)
        if _is_bound(truth, row, cell)
    ]


def _is_bound(truth: Truth, deployment: JsonObject, cell: PlaneName) -> bool:
    metadata = deployment["metadata"]
    return any(
        target["name"] == member_name(cell)
        for key, binding in truth.of_resource(HUB, BINDING.resource)
        if key.namespace == metadata["namespace"]
        and binding["spec"]["resource"]["name"] == metadata["name"]
        for target in binding["spec"].get("clusters", ())
    )


def _wants(deployment: JsonObject) -> tuple[str, int]:
    spec = deployment.get("spec", {})
    return _image(spec.get("template", {})), spec.get("scaleSettings", {}).get("minReplicas", 1)


def _image(template: JsonObject) -> str:
    """Of the first container; odd objects, which operators create, may have none."""
    sandbox = template.get("spec", {}).get("runtime", {}).get("sandbox", {})
    return str(next((c.get("image") for c in sandbox.get("containers", ())), ""))


def i1_one_instance_for_each_slot(truth: Truth, step: Step) -> str:
    """I1: never a second Instance with one deployment and ordinal, whatever its name."""
    if step.before is not None or step.after is None or not step.plane.startswith("cell/"):
        return ""
    slot = _slot(step.after)
    if not all(slot) or any(plane == step.plane for plane, _ in truth.tampered):
        return ""
    for key, row in truth.of_resource(step.plane, INSTANCE.resource):
        if key != step.key and _slot(row) == slot:
            return f"I1: {step.plane} {step.key.name} takes the slot that {key.name} has"
    return ""


def _slot(row: JsonObject) -> tuple[str, str]:
    own = row["metadata"].get("labels", {})
    return own.get(labels.DEPLOYMENT_UID, ""), own.get(labels.INSTANCE_INDEX, "")


def i12_one_at_a_time(truth: Truth, step: Step) -> str:
    """I12: of a live deployment no ready instance is taken while as many others as it allows are
    on their way out; one that had no quota served nobody."""
    before, after = step.before, step.after
    if not step.plane.startswith("cell/") or before is None or is_terminating(before):
        return ""
    if after is not None and not is_terminating(after):
        return ""
    own = before["metadata"].get("labels", {})
    owner = own.get(labels.DEPLOYMENT_NAME, "")
    key = ObjectKey(DEPLOYMENT.resource, step.key.namespace, owner)
    deployment = truth.rows[step.plane].get(key)
    if deployment is None or is_terminating(deployment) or not is_true(before, "Ready"):
        return ""
    mine = (step.key.namespace, owner)
    if any(plane == step.plane or name.startswith(mine) for plane, name in truth.tampered):
        return ""  # somebody else wanted it gone, here or further up
    if truth.is_leaving(step.plane, step.key.namespace):
        return ""
    settings = deployment.get("spec", {}).get("scaleSettings", {})
    wanted = settings.get("minReplicas", 1)
    if _ordinal(before) >= wanted:
        return ""
    leaving = []
    for sibling, row in truth.of_resource(step.plane, INSTANCE.resource):
        same = row["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME) == owner
        if not same or sibling.namespace != key.namespace or sibling == step.key:
            continue
        if is_terminating(row) and _ordinal(row) < wanted and not _waits_for_quota(row):
            leaving.append(sibling.name)
    if len(leaving) < most_unavailable(settings, wanted):
        return ""
    return f"I12: {step.plane} {step.key.name} is taken while {', '.join(leaving)} leaves"


def most_unavailable(settings: JsonObject, wanted: int) -> int:
    """How many of the wanted instances a rollout may have out of service."""
    asked = settings.get("maxUnavailable", 1)
    if isinstance(asked, str):
        asked = wanted * int(asked.removesuffix("%")) // 100
    return max(1, int(asked))


def _waits_for_quota(row: JsonObject) -> bool:
    said = condition(row, "QuotaGranted")
    return said is not None and said["reason"] == Reason.QUOTA_EXCEEDED


def _ordinal(row: JsonObject) -> int:
    text = row["metadata"].get("labels", {}).get(labels.INSTANCE_INDEX, "")
    return int(text) if text.isdecimal() else -1


def i15_instance_leaves_after_its_machine(truth: Truth, step: Step) -> str:
    """I15: an Instance is gone from its cell only when none of its machines lives."""
    if step.after is not None or step.before is None or not step.plane.startswith("cell/"):
        return ""
    metadata = step.before["metadata"]
    if not metadata.get("ownerReferences") and not metadata.get("finalizers"):
        return ""  # an operator's own: ours are created held, and under their deployment
    if step.plane in truth.restored:
        return ""  # it has forgotten machines, and finds them as strangers
    slot = f"{step.key.namespace}/{step.key.name}"
    for cell, machine_id in truth.machines():
        own = cell == step.plane and machine_id.rpartition("/")[0] == slot
        if own and machine_id not in truth.providers[cell].lied_about:
            return f"I15: {step.plane} {step.key.name} left, its machine {machine_id} lives"
    return ""


class LeavingInstances:
    """I7: an Instance that leaves its cell is not called Ready to the last. Only where nothing but
    machines goes wrong: a cell that was stopped or cut off has an excuse."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, ObjectKey], float] = {}

    def complaint(self, truth: Truth, step: Step) -> str:
        if step.key.resource != INSTANCE.resource or not step.plane.startswith("cell/"):
            return ""
        place = (step.plane, step.key)
        if step.after is not None:
            if is_terminating(step.after):
                self._since_s.setdefault(place, step.at_s)
            return ""
        since_s = self._since_s.pop(place, step.at_s)
        told = step.before is None or not is_true(step.before, "Ready")
        if told or not truth.only_machines_fail or truth.tampered:
            return ""
        if step.at_s - since_s < LEAVING_TOLD_S:
            return ""
        return f"I7: {step.plane} {step.key.name} was called Ready until it had left"


def i15_copy_stays_with_its_instance(truth: Truth, step: Step) -> str:
    """I15: a copy leaves the hub only when its deployment does, or when its cell has that very
    instance no more: never because somebody could not see it."""
    if step.after is not None or step.before is None or step.plane != HUB:
        return ""
    if step.key.resource != INSTANCE.resource or truth.tampered or truth.restored:
        return ""
    metadata = step.before["metadata"]
    cell, _, uid = metadata.get("annotations", {}).get(labels.COPY_OF, "").rpartition("/")
    if not cell or cell_plane(cell) in truth.given_up:
        return ""
    source = truth.rows.get(cell_plane(cell), {}).get(step.key)
    name = metadata.get("labels", {}).get(labels.DEPLOYMENT_NAME, "")
    owner = truth.rows[HUB].get(ObjectKey(DEPLOYMENT.resource, step.key.namespace, name))
    if source is None or source["metadata"]["uid"] != uid or is_terminating(source):
        return ""
    if owner is None or is_terminating(owner) or not _owns(owner, step.before):
        return ""
    return f"I15: the hub's copy of {step.key.name} left, and {cell} has the instance"


def _owns(owner: JsonObject, obj: JsonObject) -> bool:
    references = obj["metadata"].get("ownerReferences", ())
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def i14_nothing_wanted_is_dropped(truth: Truth, step: Step) -> str:
    """I14: a project's deployment is not removed while its workload asks for its city. Only of
    workloads that were never changed: a removal may come late."""
    before, after = step.before, step.after
    if not step.plane.startswith("project/") or before is None or is_terminating(before):
        return ""
    if (after is not None and not is_terminating(after)) or truth.tampered:
        return ""
    if truth.is_leaving(step.plane, step.key.namespace):
        return ""
    own = before["metadata"].get("labels", {})
    key = ObjectKey(WORKLOAD.resource, step.key.namespace, own.get(labels.WORKLOAD_NAME, ""))
    workload = truth.rows[step.plane].get(key)
    if workload is None or is_terminating(workload) or workload["metadata"]["generation"] > 1:
        return ""
    cities = [city for p in workload["spec"]["placements"] for city in p["cityCodes"]]
    if workload["metadata"]["uid"] != own.get(labels.WORKLOAD_UID):
        return ""
    wanted = before["spec"].get("cityCode") in cities
    return f"I14: {step.plane} {step.key.name} is removed, {key.name} wants it" if wanted else ""


def i15_plane_goes_drained(truth: Truth, plane: str) -> str:
    """I15: the plane of a project goes only when its workloads and its access have gone; what else
    is held back in it may wait for a cell that is away."""
    awaited = {kind.resource for kind in AWAITED}
    held_back = finalized_kinds_on(plane.partition("/")[0], EVERYTHING)
    for key, row in truth.rows.get(plane, {}).items():
        held = not held_back.finalizers.isdisjoint(row["metadata"].get("finalizers", ()))
        if held and key.resource in awaited:
            return f"I15: {plane} is removed, {key.resource} {key.name} is held back in it"
    return ""


class GoneNamespaces:
    """I3: a namespace goes empty, and nothing comes into one that has gone."""

    def __init__(self) -> None:
        self._gone: dict[tuple[str, str], None] = {}

    def complaint(self, truth: Truth, step: Step) -> str:
        if step.key.resource == NAMESPACE.resource:
            return self._noted(truth, step)
        comes = step.before is None and step.after is not None
        home = ObjectKey(NAMESPACE.resource, "", step.key.namespace)
        if comes and (step.plane, home.name) in self._gone and home not in truth.rows[step.plane]:
            return f"I3: {step.plane} {step.key} has come into a namespace that is gone"
        return ""

    def _noted(self, truth: Truth, step: Step) -> str:
        place = (step.plane, step.key.name)
        if step.after is not None:
            self._gone.pop(place, None)
            return ""
        self._gone[place] = None
        left = [key for key in truth.rows[step.plane] if key.namespace == step.key.name]
        return f"I3: namespace {step.key.name} of {step.plane} left with {left}" if left else ""
