"""Quota claims of instances: size, claim, release, the Quota gate, and the record of granted slots.

- A claim belongs to a slot (deployment and ordinal), not to a single instance. It is created for
  the first instance of the slot, kept while the slot is wanted or occupied, and replaced when the
  next instance of the slot has another size. So a restart at full quota needs no new decision.
- A claim is in the project, is named after the instance, and has labels with the cell, namespace
  and workload uid of the instance.
- A granted claim keeps its finalizer until its slot is empty. If a user deletes the claim or its
  namespace, the claim counts until then, and the next instance of the slot can still use it.
- A cell records the granted slots of a deployment, with their size, in the deployment's status. The
  record replaces the claims if the cell restarts while the project is unreachable. While the
  project can be read, its claims decide.
- If quota is not enforced, gates are cleared and nothing is claimed. Existing claims stay.

The size of an instance is both the amount that it claims and the limit of its machine. It is taken
from the first of these sources that has both CPU and memory:

1. the sum of the limits of its containers, if all containers have both;
2. the requests of the instance;
3. its instance type: an object of the plane, or a built-in type.

Without such a source only the number of instances is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.deployment import GrantedSlots, WorkloadDeployment
from datum_compute.api.compute.instance import (
    QUOTA_GRANTED,
    QUOTA_UNDECIDED,
    Instance,
    ResourceAmounts,
    Runtime,
)
from datum_compute.api.compute.instance_type import BUILT_IN_SIZES, InstanceType, size_name
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionStatus,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    set_conditions,
)
from datum_compute.api.core import Namespace
from datum_compute.api.errors import AlreadyExists, ApiError, Forbidden, NotFound
from datum_compute.api.kinds import CLAIM, INSTANCE
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.meta.quantity import mebibytes, millicores
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import (
    PlaneName,
    cell_plane,
    decode_project_label,
    member_name,
    project_plane,
)
from datum_compute.api.quota import (
    GRANTED,
    INSTANCES,
    MEMORY,
    VCPUS,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceRequest,
    consumer_of,
)
from datum_compute.planning.plan import (
    Create,
    Delete,
    PatchStatus,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.reasons import as_quota_granted_reason
from datum_compute.planning.rollout.gates import (
    FIRST_SYNC_S,
    QUOTA,
    Decision,
    gate_names,
    instance_age_s,
)
from datum_compute.planning.workload.names import is_same_workload, labeled_workload

# --- size of an instance


class InstanceSize(msgspec.Struct, frozen=True):
    millicores: int
    mebibytes: int


InstanceTypeLookup = Callable[[str], InstanceType | None]


def explicit_size(runtime: Runtime) -> InstanceSize | None:
    """Return the size that limits or requests set; None if the instance type decides."""
    limits = [_size_if_complete(c.resources.limits) for c in runtime.sandbox.containers]
    complete = [size for size in limits if size is not None]
    if len(complete) == len(limits):
        return InstanceSize(sum(s.millicores for s in complete), sum(s.mebibytes for s in complete))
    return _size_if_complete(runtime.resources.requests)


def size_of(runtime: Runtime, find_type: InstanceTypeLookup) -> InstanceSize | None:
    """Return the size of an instance, or None if it is unknown; see the module docstring."""
    size = explicit_size(runtime)
    if size is not None:
        return size
    name = size_name(runtime.resources.instance_type)
    found = find_type(name)
    if found is not None:
        resources = found.spec.resources
        return InstanceSize(millicores(resources.cpu), mebibytes(resources.memory))
    built_in = BUILT_IN_SIZES.get(name)
    return InstanceSize(millicores(built_in[0]), mebibytes(built_in[1])) if built_in else None


def _size_if_complete(amounts: ResourceAmounts) -> InstanceSize | None:
    if amounts.cpu is None or amounts.memory is None:
        return None
    return InstanceSize(millicores(amounts.cpu), mebibytes(amounts.memory))


def amounts_of(size: InstanceSize | None) -> ResourceAmounts:
    """Return the size as quantities of the API."""
    if size is None:
        return ResourceAmounts()
    return ResourceAmounts(cpu=f"{size.millicores}m", memory=f"{size.mebibytes}Mi")


def requests_of(size: InstanceSize | None) -> list[ResourceRequest]:
    """Return the requests of a claim; a claim of unknown size requests the instance only."""
    amounts = {INSTANCES.resource_type: 1}
    if size is not None:
        amounts[VCPUS.resource_type] = size.millicores
        amounts[MEMORY.resource_type] = size.mebibytes
    return [ResourceRequest(resource_type=name, amount=amount) for name, amount in amounts.items()]


# --- the claim of a slot

_PREFIX = "instance-"
# The same message as in the initial condition of an instance, so that no write is needed before the
# decision.
_UNDECIDED = QUOTA_UNDECIDED.message
# Delays between checks of an instance without quota: (waiting for less than, delay) in seconds.
_TIERS = ((60.0, 1.0), (300.0, 15.0), (600.0, 60.0))
_LAST_TIER_S = 300.0
# Upper limit of the delay after a missed event, for a claim without an instance.
RECHECK_S = 60.0
# A claim in use is checked this often. The deletion of an instance cannot be mapped to its claim
# while the namespace on the cell lacks the labels that name the project.
IN_USE_RECHECK_S = 120.0
# Retry delay after a project has refused a claim.
REFUSED_RETRY_S = 60.0
# Retry delay after Forbidden. A cell that has just rejoined may not create claims until the hub has
# admitted it.
FORBIDDEN_RETRY_S = 10.0
# A grant this recent needs no live read. The hub releases the claims of a cell only after the cell
# has been unreachable for longer.
RECENT_GRANT_S = 20.0

GRANTED_BY_RECORD = ConditionValue(
    TRUE, Reason.QUOTA_AVAILABLE, "Quota was granted to the slot before"
)
NOT_ENFORCED = ConditionValue(TRUE, Reason.QUOTA_DISABLED, "Quota is not enforced")
# Reasons of QuotaGranted that the claim controller writes when it cannot create a claim.
CLAIM_ERRORS = (
    Reason.QUOTA_PROJECT_NOT_FOUND,
    Reason.QUOTA_NAMESPACE_NOT_FOUND,
    Reason.QUOTA_MISCONFIGURED,
)


# What a response names as missing if the project is: its plane, or its object in Milo.
_PROJECT_KINDS = ("planes", "projects")


class ClaimLocation(msgspec.Struct, frozen=True):
    """Plane, namespace and consumer of the claims of a cell's namespace."""

    plane: PlaneName
    namespace: str
    project: str
    cell: str


def find_claim_location(
    cell: PlaneName, namespace: Namespace | None, single: str = ""
) -> ClaimLocation | None:
    """Return where the claims of a cell's namespace are, by the labels of the namespace.

    In a single cluster, whose project is ``single``, a namespace without these labels contains the
    claims of its own instances. Otherwise the project is unknown, and the result is None.
    """
    namespace_labels = namespace.metadata.labels if namespace is not None else {}
    project = decode_project_label(namespace_labels.get(labels.UPSTREAM_CLUSTER, ""))
    upstream = namespace_labels.get(labels.UPSTREAM_NAMESPACE, "")
    if project and upstream:
        return ClaimLocation(project_plane(project), upstream, project, member_name(cell))
    if single and namespace is not None:
        return ClaimLocation(
            project_plane(single), namespace.metadata.name, single, member_name(cell)
        )
    return None


def claim_ref(location: ClaimLocation, instance_name: str) -> Ref:
    return Ref(location.namespace, f"{_PREFIX}{instance_name}")


def claimed_instance(claim: ResourceClaim) -> tuple[PlaneName, Ref] | None:
    """Return the cell and the instance of a claim; None if it is not a claim for an instance."""
    cell = claim.metadata.labels.get(labels.SOURCE_CLUSTER)
    namespace = claim.metadata.labels.get(labels.INSTANCE_NAMESPACE)
    name = claim.metadata.name
    if not cell or not namespace or not name.startswith(_PREFIX):
        return None
    try:
        return cell_plane(cell), Ref(namespace, name.removeprefix(_PREFIX))
    except ValueError:
        return None


def new_claim(
    location: ClaimLocation, instance: Instance, size: InstanceSize | None
) -> ResourceClaim:
    ref = claim_ref(location, instance.metadata.name)
    instance_labels = instance.metadata.labels
    copied = (
        *(labels.DEPLOYMENT_NAME, labels.WORKLOAD_NAME, labels.WORKLOAD_UID),
        labels.INSTANCE_INDEX,
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=ref.name,
            namespace=ref.namespace,
            labels={
                labels.SOURCE_CLUSTER: location.cell,
                labels.INSTANCE_NAMESPACE: instance.metadata.namespace,
                **{name: instance_labels[name] for name in copied if name in instance_labels},
            },
            finalizers=[labels.CLAIM_FINALIZER],
        ),
        spec=ResourceClaimSpec(
            consumer_ref=consumer_of(location.project),
            resource_ref=consumer_of(location.project),
            requests=requests_of(size),
        ),
    )


def is_claim_of(claim: ResourceClaim, location: ClaimLocation, instance: Instance) -> bool:
    """Return True if the claim is for this cell, namespace and workload.

    Another cell, and an earlier workload, may have an instance of the same name.
    """
    return _is_of_cell(claim, location, instance) and _is_of_workload_of(claim, instance)


def _is_of_cell(claim: ResourceClaim, location: ClaimLocation, instance: Instance) -> bool:
    source = claim.metadata.labels.get(labels.SOURCE_CLUSTER)
    namespace = claim.metadata.labels.get(labels.INSTANCE_NAMESPACE)
    return (source, namespace) == (location.cell, instance.metadata.namespace)


def _is_of_workload_of(claim: ResourceClaim, instance: Instance) -> bool:
    return is_same_workload(labeled_workload(claim), labeled_workload(instance))


def plan_claim(
    location: ClaimLocation,
    instance: Instance,
    claim: ResourceClaim | None,
    size: InstanceSize | None,
) -> Plan:
    """Plan the claim of an instance; ``claim`` is the existing claim of its name.

    After the Quota gate of the instance is cleared, its claim stays, whatever size the instance has
    then.
    """
    if (
        claim is not None
        and QUOTA not in gate_names(instance)
        and is_claim_of(claim, location, instance)
    ):
        return Plan()
    if claim is None:
        desired = new_claim(location, instance, size)
        return Plan((Create(location.plane, CLAIM, desired, "claim of an instance"),))
    if not is_claim_of(claim, location, instance):
        owner = "cell" if _is_of_workload_of(claim, instance) else "workload"
        return Plan((Wait(f"claim {ref_of(claim)} belongs to another {owner}"),), RECHECK_S)
    if not is_of_size(claim, size):
        # The previous machine of the slot is gone, so its amount is no longer used.
        return _delete_or_release(location.plane, claim, "the instance has another size")
    if claim.is_terminating and not is_granted(claim):
        return Plan((Wait(f"claim {ref_of(claim)} is being replaced"),), RECHECK_S)
    return Plan()


def needs_claim(instance: Instance) -> bool:
    """Return True while the instance waits for quota, and while quota is granted to it.

    So a granted claim that is missing is created again.
    """
    is_granted_to = is_true(instance.status.conditions, QUOTA_GRANTED)
    return QUOTA in gate_names(instance) or is_granted_to


def plan_claim_error(
    plane: PlaneName,
    location: ClaimLocation,
    instance: Instance,
    error: ApiError,
    now: str,
    unix_s: float,
) -> Plan:
    """Report why the project accepts no claim, in QuotaGranted of the instance.

    The instance controller is the other writer of QuotaGranted. It only reads claims, so it cannot
    report the error; it keeps these reasons (``CLAIM_ERRORS``) until a claim exists.
    """
    verdict = _claim_error(location, error)
    retry_s = FORBIDDEN_RETRY_S if isinstance(error, Forbidden) else REFUSED_RETRY_S
    if isinstance(error, AlreadyExists):  # usually the claim of the previous cell of the slot
        retry_s = pending_requeue_s(instance_age_s(instance, unix_s))
    conditions = set_conditions(
        instance.status.conditions,
        {QUOTA_GRANTED: verdict},
        generation=instance.metadata.generation,
        now=now,
    )
    if conditions == instance.status.conditions or QUOTA not in gate_names(instance):
        return Plan(requeue_after_s=retry_s)
    version, status = instance.metadata.resource_version, {"conditions": to_json(conditions)}
    report = PatchStatus(plane, INSTANCE, ref_of(instance), version, status, verdict.reason)
    return Plan((report,), requeue_after_s=retry_s)


def _claim_error(location: ClaimLocation, error: ApiError) -> ConditionValue:
    if isinstance(error, NotFound) and error.kind in _PROJECT_KINDS:
        message = f"Project {location.project} does not exist: {error}"
        return ConditionValue(FALSE, Reason.QUOTA_PROJECT_NOT_FOUND, message)
    if isinstance(error, NotFound):
        message = f"Project {location.project} has no namespace {location.namespace}: {error}"
        return ConditionValue(FALSE, Reason.QUOTA_NAMESPACE_NOT_FOUND, message)
    message = f"Project {location.project} rejects the claim: {error}"
    return ConditionValue(FALSE, Reason.QUOTA_MISCONFIGURED, message)


def is_of_size(claim: ResourceClaim, size: InstanceSize | None) -> bool:
    claimed = {r.resource_type: r.amount for r in claim.spec.requests}
    return claimed == {r.resource_type: r.amount for r in requests_of(size)}


def plan_release(
    plane: PlaneName,
    claim: ResourceClaim,
    instance: Instance | None,
    deployment: WorkloadDeployment | None,
) -> Plan:
    """Release a claim that is no longer used. Otherwise restore its finalizer.

    ``instance`` and ``deployment`` are those of the claim's slot, read from its cell.
    """
    reason = _release_reason(claim, instance, deployment)
    if reason:
        return _delete_or_release(plane, claim, reason)
    if claim.is_terminating:
        return Plan((Wait(f"{ref_of(claim)} is in use"),), requeue_after_s=RECHECK_S)
    if instance is not None:
        actions = add_finalizer(plane, CLAIM, claim, labels.CLAIM_FINALIZER)
        return Plan(tuple(actions), IN_USE_RECHECK_S)
    wait = Wait("the deployment still wants this slot and will fill it again")
    return Plan((wait,), requeue_after_s=RECHECK_S)


class ReleaseState(Enum):
    KEEP = auto()  # the slot is in use or wanted
    CONFIRM = auto()  # the cache shows an empty slot; a live read of the cell has to confirm it
    RELEASING = auto()  # confirmed; the claim clears no gate any more


def release_state(
    claim: ResourceClaim,
    instance: Instance | None,
    deployment: WorkloadDeployment | None,
    *,
    is_live: bool = False,
    release_requested: bool = False,
) -> ReleaseState:
    """Return whether the claim of a slot is kept or released, or has to be checked by a live read.

    ``is_live`` is True if instance and deployment were read from the cell, not from a cache.
    ``release_requested`` is True if a request to delete the claim may have been sent. The release
    can then no longer be canceled.
    """
    if release_requested:
        return ReleaseState.RELEASING
    is_already_released = claim.is_terminating and (
        labels.CLAIM_FINALIZER not in claim.metadata.finalizers
    )
    if is_already_released or not _release_reason(claim, instance, deployment):
        return ReleaseState.KEEP
    return ReleaseState.RELEASING if is_live else ReleaseState.CONFIRM


def _release_reason(
    claim: ResourceClaim, instance: Instance | None, deployment: WorkloadDeployment | None
) -> str:
    """Return why the claim is released; empty if it is kept.

    An instance and a deployment of a later workload with the same name do not use the claim.
    """
    if instance is not None and not _is_of_workload_of(claim, instance):
        instance = None
    if deployment is not None:
        uid = deployment.spec.workload_ref.uid
        deployment = deployment if is_same_workload(labeled_workload(claim), uid) else None
    if claim.is_terminating:
        return "a user deleted it" if instance is None or not is_granted(claim) else ""
    number = claim.metadata.labels.get(labels.INSTANCE_INDEX, "")
    if instance is not None or (deployment is not None and is_wanted(deployment, number)):
        return ""
    return "the slot is no longer wanted"


def is_wanted(deployment: WorkloadDeployment, ordinal: str) -> bool:
    if deployment.is_terminating or not (ordinal.isdecimal() and ordinal.isascii()):
        return False
    return int(ordinal[:9]) < deployment.spec.scale_settings.min_replicas


def _delete_or_release(plane: PlaneName, claim: ResourceClaim, reason: str) -> Plan:
    """Delete the claim. Once it is terminating, remove the finalizer, which frees its quota."""
    if claim.is_terminating:
        return Plan(tuple(drop_finalizer(plane, CLAIM, claim, labels.CLAIM_FINALIZER)))
    return Plan((Delete(plane, CLAIM, ref_of(claim), claim.metadata.uid, reason),))


def is_granted(claim: ResourceClaim) -> bool:
    return is_true(claim.status.conditions, GRANTED)


def is_recent_grant(claim: ResourceClaim, unix_s: float) -> bool:
    """Return True if the claim was granted within the last RECENT_GRANT_S.

    Times in the future count as well, because the clocks of cell and project may disagree.
    """
    granted = find_condition(claim.status.conditions, GRANTED)
    if granted is None or granted.status != TRUE:
        return False
    return abs(unix_s - parse_timestamp(granted.last_transition_time)) < RECENT_GRANT_S


# --- the Quota gate


class ObservedQuota(msgspec.Struct, frozen=True):
    """What the cell can read about the quota of an instance.

    ``claim`` is the claim of its name, unless it is being released. ``is_readable`` is False if the
    claims of the project were never read. ``is_recorded`` is True if the status of the deployment
    records that the slot was granted this size. ``is_enforced`` is False if an operator has
    switched quota off.
    """

    location: ClaimLocation | None
    claim: ResourceClaim | None
    size: InstanceSize | None
    is_readable: bool = True
    is_recorded: bool = False
    is_enforced: bool = True


def decide_quota_gate(
    instance: Instance, observed: ObservedQuota, unix_s: float
) -> Decision | None:
    """Return the decision of the Quota gate; None while the project may still be synchronizing."""
    if not observed.is_enforced:
        return Decision(QUOTA, QUOTA_GRANTED, NOT_ENFORCED)
    waited_s = instance_age_s(instance, unix_s)
    if observed.location is None or observed.is_readable:
        verdict = quota_verdict(observed.location, instance, observed.claim, observed.size)
    elif observed.is_recorded:
        verdict = GRANTED_BY_RECORD
    elif waited_s < FIRST_SYNC_S:
        return None
    else:
        verdict = _unreadable_quota(observed.location, instance)
    recorded = find_condition(instance.status.conditions, QUOTA_GRANTED)
    if recorded is not None and observed.claim is None and recorded.reason in CLAIM_ERRORS:
        verdict = ConditionValue(recorded.status, recorded.reason, recorded.message)
    granted = verdict.status == TRUE
    requeue_s = None if granted else pending_requeue_s(waited_s)
    return Decision(QUOTA, QUOTA_GRANTED, verdict, requeue_s)


def _unreadable_quota(location: ClaimLocation, instance: Instance) -> ConditionValue:
    """Return the last recorded decision, or that the quota cannot be read if there is none."""
    recorded = find_condition(instance.status.conditions, QUOTA_GRANTED)
    if recorded is not None and recorded.reason not in (Reason.PENDING, Reason.PENDING_EVALUATION):
        return ConditionValue(recorded.status, recorded.reason, recorded.message)
    message = f"The quota of project {location.project} cannot be read"
    return ConditionValue(UNKNOWN, Reason.QUOTA_BACKEND_UNAVAILABLE, message)


def quota_verdict(
    location: ClaimLocation | None,
    instance: Instance,
    claim: ResourceClaim | None,
    size: InstanceSize | None,
) -> ConditionValue:
    """Return QuotaGranted of the instance, from the claim of its name."""
    if location is None:
        message = f"Namespace {instance.metadata.namespace} has no labels of a project"
        return ConditionValue(FALSE, Reason.QUOTA_PROJECT_ID_UNRESOLVABLE, message)
    if claim is None or (claim.is_terminating and not is_granted(claim)):
        return ConditionValue(UNKNOWN, Reason.PENDING_EVALUATION, _UNDECIDED)
    if not _is_of_cell(claim, location, instance):
        owner = claim.metadata.labels.get(labels.SOURCE_CLUSTER, "another owner")
        message = f"ResourceClaim {ref_of(claim)} belongs to {owner}"
        return ConditionValue(FALSE, Reason.QUOTA_MISCONFIGURED, message)
    if not is_of_size(claim, size) or not _is_of_workload_of(claim, instance):
        return ConditionValue(UNKNOWN, Reason.PENDING_EVALUATION, _UNDECIDED)
    granted = find_condition(claim.status.conditions, GRANTED)
    if granted is None or granted.reason == Reason.PENDING_EVALUATION:
        return ConditionValue(UNKNOWN, Reason.PENDING_EVALUATION, _UNDECIDED)
    if granted.status == TRUE:
        return ConditionValue(TRUE, Reason.QUOTA_AVAILABLE, "Quota is granted")
    reason = as_quota_granted_reason(granted.reason)
    # The API defines the reason of a missing budget for status Unknown.
    status: ConditionStatus = UNKNOWN if reason == Reason.QUOTA_NO_BUDGET else FALSE
    return ConditionValue(status, reason, granted.message)


def pending_requeue_s(instance_age_s: float) -> float:
    """Return the delay until the next check of an instance that waits for quota, by its age."""
    return next((delay for until, delay in _TIERS if instance_age_s < until), _LAST_TIER_S)


# --- the record of granted slots

_DIGITS_MAX = 6
InstanceSizeLookup = Callable[[Instance], InstanceSize | None]


def size_text(size: InstanceSize | None) -> str:
    """Return the recorded text of a size; ``any`` if the size is unknown."""
    return f"{size.millicores}m/{size.mebibytes}Mi" if size is not None else "any"


def recorded_slots(
    deployment: WorkloadDeployment,
    by_ordinal: Mapping[int, Instance],
    wanted: int,
    size_of: InstanceSizeLookup,
) -> list[GrantedSlots]:
    """Return the slots with granted quota, for the status; ``by_ordinal`` are the instances.

    An empty slot keeps its recorded size. A slot that is no longer wanted is removed from the
    record, as its claim is released.
    """
    recorded = {n: slots.size for slots in deployment.status.granted for n in ordinals_of(slots)}
    sizes: dict[str, list[int]] = {}
    size_by_template: dict[str, str] = {}  # computed once per template hash
    for number in range(wanted):
        instance = by_ordinal.get(number)
        granted = recorded.get(number, "")
        if instance is not None:
            template = instance.spec.controller.template_hash
            if template not in size_by_template:
                size_by_template[template] = size_text(size_of(instance))
            size = size_by_template[template]
            granted = size if granted == size or _has_quota(instance) else ""
        if granted:
            sizes.setdefault(granted, []).append(number)
    return [
        GrantedSlots(size=size, ordinals=format_ordinals(sizes[size])) for size in sorted(sizes)
    ]


def is_granted_before(
    deployment: WorkloadDeployment, number: int, size: InstanceSize | None
) -> bool:
    wanted = size_text(size)
    same_size = (slots for slots in deployment.status.granted if slots.size == wanted)
    return any(number in ordinals_of(slots) for slots in same_size)


def ordinals_of(slots: GrantedSlots) -> Iterator[int]:
    return parse_ordinals(slots.ordinals)


def parse_ordinals(text: str) -> Iterator[int]:
    """Yield the ordinals of a record such as ``0-3,7``; invalid parts are ignored."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if all(n.isdecimal() and len(n) <= _DIGITS_MAX for n in (first, last)):
            yield from range(int(first), int(last) + 1)


def _has_quota(instance: Instance) -> bool:
    return QUOTA not in gate_names(instance) and is_true(instance.status.conditions, QUOTA_GRANTED)


def format_ordinals(numbers: list[int]) -> str:
    """Return ascending ordinals with runs abbreviated, such as ``0-3,7``."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
