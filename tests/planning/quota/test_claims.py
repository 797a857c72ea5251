"""Quota claims of instances: location, creation, replacement and release.

The record of granted slots on the cell, and the size of an instance for quota.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    GrantedSlots,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.instance import (
    QUOTA_GRANTED,
    Container,
    ContainerResources,
    Instance,
    ResourceAmounts,
    Runtime,
    RuntimeResources,
    Sandbox,
)
from datum_compute.api.compute.instance_type import (
    InstanceType,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionStatus,
    ConditionValue,
    make_condition,
)
from datum_compute.api.core import Namespace
from datum_compute.api.errors import AlreadyExists, ApiError, Forbidden, NotFound
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.meta.quantity import mebibytes, millicores
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import cell_plane, project_plane
from datum_compute.api.quota import ResourceClaim, ResourceClaimStatus
from datum_compute.planning.plan import Create, Delete, PatchStatus, Plan, Wait
from datum_compute.planning.quota.claims import (
    FORBIDDEN_RETRY_S,
    GRANTED_BY_RECORD,
    RECENT_GRANT_S,
    REFUSED_RETRY_S,
    ClaimLocation,
    InstanceSize,
    ObservedQuota,
    ReleaseState,
    claim_ref,
    claimed_instance,
    decide_quota_gate,
    find_claim_location,
    is_granted_before,
    is_recent_grant,
    needs_claim,
    new_claim,
    ordinals_of,
    pending_requeue_s,
    plan_claim,
    plan_claim_error,
    plan_release,
    quota_verdict,
    recorded_slots,
    release_state,
    requests_of,
    size_of,
)
from datum_compute.planning.rollout.gates import FIRST_SYNC_S
from testkit.builders import NOW, a_deployment, an_instance, of_workload, refused_by_quota

CELL = cell_plane("dfw")
LOCATION = ClaimLocation(project_plane("shop"), "default", "shop", "dfw")
SMALL, LARGE = InstanceSize(1000, 2048), InstanceSize(2000, 4096)


def a_claim(
    status: ConditionStatus = TRUE,
    reason: str = "QuotaAvailable",
    size: InstanceSize | None = SMALL,
) -> ResourceClaim:
    claim = new_claim(LOCATION, an_instance(0), size)
    condition = make_condition(
        "Granted", ConditionValue(status, reason, "words"), generation=1, now=NOW
    )
    metadata = msgspec.structs.replace(claim.metadata, uid="claim-uid")
    return msgspec.structs.replace(
        claim, metadata=metadata, status=ResourceClaimStatus(conditions=[condition])
    )


def a_namespace(**identity: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name="ns-1", labels=identity))


def test_a_claim_is_in_the_project_of_its_namespace() -> None:
    identity = {
        labels.UPSTREAM_CLUSTER: "cluster-shop",
        labels.UPSTREAM_NAMESPACE: "default",
    }
    assert (
        find_claim_location(CELL, Namespace(metadata=ObjectMeta(name="ns-1", labels=identity)))
        == LOCATION
    )


def test_in_a_single_cluster_a_claim_is_in_the_namespace_of_its_instance() -> None:
    location = ClaimLocation(project_plane("shop"), "ns-1", "shop", "dfw")
    assert find_claim_location(CELL, a_namespace(), "shop") == location


def test_a_namespace_without_labels_has_no_claim_location() -> None:
    assert find_claim_location(CELL, a_namespace()) is None
    verdict = quota_verdict(None, an_instance(0), None, SMALL)
    assert (verdict.status, verdict.reason) == (FALSE, "QuotaProjectIDUnresolvable")


def test_a_claim_maps_to_its_instance() -> None:
    claim = a_claim()
    assert claim.metadata.name == "instance-web-dfw-0"
    assert claim_ref(LOCATION, "web-dfw-0") == Ref("default", claim.metadata.name)
    assert claimed_instance(claim) == (CELL, Ref("default", "web-dfw-0"))


@pytest.mark.parametrize("label", [labels.SOURCE_CLUSTER, labels.INSTANCE_NAMESPACE])
def test_a_foreign_claim_maps_to_no_instance(label: str) -> None:
    claim = a_claim()
    kept = {name: value for name, value in claim.metadata.labels.items() if name != label}
    metadata = msgspec.structs.replace(claim.metadata, labels=kept)
    assert claimed_instance(msgspec.structs.replace(claim, metadata=metadata)) is None
    odd = {**claim.metadata.labels, labels.SOURCE_CLUSTER: "No Cell!"}
    metadata = msgspec.structs.replace(claim.metadata, labels=odd)
    assert claimed_instance(msgspec.structs.replace(claim, metadata=metadata)) is None


def test_a_claim_is_created_once_and_replaced_when_the_size_changes() -> None:
    waiting = refused_by_quota(an_instance(0))
    (create,) = plan_claim(LOCATION, waiting, None, SMALL).actions
    assert isinstance(create, Create)
    assert plan_claim(LOCATION, waiting, a_claim(), SMALL).actions == ()
    (delete,) = plan_claim(LOCATION, waiting, a_claim(), LARGE).actions
    assert isinstance(delete, Delete)
    granted = plan_claim(LOCATION, an_instance(0), a_claim(), LARGE)
    assert granted == Plan(), "without its gate an instance keeps what was granted"
    assert delete.uid == "claim-uid"
    pending = quota_verdict(LOCATION, an_instance(0), a_claim(), LARGE)
    assert pending.status == UNKNOWN


def test_two_cells_do_not_share_a_claim() -> None:
    other = ClaimLocation(LOCATION.plane, "default", "shop", "ord")
    (wait,) = plan_claim(other, an_instance(0), a_claim(), SMALL).actions
    assert isinstance(wait, Wait)
    verdict = quota_verdict(other, an_instance(0), a_claim(), SMALL)
    assert (verdict.status, verdict.reason) == (FALSE, "QuotaMisconfigured")
    assert "belongs to dfw" in verdict.message


@pytest.mark.parametrize(
    ("claim", "status", "reason"),
    [
        (None, UNKNOWN, "PendingEvaluation"),
        (a_claim(FALSE, "PendingEvaluation"), UNKNOWN, "PendingEvaluation"),
        (a_claim(), TRUE, "QuotaAvailable"),
        (a_claim(FALSE, "QuotaExceeded"), FALSE, "QuotaExceeded"),
        (a_claim(FALSE, "ValidationFailed"), FALSE, "ValidationFailed"),
        (a_claim(FALSE, "SomethingNew"), FALSE, "QuotaExceeded"),
    ],
)
def test_the_instance_reports_the_decision_of_its_claim(
    claim: ResourceClaim | None, status: str, reason: str
) -> None:
    verdict = quota_verdict(LOCATION, an_instance(0), claim, SMALL)
    assert (verdict.status, verdict.reason) == (status, reason)


def test_a_claim_of_an_earlier_workload_is_released_and_clears_no_gate() -> None:
    """The instances of both workloads have the same names."""
    earlier = of_workload(a_deployment(), "earlier")
    claim = a_claim()
    claim.metadata.labels[labels.WORKLOAD_UID] = "earlier"
    instance = an_instance(0)
    assert isinstance(plan_claim(LOCATION, instance, claim, SMALL).actions[0], Wait)
    verdict = quota_verdict(LOCATION, instance, claim, SMALL)
    assert (verdict.status, verdict.reason) == (UNKNOWN, "PendingEvaluation")
    assert release_state(claim, instance, a_deployment(), is_live=True) is ReleaseState.RELEASING
    of_claim = an_instance(0, deployment=earlier)
    assert release_state(claim, of_claim, earlier, is_live=True) is ReleaseState.KEEP
    assert quota_verdict(LOCATION, of_claim, claim, SMALL).status == TRUE


def test_a_claim_of_an_earlier_release_names_no_workload_and_stays() -> None:
    claim = a_claim()
    del claim.metadata.labels[labels.WORKLOAD_UID]
    assert plan_claim(LOCATION, an_instance(0), claim, SMALL).is_settled
    assert release_state(claim, an_instance(0), a_deployment()) is ReleaseState.KEEP


def test_a_claim_stays_while_its_slot_is_desired_or_occupied() -> None:
    wants, leaves = a_deployment(), a_deployment(terminating=True)
    in_use = plan_release(LOCATION.plane, a_claim(), an_instance(0), None)
    assert in_use.actions == ()
    assert in_use.requeue_after_s is not None  # the deletion event of its instance may be lost
    (wait,) = plan_release(LOCATION.plane, a_claim(), None, wants).actions
    assert isinstance(wait, Wait)
    for deployment in (leaves, None):
        (delete,) = plan_release(LOCATION.plane, a_claim(), None, deployment).actions
        assert isinstance(delete, Delete)


@pytest.mark.parametrize(
    ("age_s", "delay_s"),
    [(0, 1), (59, 1), (60, 15), (299, 15), (300, 60), (600, 300), (10**6, 300)],
)
def test_the_requeue_delay_grows_with_the_waiting_time(age_s: float, delay_s: float) -> None:
    assert pending_requeue_s(age_s) == delay_s


# --- release

KEEP, CONFIRM, RELEASING = ReleaseState.KEEP, ReleaseState.CONFIRM, ReleaseState.RELEASING


def deleted(claim: ResourceClaim, *finalizers: str) -> ResourceClaim:
    metadata = msgspec.structs.replace(
        claim.metadata, deletion_timestamp=NOW, finalizers=list(finalizers)
    )
    return msgspec.structs.replace(claim, metadata=metadata)


DELETED = deleted(a_claim(), labels.CLAIM_FINALIZER)
DELETED_DENIED = deleted(a_claim(FALSE, "QuotaExceeded"), labels.CLAIM_FINALIZER)


@pytest.mark.parametrize(
    ("claim", "instance", "deployment", "cached", "live"),
    [
        (a_claim(), an_instance(0), None, KEEP, KEEP),
        (a_claim(), None, a_deployment(), KEEP, KEEP),
        (a_claim(), None, None, CONFIRM, RELEASING),
        (a_claim(), None, a_deployment(terminating=True), CONFIRM, RELEASING),
        (DELETED, an_instance(0), a_deployment(), KEEP, KEEP),
        (DELETED, None, a_deployment(), CONFIRM, RELEASING),
        (DELETED_DENIED, an_instance(0), a_deployment(), CONFIRM, RELEASING),
        (deleted(a_claim(), "example.com/other"), None, None, KEEP, KEEP),
    ],
    ids=[
        "in use",
        "wanted",
        "not wanted",
        "deployment terminating",
        "deleted and in use",
        "deleted and empty",
        "deleted and never granted",
        "held by another finalizer",
    ],
)
def test_a_release_is_confirmed_by_a_live_read(
    claim: ResourceClaim,
    instance: Instance | None,
    deployment: WorkloadDeployment | None,
    cached: ReleaseState,
    live: ReleaseState,
) -> None:
    assert release_state(claim, instance, deployment) is cached
    assert release_state(claim, instance, deployment, is_live=True) is live


def test_a_requested_release_is_not_reverted() -> None:
    assert (
        release_state(a_claim(), an_instance(0), a_deployment(), release_requested=True)
        is RELEASING
    )


# --- the Quota gate

CREATED_S = parse_timestamp(NOW)


def waiting(reason: str = "", status: ConditionStatus = FALSE) -> Instance:
    """An instance created at NOW that waits for its quota; ``reason`` is that of QuotaGranted."""
    found = refused_by_quota(an_instance(0))
    verdict = ConditionValue(status, reason, "recorded")
    conditions = [make_condition(QUOTA_GRANTED, verdict, generation=1, now=NOW)] if reason else []
    return msgspec.structs.replace(
        found,
        metadata=msgspec.structs.replace(found.metadata, creation_timestamp=NOW),
        status=msgspec.structs.replace(found.status, conditions=conditions),
    )


READ = ObservedQuota(LOCATION, None, SMALL)
GRANTED_CLAIM = ObservedQuota(LOCATION, a_claim(), SMALL)
UNREAD = ObservedQuota(LOCATION, None, SMALL, is_readable=False)
NOT_ENFORCED = ObservedQuota(None, None, None, is_enforced=False)
NO_BUDGET = ObservedQuota(LOCATION, a_claim(FALSE, reason="QuotaNoBudget"), SMALL)
RECORDED = ObservedQuota(LOCATION, None, SMALL, is_readable=False, is_recorded=True)


@pytest.mark.parametrize(
    ("instance", "observed", "waited_s", "status", "reason"),
    [
        (waiting(), READ, 0, UNKNOWN, "PendingEvaluation"),
        (waiting(), GRANTED_CLAIM, 0, TRUE, "QuotaAvailable"),
        (waiting("QuotaMisconfigured"), READ, 0, FALSE, "QuotaMisconfigured"),
        (waiting("QuotaNamespaceNotFound"), READ, 0, FALSE, "QuotaNamespaceNotFound"),
        (waiting("QuotaMisconfigured"), GRANTED_CLAIM, 0, TRUE, "QuotaAvailable"),
        (waiting("QuotaProjectNotFound"), READ, 0, FALSE, "QuotaProjectNotFound"),
        (waiting(), NO_BUDGET, 0, UNKNOWN, "QuotaNoBudget"),
        (waiting("QuotaExceeded"), NOT_ENFORCED, 0, TRUE, "QuotaDisabled"),
        (waiting(), ObservedQuota(None, None, SMALL), 0, FALSE, "QuotaProjectIDUnresolvable"),
        (waiting(), RECORDED, 0, TRUE, "QuotaAvailable"),
        (waiting(), UNREAD, FIRST_SYNC_S, UNKNOWN, "QuotaBackendUnavailable"),
        (waiting("QuotaExceeded"), UNREAD, FIRST_SYNC_S, FALSE, "QuotaExceeded"),
        (waiting("Pending", UNKNOWN), UNREAD, FIRST_SYNC_S, UNKNOWN, "QuotaBackendUnavailable"),
    ],
    ids=[
        "no claim",
        "granted",
        "error of the claim controller",
        "namespace is missing",
        "error is over",
        "project is missing",
        "no budget",
        "not enforced",
        "no project",
        "granted by record",
        "project unreadable",
        "project unreadable after a denial",
        "project unreadable and undecided",
    ],
)
def test_the_quota_gate(
    instance: Instance, observed: ObservedQuota, waited_s: float, status: str, reason: str
) -> None:
    decision = decide_quota_gate(instance, observed, CREATED_S + waited_s)
    assert decision is not None
    assert (decision.value.status, decision.value.reason) == (status, reason)
    assert (decision.recheck_s is None) == (status == TRUE)


def test_the_quota_gate_waits_for_the_first_read_of_a_project() -> None:
    assert decide_quota_gate(waiting(), UNREAD, CREATED_S + FIRST_SYNC_S - 1) is None
    decision = decide_quota_gate(waiting(), RECORDED, CREATED_S)
    assert decision is not None
    assert decision.value == GRANTED_BY_RECORD


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        (waiting(), True),
        (waiting("QuotaAvailable", TRUE), True),
        (an_instance(0), False),
    ],
    ids=["gated", "granted", "neither"],
)
def test_an_instance_needs_a_claim_while_it_waits_and_while_it_has_quota(
    instance: Instance, expected: bool
) -> None:
    assert needs_claim(instance) is expected


@pytest.mark.parametrize(
    ("error", "reason", "retry_s"),
    [
        (NotFound("none", kind="namespaces"), "QuotaNamespaceNotFound", REFUSED_RETRY_S),
        (NotFound("none", kind="planes"), "QuotaProjectNotFound", REFUSED_RETRY_S),
        (NotFound("none", kind="projects"), "QuotaProjectNotFound", REFUSED_RETRY_S),
        (Forbidden("no"), "QuotaMisconfigured", FORBIDDEN_RETRY_S),
        (AlreadyExists("taken"), "QuotaMisconfigured", 1.0),
    ],
)
def test_a_project_that_accepts_no_claim_is_reported(
    error: ApiError, reason: str, retry_s: float
) -> None:
    plan = plan_claim_error(CELL, LOCATION, waiting(), error, NOW, CREATED_S)
    (report,) = plan.actions
    assert isinstance(report, PatchStatus)
    assert report.reason == reason
    assert report.status["conditions"][0]["reason"] == reason
    assert plan.requeue_after_s is not None
    assert retry_s <= plan.requeue_after_s <= retry_s * 1.2
    without_gate = plan_claim_error(CELL, LOCATION, an_instance(0), error, NOW, CREATED_S)
    assert without_gate.actions == (), "what was granted is not taken back"


def test_a_grant_is_recent_for_a_while() -> None:
    assert is_recent_grant(a_claim(), CREATED_S + RECENT_GRANT_S - 1)
    assert not is_recent_grant(a_claim(), CREATED_S + RECENT_GRANT_S)
    assert not is_recent_grant(a_claim(FALSE), CREATED_S)


SMALL, LARGE = InstanceSize(1000, 2048), InstanceSize(2000, 4096)


def granted(number: int) -> Instance:
    instance = an_instance(number)
    condition = make_condition(
        QUOTA_GRANTED, ConditionValue(TRUE, "QuotaAvailable", ""), generation=1, now=NOW
    )
    status = msgspec.structs.replace(instance.status, conditions=[condition])
    return msgspec.structs.replace(instance, status=status)


def remembering(*slots: GrantedSlots) -> WorkloadDeployment:
    return msgspec.structs.replace(
        a_deployment(replicas=9), status=WorkloadDeploymentStatus(granted=list(slots))
    )


def test_slots_with_quota_are_recorded_as_ranges() -> None:
    held = {n: granted(n) for n in (0, 1, 2, 5)} | {3: an_instance(3)}
    found = recorded_slots(remembering(), held, 6, lambda _: SMALL)
    assert found == [GrantedSlots(size="1000m/2048Mi", ordinals="0-2,5")]


def test_an_empty_slot_keeps_its_record_while_it_is_desired() -> None:
    before = remembering(GrantedSlots(size="1000m/2048Mi", ordinals="0-4"))
    found = recorded_slots(before, {0: granted(0)}, 3, lambda _: SMALL)
    assert found == [GrantedSlots(size="1000m/2048Mi", ordinals="0-2")]
    assert recorded_slots(before, {0: granted(0)}, 0, lambda _: SMALL) == []


def test_an_instance_of_another_size_has_no_record_until_its_claim_is_granted() -> None:
    before = remembering(GrantedSlots(size="1000m/2048Mi", ordinals="0"))
    assert recorded_slots(before, {0: an_instance(0)}, 1, lambda _: LARGE) == []
    found = recorded_slots(before, {0: granted(0)}, 1, lambda _: LARGE)
    assert found == [GrantedSlots(size="2000m/4096Mi", ordinals="0")]


def test_only_the_slot_and_the_size_on_record_are_granted() -> None:
    before = remembering(GrantedSlots(size="1000m/2048Mi", ordinals="0-1"))
    assert is_granted_before(before, 1, SMALL)
    assert not is_granted_before(before, 2, SMALL)
    assert not is_granted_before(before, 1, LARGE)
    assert not is_granted_before(before, 1, None)


@pytest.mark.parametrize("text", ["", "-", "a", "1-b", "9" * 40, "-3"])
def test_an_invalid_record_grants_nothing(text: str) -> None:
    assert not list(ordinals_of(GrantedSlots(size="any", ordinals=text)))


HUGE = InstanceType(spec=InstanceTypeSpec(resources=InstanceTypeResources(cpu=16, memory="64Gi")))


def runtime(
    *limits: ResourceAmounts,
    type_: str = "datumcloud/d1-standard-2",
    requests: ResourceAmounts | None = None,
) -> Runtime:
    containers = [
        Container(name=f"c{n}", image="web:1", resources=ContainerResources(limits=amounts))
        for n, amounts in enumerate(limits or (ResourceAmounts(),))
    ]
    resources = RuntimeResources(instance_type=type_, requests=requests or ResourceAmounts())
    return Runtime(sandbox=Sandbox(containers=containers), resources=resources)


BOTH = ResourceAmounts(cpu="250m", memory="512Mi")
HALF = ResourceAmounts(cpu=4)


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        pytest.param(runtime(BOTH, BOTH), InstanceSize(500, 1024), id="limits add up"),
        pytest.param(
            runtime(BOTH, HALF, requests=BOTH),
            InstanceSize(250, 512),
            id="some limits are no limits",
        ),
        pytest.param(runtime(requests=HALF), InstanceSize(1000, 2048), id="half a request is none"),
        pytest.param(runtime(), InstanceSize(1000, 2048), id="an old name of a type"),
        pytest.param(runtime(type_="d1-standard-8"), InstanceSize(4000, 8192), id="a type"),
        pytest.param(
            runtime(type_="huge"), InstanceSize(16000, 65536), id="a type of the catalogue"
        ),
        pytest.param(runtime(type_="unknown-type"), None, id="an unknown type"),
    ],
)
def test_the_first_complete_source_counts(asked: Runtime, size: InstanceSize | None) -> None:
    assert size_of(asked, lambda name: HUGE if name == "huge" else None) == size


def test_an_instance_of_unknown_size_counts_as_one_instance() -> None:
    assert [(r.resource_type, r.amount) for r in requests_of(None)] == [
        ("compute.datumapis.com/instances", 1)
    ]


@pytest.mark.parametrize(
    ("text", "amount"), [("500m", 500), (2, 2000), ("1.5", 1500), ("0.0001", 1), ("1m", 1)]
)
def test_processors_in_thousandths(text: int | str, amount: int) -> None:
    assert millicores(text) == amount


@pytest.mark.parametrize(
    ("text", "amount"),
    [("512Mi", 512), ("2Gi", 2048), (1 << 20, 1), (1, 1), ("1.5Gi", 1536), ("1G", 954), ("1Ki", 1)],
)
def test_memory_in_mebibytes(text: int | str, amount: int) -> None:
    assert mebibytes(text) == amount


@given(st.integers(1, 10**9), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
def test_rounding_never_exceeds_the_counted_amount(number: int, unit: str) -> None:
    factors = {"": 1, "k": 10**3, "M": 10**6, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    asked_bytes = number * factors[unit]
    assert (mebibytes(f"{number}{unit}") << 20) - asked_bytes in range(1 << 20)
