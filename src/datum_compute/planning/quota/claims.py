"""The quota claim of an instance's slot: made for the first instance in it, kept while the slot is
wanted or something runs in it, and replaced when the next instance has another size.

A claim belongs to the slot (deployment and ordinal), so a restart at full quota keeps its place and
needs nobody's consent. It lies in the project, named for the instance, and carries labels that say
where the instance is: on which cell, in which namespace.

Whoever deletes a claim, or the namespace it lies in, frees nothing while a machine runs: a granted
claim is held by a finalizer until its slot is empty, counts until then, and is as good as any other
to whoever comes into the slot meanwhile.

Which slots of a deployment have quota, as the cell keeps it on record in its status.

A claim lies in the project, which may be away when the cell starts anew. A slot that was granted
its size needs nobody's consent for the next instance of that size, so what was granted is written
down where the cell can read it: with the counts, for which it writes anyway. While the project can
be read its claims decide, and the record is only kept.

How large an instance is: what its quota is claimed for, and the most that its machine may use.

The first source that says both amounts counts:
1. The limits of its containers, added up, if every one of them has both.
2. What the instance itself asks for.
3. Its instance type: an object of the plane, or one of those that always exist.
Otherwise only the instance is counted. A provider's machine is never asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto

import msgspec

from datum_compute.api import labels
from datum_compute.api.codec import plain
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Verdict,
    find_condition,
    is_true,
    with_verdicts,
)
from datum_compute.api.errors import AlreadyExists, ApiError, NotFound
from datum_compute.api.identity import decoded_project
from datum_compute.api.instance import (
    QUOTA_GRANTED,
    QUOTA_UNDECIDED,
    Instance,
    ResourceAmounts,
    Runtime,
)
from datum_compute.api.instancetype import BUILT_IN_SIZES, InstanceType, size_name
from datum_compute.api.kinds import CLAIM, INSTANCE
from datum_compute.api.meta import ObjectMeta, Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import PlaneName, cell_plane, member_name, project_plane
from datum_compute.api.quantities import mebibytes, millicores
from datum_compute.api.quotametrics import INSTANCES, MEMORY, VCPUS, consumer_of
from datum_compute.api.reasons import Reason, as_quota_granted_reason
from datum_compute.api.resourceclaim import (
    GRANTED,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceRequest,
)
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.api.workloaddeployment import GrantedSlots, WorkloadDeployment
from datum_compute.planning.plan import (
    Create,
    Delete,
    PatchStatus,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.rollout.gates import (
    FIRST_SYNC_S,
    QUOTA,
    Decision,
    gate_names,
    waiting_s,
)


class InstanceSize(msgspec.Struct, frozen=True):
    millicores: int
    mebibytes: int


TypeNamed = Callable[[str], InstanceType | None]


def size_of(runtime: Runtime, type_named: TypeNamed) -> InstanceSize | None:
    limits = [_both(c.resources.limits) for c in runtime.sandbox.containers]
    complete = [size for size in limits if size is not None]
    if len(complete) == len(limits):
        return InstanceSize(sum(s.millicores for s in complete), sum(s.mebibytes for s in complete))
    asked = _both(runtime.resources.requests)
    if asked is not None:
        return asked
    name = size_name(runtime.resources.instance_type)
    found = type_named(name)
    if found is not None:
        resources = found.spec.resources
        return InstanceSize(millicores(resources.cpu), mebibytes(resources.memory))
    built_in = BUILT_IN_SIZES.get(name)
    return InstanceSize(millicores(built_in[0]), mebibytes(built_in[1])) if built_in else None


def _both(amounts: ResourceAmounts) -> InstanceSize | None:
    if amounts.cpu is None or amounts.memory is None:
        return None
    return InstanceSize(millicores(amounts.cpu), mebibytes(amounts.memory))


def amounts_of(size: InstanceSize | None) -> ResourceAmounts:
    """The size in the words of the API."""
    if size is None:
        return ResourceAmounts()
    return ResourceAmounts(cpu=f"{size.millicores}m", memory=f"{size.mebibytes}Mi")


def requests_of(size: InstanceSize | None) -> list[ResourceRequest]:
    """What an instance of the size claims; one of unknown size counts as an instance only."""
    amounts = {INSTANCES.resource_type: 1}
    if size is not None:
        amounts[VCPUS.resource_type] = size.millicores
        amounts[MEMORY.resource_type] = size.mebibytes
    return [ResourceRequest(resource_type=name, amount=amount) for name, amount in amounts.items()]


_PREFIX = "instance-"
# As a new instance says itself, so that nothing has to be written before the decision.
_UNDECIDED = QUOTA_UNDECIDED.message
# While somebody waits: looked at again after so long, by how long the instance has been waiting.
_TIERS = ((60.0, 1.0), (300.0, 15.0), (600.0, 60.0))
_LAST_TIER_S = 300.0
_JITTER = 0.2
# A claim without an instance is looked at again after so long, should an event be missed.
RECHECK_S = 60.0
# A claim in use is checked this often. The event that its instance is gone does not lead to the
# claim while the namespace of the cell has lost the labels that name its project.
IN_USE_RECHECK_S = 120.0
# A project that refuses a claim is tried again after this delay.
REFUSED_S = 60.0
# A grant this recent needs no live read: a cell that was forced to leave was silent for longer.
RECENT_GRANT_S = 20.0

GRANTED_BY_RECORD = Verdict(TRUE, Reason.QUOTA_AVAILABLE, "Quota was granted to the slot before")
# Reasons of QuotaGranted that the claim controller writes when it cannot create a claim.
CLAIM_ERRORS = (Reason.QUOTA_NAMESPACE_NOT_FOUND, Reason.QUOTA_MISCONFIGURED)


class ClaimLocation(msgspec.Struct, frozen=True):
    """Where the claims of a cell's namespace lie, and for whom they are."""

    plane: PlaneName
    namespace: str
    project: str
    cell: str


def find_claim_location(
    cell: PlaneName, namespace: Namespace | None, single: str = ""
) -> ClaimLocation | None:
    """By the identity of the cell's namespace. Without one, and with the name of the single project
    of a single cluster, claims lie in the namespace of their instances; otherwise nobody knows
    whose they are."""
    identity = namespace.metadata.labels if namespace is not None else {}
    project = decoded_project(identity.get(labels.UPSTREAM_CLUSTER, ""))
    upstream = identity.get(labels.UPSTREAM_NAMESPACE, "")
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
    """The cell and the instance that a claim is for; None if it is not one of ours."""
    told = claim.metadata.labels
    cell, namespace = told.get(labels.SOURCE_CLUSTER), told.get(labels.INSTANCE_NAMESPACE)
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
    ref, told = claim_ref(location, instance.metadata.name), instance.metadata.labels
    kept = (labels.DEPLOYMENT_NAME, labels.WORKLOAD_NAME, labels.INSTANCE_INDEX)
    return ResourceClaim(
        metadata=ObjectMeta(
            name=ref.name,
            namespace=ref.namespace,
            labels={
                labels.SOURCE_CLUSTER: location.cell,
                labels.INSTANCE_NAMESPACE: instance.metadata.namespace,
                **{label: told[label] for label in kept if label in told},
            },
            finalizers=[labels.CLAIM_FINALIZER],
        ),
        spec=ResourceClaimSpec(
            consumer_ref=consumer_of(location.project),
            resource_ref=consumer_of(location.project),
            requests=requests_of(size),
        ),
    )


def is_for(claim: ResourceClaim, location: ClaimLocation, instance: Instance) -> bool:
    """Two cells with an instance of one name must not share a claim."""
    told = claim.metadata.labels
    return (told.get(labels.SOURCE_CLUSTER), told.get(labels.INSTANCE_NAMESPACE)) == (
        location.cell,
        instance.metadata.namespace,
    )


def plan_claim(
    location: ClaimLocation,
    instance: Instance,
    claim: ResourceClaim | None,
    size: InstanceSize | None,
) -> Plan:
    """Plan the claim of an instance; ``claim`` is the existing claim of its name.

    A claim that was granted to the instance stays, whatever size the instance has now.
    """
    if (
        claim is not None
        and QUOTA not in gate_names(instance)
        and is_for(claim, location, instance)
    ):
        return Plan()
    if claim is None:
        made = new_claim(location, instance, size)
        return Plan((Create(location.plane, CLAIM, made, "an instance needs it"),))
    if not is_for(claim, location, instance):
        return Plan((Wait(f"claim {ref_of(claim)} is in the way"),), RECHECK_S)
    if not is_of_size(claim, size):
        # What was here before is gone, machine and all: nobody uses the old amount any more.
        return _release(location.plane, claim, "the instance has another size now")
    if claim.is_terminating and not is_granted(claim):
        return Plan((Wait(f"claim {ref_of(claim)} goes and is made again"),), RECHECK_S)
    return Plan()


def needs_claim(instance: Instance) -> bool:
    """Return True while the instance waits for its quota, and while it has it.

    A granted claim that was deleted by hand is created again.
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
    retry_s = REFUSED_S
    if isinstance(error, AlreadyExists):  # usually the claim of the previous cell of the slot
        retry_s = pending_requeue_s(waiting_s(instance, unix_s), instance.metadata.uid)
    conditions = with_verdicts(
        instance.status.conditions,
        {QUOTA_GRANTED: verdict},
        generation=instance.metadata.generation,
        now=now,
    )
    if conditions == instance.status.conditions or QUOTA not in gate_names(instance):
        return Plan(requeue_after_s=retry_s)
    version, status = instance.metadata.resource_version, {"conditions": plain(conditions)}
    report = PatchStatus(plane, INSTANCE, ref_of(instance), version, status, verdict.reason)
    return Plan((report,), requeue_after_s=retry_s)


def _claim_error(location: ClaimLocation, error: ApiError) -> Verdict:
    if isinstance(error, NotFound):
        message = f"Project {location.project} has no namespace {location.namespace}: {error}"
        return Verdict(FALSE, Reason.QUOTA_NAMESPACE_NOT_FOUND, message)
    message = f"Project {location.project} does not take the claim: {error}"
    return Verdict(FALSE, Reason.QUOTA_MISCONFIGURED, message)


def is_of_size(claim: ResourceClaim, size: InstanceSize | None) -> bool:
    asked = {r.resource_type: r.amount for r in claim.spec.requests}
    return asked == {r.resource_type: r.amount for r in requests_of(size)}


def plan_release(
    plane: PlaneName,
    claim: ResourceClaim,
    instance: Instance | None,
    deployment: WorkloadDeployment | None,
) -> Plan:
    """``instance`` and ``deployment`` are those of the claim's slot, read from its cell."""
    reason = _release_reason(claim, instance, deployment)
    if reason:
        return _release(plane, claim, reason)
    if claim.is_terminating:
        return Plan((Wait(f"{ref_of(claim)} is in use"),), requeue_after_s=RECHECK_S)
    if instance is not None:
        actions = add_finalizer(plane, CLAIM, claim, labels.CLAIM_FINALIZER)
        return Plan(tuple(actions), _add_jitter(IN_USE_RECHECK_S, claim.metadata.uid))
    waits = Wait("the slot is wanted and will be filled again")
    return Plan((waits,), requeue_after_s=RECHECK_S)


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
    """Return whether the claim of a slot is released.

    ``is_live``: instance and deployment were read from the cell, not from a cache. ``release_requested``: a
    request to delete the claim may have been sent, so the release cannot be taken back.
    """
    if release_requested:
        return ReleaseState.RELEASING
    is_held_by_others = claim.is_terminating and (
        labels.CLAIM_FINALIZER not in claim.metadata.finalizers
    )
    if is_held_by_others or not _release_reason(claim, instance, deployment):
        return ReleaseState.KEEP
    return ReleaseState.RELEASING if is_live else ReleaseState.CONFIRM


def _release_reason(
    claim: ResourceClaim, instance: Instance | None, deployment: WorkloadDeployment | None
) -> str:
    """Return why the claim is released; empty if it is kept."""
    if claim.is_terminating:
        return "somebody deleted it" if instance is None or not is_granted(claim) else ""
    number = claim.metadata.labels.get(labels.INSTANCE_INDEX, "")
    if instance is not None or (deployment is not None and is_wanted(deployment, number)):
        return ""
    return "the slot is no longer wanted"


def is_wanted(deployment: WorkloadDeployment, ordinal: str) -> bool:
    if deployment.is_terminating or not (ordinal.isdecimal() and ordinal.isascii()):
        return False
    return int(ordinal[:9]) < deployment.spec.scale_settings.min_replicas


def _release(plane: PlaneName, claim: ResourceClaim, reason: str) -> Plan:
    """Delete the claim, then remove our finalizer, so that it is terminating before it is free."""
    if claim.is_terminating:
        return Plan(tuple(drop_finalizer(plane, CLAIM, claim, labels.CLAIM_FINALIZER)))
    return Plan((Delete(plane, CLAIM, ref_of(claim), claim.metadata.uid, reason),))


def is_granted(claim: ResourceClaim) -> bool:
    return is_true(claim.status.conditions, GRANTED)


def is_recent_grant(claim: ResourceClaim, unix_s: float) -> bool:
    """Return True if the claim was just granted. The clocks of cell and project may disagree."""
    granted = find_condition(claim.status.conditions, GRANTED)
    if granted is None or granted.status != TRUE:
        return False
    return abs(unix_s - parse_timestamp(granted.last_transition_time)) < RECENT_GRANT_S


# --- the Quota gate


class ObservedQuota(msgspec.Struct, frozen=True):
    """What the cell can read about the quota of an instance.

    ``claim`` is the claim of its name, unless it is being released. ``is_readable`` is False if the
    claims of the project were never read. ``is_recorded``: the cell has recorded that the slot was
    granted this size (``planning/quota/claims.py``).
    """

    location: ClaimLocation | None
    claim: ResourceClaim | None
    size: InstanceSize | None
    is_readable: bool = True
    is_recorded: bool = False


def decide_quota_gate(
    instance: Instance, observed: ObservedQuota, unix_s: float
) -> Decision | None:
    """Return the decision of the Quota gate; None while the project may still be synchronizing."""
    waited_s = waiting_s(instance, unix_s)
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
        verdict = Verdict(recorded.status, recorded.reason, recorded.message)
    granted = verdict.status == TRUE
    requeue_s = None if granted else pending_requeue_s(waited_s, instance.metadata.uid)
    return Decision(QUOTA, QUOTA_GRANTED, verdict, requeue_s)


def _unreadable_quota(location: ClaimLocation, instance: Instance) -> Verdict:
    """Return the last decision if there is one; it is still the best that is known."""
    recorded = find_condition(instance.status.conditions, QUOTA_GRANTED)
    if recorded is not None and recorded.reason not in (Reason.PENDING, Reason.PENDING_EVALUATION):
        return Verdict(recorded.status, recorded.reason, recorded.message)
    message = f"The quota of project {location.project} cannot be read"
    return Verdict(UNKNOWN, Reason.QUOTA_BACKEND_UNAVAILABLE, message)


def quota_verdict(
    location: ClaimLocation | None,
    instance: Instance,
    claim: ResourceClaim | None,
    size: InstanceSize | None,
) -> Verdict:
    """The instance's QuotaGranted, from the claim of its name."""
    if location is None:
        message = f"Namespace {instance.metadata.namespace} does not say which project it is of"
        return Verdict(FALSE, Reason.QUOTA_PROJECT_ID_UNRESOLVABLE, message)
    if claim is None or (claim.is_terminating and not is_granted(claim)):
        return Verdict(UNKNOWN, Reason.PENDING_EVALUATION, _UNDECIDED)
    if not is_for(claim, location, instance):
        owner = claim.metadata.labels.get(labels.SOURCE_CLUSTER, "somebody else")
        message = f"ResourceClaim {ref_of(claim)} is held by {owner}"
        return Verdict(FALSE, Reason.QUOTA_MISCONFIGURED, message)
    if not is_of_size(claim, size):
        return Verdict(UNKNOWN, Reason.PENDING_EVALUATION, _UNDECIDED)
    granted = find_condition(claim.status.conditions, GRANTED)
    if granted is None or granted.reason == Reason.PENDING_EVALUATION:
        return Verdict(UNKNOWN, Reason.PENDING_EVALUATION, _UNDECIDED)
    if granted.status == TRUE:
        return Verdict(TRUE, Reason.QUOTA_AVAILABLE, "Quota is granted")
    return Verdict(FALSE, as_quota_granted_reason(granted.reason), granted.message)


def pending_requeue_s(waiting_s: float, uid: str) -> float:
    """Return when to check an instance again that has waited this long for its quota."""
    tier = next((delay for until, delay in _TIERS if waiting_s < until), _LAST_TIER_S)
    return _add_jitter(tier, uid)


def _add_jitter(delay_s: float, uid: str) -> float:
    """Lengthen the delay by a share that depends on the uid, so that checks spread over time."""
    share = int.from_bytes(hashlib.sha256(uid.encode()).digest()[:4]) / 2**32
    return delay_s * (1 + _JITTER * share)


_DIGITS_MAX = 6
InstanceSizeLookup = Callable[[Instance], InstanceSize | None]


def size_text(size: InstanceSize | None) -> str:
    """One of unknown size counts as an instance only."""
    return f"{size.millicores}m/{size.mebibytes}Mi" if size is not None else "any"


def recorded_slots(
    deployment: WorkloadDeployment,
    held: Mapping[int, Instance],
    wanted: int,
    size_of: InstanceSizeLookup,
) -> list[GrantedSlots]:
    """``held`` are the instances by ordinal. A slot that is empty for a while keeps what it had;
    one that is no longer wanted loses it, as it loses its claim."""
    before = {n: slots.size for slots in deployment.status.granted for n in ordinals_of(slots)}
    sizes: dict[str, list[int]] = {}
    known: dict[str, str] = {}  # by template: computed once, not for each of its instances
    for number in range(wanted):
        instance = held.get(number)
        kept = before.get(number, "")
        if instance is not None:
            template = instance.spec.controller.template_hash
            if template not in known:
                known[template] = size_text(size_of(instance))
            size = known[template]
            kept = size if _has_quota(instance) or kept == size else ""
        if kept:
            sizes.setdefault(kept, []).append(number)
    return [GrantedSlots(size=size, ordinals=_text(sizes[size])) for size in sorted(sizes)]


def is_granted_before(
    deployment: WorkloadDeployment, number: int, size: InstanceSize | None
) -> bool:
    wanted = size_text(size)
    found = (slots for slots in deployment.status.granted if slots.size == wanted)
    return any(number in ordinals_of(slots) for slots in found)


def ordinals_of(slots: GrantedSlots) -> Iterator[int]:
    """Of what is no such text nothing is granted."""
    for part in slots.ordinals.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if all(n.isdecimal() and len(n) <= _DIGITS_MAX for n in (first, last)):
            yield from range(int(first), int(last) + 1)


def _has_quota(instance: Instance) -> bool:
    granted = is_true(instance.status.conditions, QUOTA_GRANTED)
    return granted and QUOTA not in gate_names(instance)


def _text(numbers: list[int]) -> str:
    """Ascending ordinals, runs of them in short: 0-3,7."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
