"""Checks of serving machines at every commit: I28, I29 and I35.

I28: no action of the platform removes a serving machine beyond the disruption budget. An instance
is deleted only while enough others of its deployment serve. A Server is not reported as down while
its machine serves, even if the process has just adopted the machine. A machine is not removed while
its instance is desired.

I29: no serving instance is deleted while a replacement of its deployment does not serve, or has not
served for ``minReadySeconds``.

I35: no rollout with surge deletes the last serving instance of a deployment, unless
``maxUnavailable`` allows it or it is reported that no surge instance can run. The last one may be a
surge instance. Without surge I28 covers it.

The provider is the ground truth: a machine serves if it runs or sleeps, whether or not it was
observed. A loss is excused if a user or operator requested it (the deployment or its namespace is
deleted, the slot is not desired, an object was deleted or edited) or if the provider caused it: a
machine that a fault killed counts as serving until its Server has another one. Slots that wait for
quota count neither as desired nor as out of service.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB, PlaneName
from datum_compute.planning.reasons import TOO_LITTLE_QUOTA
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.promises import has_template_of, is_surge_slot, max_surge, max_unavailable
from testkit.sim.checks.state import ClusterState, RowChange, condition, is_terminating

# A controller may have decided with a spec that is this old.
SPEC_KNOWN_S = 5.0
# A controller may not have observed a younger state: a program may stop serving at any time.
STATE_KNOWN_S = 2.0
# A machine that served for this long has been observed by its cell.
SERVING_KNOWN_S = 5.0
# Conditions have timestamps of whole seconds.
ROUNDING_S = 1.5


@dataclass(frozen=True, slots=True)
class _Slot:
    """One slot of a deployment, except the slot of the deleted instance."""

    name: str
    serves: bool
    waits_for_quota: bool
    is_replacement: bool  # it has the current template of the deployment
    served_for_s: float


@dataclass(slots=True)
class ServingWatch:
    # Former specs of deployments on cells, with the time of the change of their scale settings.
    _settings: dict[tuple[str, ObjectKey], list[tuple[float, JsonObject]]] = field(
        default_factory=dict
    )

    def violation(self, state: ClusterState, change: RowChange) -> str:
        if not change.plane.startswith("cell/"):
            return ""
        match change.key.resource:
            case DEPLOYMENT.resource:
                self._note_settings(change)
                return ""
            case SERVER.resource:
                return _find_wrong_report(state, change)
            case INSTANCE.resource:
                return self._check_deletion(state, change)
            case _:
                return ""

    def _note_settings(self, change: RowChange) -> None:
        before, after = change.before, change.after
        if before is None or after is None or _scale_of(before) == _scale_of(after):
            return
        known = self._settings.setdefault((change.plane, change.key), [])
        known[:] = [entry for entry in known if entry[0] > change.at_s - SPEC_KNOWN_S]
        known.append((change.at_s, before.get("spec", {})))

    def _check_deletion(self, state: ClusterState, change: RowChange) -> str:
        """Check the deletion of a serving instance."""
        before, after = change.before, change.after
        if before is None or is_terminating(before):
            return ""
        if after is not None and not is_terminating(after):
            return ""
        deployment = _deployment_of(state, change)
        if deployment is None or not _counts_as_serving(state, change.plane, change.key, before):
            return ""
        key = ObjectKey(DEPLOYMENT.resource, change.key.namespace, _owner_name(change.key))
        known = self._settings.get((change.plane, key), ())
        violations = [
            _find_budget_violation(state, change, deployment, spec)
            for spec in (
                deployment.get("spec", {}),
                *(s for until_s, s in known if until_s > change.at_s - SPEC_KNOWN_S),
            )
        ]
        return violations[0] if all(violations) else ""


def find_removal_violation(state: ClusterState, cell: PlaneName, machine_id: str) -> str:
    """I28: return a violation if a serving machine is removed. Called when the removal is
    requested."""
    provider = state.providers[cell]
    namespace, name, uid = machine_id.split("/")
    rows = state.rows.get(cell, {})
    instance = rows.get(ObjectKey(INSTANCE.resource, namespace, name))
    server = rows.get(ObjectKey(SERVER.resource, namespace, name))
    if not provider.serves(machine_id) or machine_id in provider.lied_about:
        return ""
    if (
        instance is None
        or is_terminating(instance)
        or state.is_namespace_terminating(cell, namespace)
    ):
        return ""
    if server is None or server["metadata"]["uid"] != uid:
        return ""  # another machine has replaced it
    if _is_tampered(state, cell, namespace, name) or cell in state.restored:
        return ""
    owner = server["metadata"].get("labels", {}).get(labels.INSTANCE_UID)
    if owner != instance["metadata"]["uid"]:
        return ""  # it belongs to an earlier instance
    if provider.machines[machine_id].image != _image(instance["spec"]):
        return ""
    return f"I28: {cell} {machine_id} is removed although it serves and its instance is desired"


def _find_wrong_report(state: ClusterState, change: RowChange) -> str:
    """I28: a Server that was up is reported as down while its machine serves."""
    before, after = change.before, change.after
    if before is None or after is None or is_terminating(after):
        return ""
    if not _is_up(before) or _is_up(after) or _phase(after) == "Unknown":
        return ""
    if after.get("spec", {}).get("suspended"):
        return ""  # it is being stopped, and serves until its connections have ended
    provider = state.providers.get(PlaneName(change.plane))
    machine_id = f"{change.key.namespace}/{change.key.name}/{after['metadata']['uid']}"
    if provider is None or machine_id in (*provider.lied_about, *provider.hidden):
        return ""
    if (
        _is_tampered(state, change.plane, change.key.namespace, change.key.name)
        or change.plane in state.restored
    ):
        return ""
    if not provider.serves(machine_id, for_s=SERVING_KNOWN_S):
        return ""
    phase = _phase(after)
    return f"I28: {change.plane} {change.key.name} is reported {phase} although its machine serves"


def _find_budget_violation(
    state: ClusterState, change: RowChange, deployment: JsonObject, spec: JsonObject
) -> str:
    """Return what is wrong with the deletion under this spec, or the empty string.

    ``spec`` is that of the deployment, or a former one.
    """
    settings = spec.get("scaleSettings", {})
    wanted = int(settings.get("minReplicas", 1))
    others = _other_slots(state, change, deployment, range(wanted))
    counted = [slot for slot in others if not slot.waits_for_quota]
    surge = _other_slots(state, change, deployment, range(wanted, wanted + max_surge(spec)))
    serving_surge = sum(slot.serves for slot in surge)
    number = _ordinal(change.key.name)
    without_surge = condition(deployment, "SurgeAvailable") is not None
    allowed = max_unavailable(spec, len(counted) + (number < wanted), without_surge=without_surge)
    where = f"{change.plane} {change.key.name}"
    is_last = not serving_surge and not any(slot.serves for slot in counted)
    in_rollout = number < wanted or is_surge_slot(deployment, number)
    if max_surge(spec) and is_last and allowed < wanted and in_rollout:
        return f"I35: {where} is deleted, and no other instance of its deployment serves"
    if number >= wanted:
        return ""
    rule = f"at most {allowed} of {wanted} may be out of service"
    down = [slot.name for slot in counted if not slot.serves]
    if len(down) + 1 > allowed + serving_surge:
        return f"I28: {where} is deleted while it serves, {down} do not: {rule}"
    ready_s = 0.0 if state.clocks_jump else float(settings.get("minReadySeconds", 0))
    unavailable = [slot.name for slot in counted if _is_unavailable_replacement(slot, ready_s)]
    if unavailable:
        return (
            f"I29: {where} is deleted while it serves and its replacements "
            f"{unavailable} are not available"
        )
    return ""


def _is_unavailable_replacement(slot: _Slot, ready_s: float) -> bool:
    served_too_short = slot.served_for_s < ready_s - ROUNDING_S
    return slot.is_replacement and (not slot.serves or served_too_short)


def _other_slots(
    state: ClusterState, change: RowChange, deployment: JsonObject, ordinals: range
) -> Iterator[_Slot]:
    base = _owner_name(change.key)
    provider = state.providers[PlaneName(change.plane)]
    waits = False  # slots above one that waits for quota may also wait for it
    for number in ordinals:
        key = ObjectKey(INSTANCE.resource, change.key.namespace, f"{base}-{number}")
        if key == change.key:
            continue
        row = state.rows[change.plane].get(key)
        waits = waits or (row is not None and _waits_for_quota(row))
        exists = row is not None and not is_terminating(row)
        machine_id = provider.machine_of(f"{key.namespace}/{key.name}")
        yield _Slot(
            name=key.name,
            serves=exists and _is_served(state, change.plane, key),
            waits_for_quota=_waits_for_quota(row) if row is not None else waits,
            is_replacement=row is not None and exists and has_template_of(deployment, row),
            served_for_s=provider.served_for_s(machine_id),
        )


def _deployment_of(state: ClusterState, change: RowChange) -> JsonObject | None:
    """Return the deployment, or None if the instance may be deleted for another reason."""
    key = ObjectKey(DEPLOYMENT.resource, change.key.namespace, _owner_name(change.key))
    deployment = state.rows[change.plane].get(key)
    if deployment is None or is_terminating(deployment):
        return None
    if state.is_namespace_terminating(change.plane, change.key.namespace):
        return None
    if change.plane in state.restored or HUB in state.restored:
        return None
    if _is_tampered(state, change.plane, change.key.namespace, change.key.name):
        return None
    return deployment


def _is_tampered(state: ClusterState, plane: str, namespace: str, name: str) -> bool:
    """Return True if an operator changed it, here or on another plane."""
    owner = name.rpartition("-")[0]
    return any(
        where == plane or named.startswith((namespace, owner)) or name.startswith(f"{named}-")
        for where, named in state.tampered
    )


def _counts_as_serving(state: ClusterState, plane: str, key: ObjectKey, row: JsonObject) -> bool:
    """Return True if its machine serves. An instance that was observed as not ready may be deleted;
    the observation is checked when it is recorded."""
    ready = condition(row, "Ready")
    if ready is not None and ready["status"] == "False":
        return False
    provider = state.providers[PlaneName(plane)]
    machine_id = provider.machine_of(f"{key.namespace}/{key.name}")
    return machine_id not in provider.lied_about and provider.serves(machine_id)


def _is_served(state: ClusterState, plane: str, key: ObjectKey) -> bool:
    """Return True if a machine of the slot serves, or did until a fault killed it."""
    provider = state.providers[PlaneName(plane)]
    slot = f"{key.namespace}/{key.name}"
    if provider.served_recently(provider.machine_of(slot), STATE_KNOWN_S):
        return True
    server = state.rows[plane].get(ObjectKey(SERVER.resource, key.namespace, key.name))
    return server is not None and f"{slot}/{server['metadata']['uid']}" in provider.killed


def _waits_for_quota(row: JsonObject) -> bool:
    quota_granted = condition(row, "QuotaGranted")
    return quota_granted is not None and quota_granted["reason"] in TOO_LITTLE_QUOTA


def _scale_of(deployment: JsonObject) -> tuple[JsonObject, object]:
    """Return what the number of instances and of surge instances depends on."""
    spec = deployment.get("spec", {})
    return spec.get("scaleSettings", {}), spec.get("template", {}).get("spec", {}).get(
        "scaleToZero"
    )


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
