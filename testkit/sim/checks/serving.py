"""What must hold of machines that serve, whatever restarts meanwhile: I28 and I29.

I28: nothing that the platform does takes a serving machine beyond the disruption budget.
- An instance is deleted only while enough others of its deployment serve.
- A Server is not reported as down while its machine serves: a process that has just adopted a
  machine knows nothing of it yet.
- A machine is not removed while its instance is wanted.
I29: no serving instance is deleted while a replacement of its deployment does not serve, or has not
served for ``minReadySeconds`` yet.

Ground truth is the provider: a machine serves if it runs or sleeps, whoever has observed it. A loss
is excused where somebody asked for it (the deployment or its namespace goes, the slot is no longer
wanted, an operator deleted or edited something) or where the provider caused it: a machine that a
fault killed counts as serving until another one was started for its Server. Slots that wait for
quota count neither as wanted nor as out of service.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.promises import most_unavailable
from testkit.sim.checks.state import Step, Truth, condition, is_terminating

# A controller may have decided by the spec that its deployment had this long ago.
SPEC_KNOWN_S = 5.0
# A machine that served for this long has been observed by a cell that observes at all.
SERVING_KNOWN_S = 5.0
# Conditions have timestamps of whole seconds.
ROUNDING_S = 1.5


@dataclass(frozen=True, slots=True)
class _Slot:
    """One wanted slot of a deployment, apart from the one that is taken."""

    name: str
    serves: bool
    waits_for_quota: bool
    is_replacement: bool  # it has the template that the deployment asks for now
    served_for_s: float


@dataclass(slots=True)
class ServingWatch:
    # Scale settings that deployments of cells had before, and until when.
    _settings: dict[tuple[str, ObjectKey], list[tuple[float, JsonObject]]] = field(
        default_factory=dict
    )

    def complaint(self, truth: Truth, step: Step) -> str:
        if not step.plane.startswith("cell/"):
            return ""
        match step.key.resource:
            case DEPLOYMENT.resource:
                self._note_settings(step)
                return ""
            case SERVER.resource:
                return _reported_down(truth, step)
            case INSTANCE.resource:
                return self._taken(truth, step)
            case _:
                return ""

    def _note_settings(self, step: Step) -> None:
        before, after = step.before, step.after
        if before is None or after is None or _settings_of(before) == _settings_of(after):
            return
        known = self._settings.setdefault((step.plane, step.key), [])
        known[:] = [entry for entry in known if entry[0] > step.at_s - SPEC_KNOWN_S]
        known.append((step.at_s, _settings_of(before)))

    def _taken(self, truth: Truth, step: Step) -> str:
        """An instance that serves is deleted."""
        before, after = step.before, step.after
        if before is None or is_terminating(before):
            return ""
        if after is not None and not is_terminating(after):
            return ""
        deployment = _deployment_of(truth, step)
        if deployment is None or not _counts_as_serving(truth, step.plane, step.key, before):
            return ""
        key = ObjectKey(DEPLOYMENT.resource, step.key.namespace, _owner_name(step.key))
        known = self._settings.get((step.plane, key), ())
        complaints = [
            _budget_complaint(truth, step, deployment, settings)
            for settings in (
                _settings_of(deployment),
                *(s for until_s, s in known if until_s > step.at_s - SPEC_KNOWN_S),
            )
        ]
        return complaints[0] if all(complaints) else ""


def removal_complaint(truth: Truth, cell: PlaneName, machine_id: str) -> str:
    """I28: a machine that serves is removed. That somebody asked for it is on record."""
    provider = truth.providers[cell]
    namespace, name, uid = machine_id.split("/")
    rows = truth.rows.get(cell, {})
    instance = rows.get(ObjectKey(INSTANCE.resource, namespace, name))
    server = rows.get(ObjectKey(SERVER.resource, namespace, name))
    if not provider.serves(machine_id) or machine_id in provider.lied_about:
        return ""
    if instance is None or is_terminating(instance) or truth.is_leaving(cell, namespace):
        return ""
    if server is None or server["metadata"]["uid"] != uid:
        return ""  # another machine takes its place
    if _is_tampered(truth, cell, namespace, name) or cell in truth.restored:
        return ""
    owner = server["metadata"].get("labels", {}).get(labels.INSTANCE_UID)
    if owner != instance["metadata"]["uid"]:
        return ""  # of an earlier instance
    if provider.machines[machine_id].image != _image(instance["spec"]):
        return ""
    return f"I28: {cell} {machine_id} is removed though it serves and its instance is wanted"


def _reported_down(truth: Truth, step: Step) -> str:
    """I28: a Server that was up is reported as down, and its machine serves."""
    before, after = step.before, step.after
    if before is None or after is None or is_terminating(after):
        return ""
    if not _is_up(before) or _is_up(after) or _phase(after) == "Unknown":
        return ""
    provider = truth.providers.get(PlaneName(step.plane))
    machine_id = f"{step.key.namespace}/{step.key.name}/{after['metadata']['uid']}"
    if provider is None or machine_id in (*provider.lied_about, *provider.hidden):
        return ""
    if (
        _is_tampered(truth, step.plane, step.key.namespace, step.key.name)
        or step.plane in truth.restored
    ):
        return ""
    if not provider.serves(machine_id, for_s=SERVING_KNOWN_S):
        return ""
    told = _phase(after)
    return f"I28: {step.plane} {step.key.name} is reported {told} though its machine serves"


def _budget_complaint(
    truth: Truth, step: Step, deployment: JsonObject, settings: JsonObject
) -> str:
    """Return what is wrong with the deletion under these scale settings; empty if nothing is."""
    wanted = int(settings.get("minReplicas", 1))
    if _ordinal(step.key.name) >= wanted:
        return ""
    others = _other_slots(truth, step, deployment, wanted)
    counted = [slot for slot in others if not slot.waits_for_quota]
    allowed = most_unavailable(settings, len(counted) + 1)
    rule = f"at most {allowed} of {wanted} may be out of service"
    down = [slot.name for slot in counted if not slot.serves]
    if len(down) + 1 > allowed:
        return (
            f"I28: {step.plane} {step.key.name} is deleted while it serves, {down} do not: {rule}"
        )
    ready_s = 0.0 if truth.clocks_jump else float(settings.get("minReadySeconds", 0))
    unavailable = [slot.name for slot in counted if _is_unavailable_replacement(slot, ready_s)]
    if unavailable:
        return (
            f"I29: {step.plane} {step.key.name} is deleted while it serves and its replacements "
            f"{unavailable} are not available"
        )
    return ""


def _is_unavailable_replacement(slot: _Slot, ready_s: float) -> bool:
    served_too_short = slot.served_for_s < ready_s - ROUNDING_S
    return slot.is_replacement and (not slot.serves or served_too_short)


def _other_slots(truth: Truth, step: Step, deployment: JsonObject, wanted: int) -> Iterator[_Slot]:
    base = _owner_name(step.key)
    provider = truth.providers[PlaneName(step.plane)]
    waits = False  # those above one that waits for quota may be waiting for it
    for number in range(wanted):
        key = ObjectKey(INSTANCE.resource, step.key.namespace, f"{base}-{number}")
        if key == step.key:
            continue
        row = truth.rows[step.plane].get(key)
        waits = waits or (row is not None and _waits_for_quota(row))
        stands = row is not None and not is_terminating(row)
        machine_id = provider.machine_of(f"{key.namespace}/{key.name}")
        asked = _image(deployment["spec"]["template"]["spec"])
        yield _Slot(
            name=key.name,
            serves=stands and _is_served(truth, step.plane, key),
            waits_for_quota=_waits_for_quota(row) if row is not None else waits,
            is_replacement=row is not None and stands and _image(row["spec"]) == asked,
            served_for_s=provider.served_for_s(machine_id),
        )


def _deployment_of(truth: Truth, step: Step) -> JsonObject | None:
    """The deployment, unless it or somebody else wants the instance gone."""
    key = ObjectKey(DEPLOYMENT.resource, step.key.namespace, _owner_name(step.key))
    deployment = truth.rows[step.plane].get(key)
    if deployment is None or is_terminating(deployment):
        return None
    if truth.is_leaving(step.plane, step.key.namespace):
        return None
    if step.plane in truth.restored or HUB in truth.restored:
        return None
    if _is_tampered(truth, step.plane, step.key.namespace, step.key.name):
        return None
    return deployment


def _is_tampered(truth: Truth, plane: str, namespace: str, name: str) -> bool:
    """An operator had a hand in it, here or further up."""
    owner = name.rpartition("-")[0]
    return any(
        where == plane or named.startswith((namespace, owner)) or name.startswith(f"{named}-")
        for where, named in truth.tampered
    )


def _counts_as_serving(truth: Truth, plane: str, key: ObjectKey, row: JsonObject) -> bool:
    """Its machine serves. What was observed as not ready may go: that it was is checked when it is
    recorded."""
    ready = condition(row, "Ready")
    if ready is not None and ready["status"] == "False":
        return False
    provider = truth.providers[PlaneName(plane)]
    machine_id = provider.machine_of(f"{key.namespace}/{key.name}")
    return machine_id not in provider.lied_about and provider.serves(machine_id)


def _is_served(truth: Truth, plane: str, key: ObjectKey) -> bool:
    """A machine of the slot serves, or did until a fault killed it."""
    provider = truth.providers[PlaneName(plane)]
    slot = f"{key.namespace}/{key.name}"
    if provider.serves(provider.machine_of(slot)):
        return True
    server = truth.rows[plane].get(ObjectKey(SERVER.resource, key.namespace, key.name))
    return server is not None and f"{slot}/{server['metadata']['uid']}" in provider.killed


def _waits_for_quota(row: JsonObject) -> bool:
    said = condition(row, "QuotaGranted")
    return said is not None and said["reason"] == Reason.QUOTA_EXCEEDED


def _settings_of(deployment: JsonObject) -> JsonObject:
    settings: JsonObject = deployment.get("spec", {}).get("scaleSettings", {})
    return settings


def _owner_name(key: ObjectKey) -> str:
    return key.name.rpartition("-")[0]


def _ordinal(name: str) -> int:
    text = name.rpartition("-")[2]
    return int(text) if text.isdecimal() else 10**9


def _image(spec: JsonObject) -> str:
    return str(spec["runtime"]["sandbox"]["containers"][0]["image"])


def _phase(server: JsonObject) -> str:
    return str((server.get("status") or {}).get("phase", "Pending"))


def _is_up(server: JsonObject) -> bool:
    reason = (server.get("status") or {}).get("reason", "")
    return _phase(server) == "Sleeping" or (_phase(server) == "Running" and not reason)
