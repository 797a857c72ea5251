"""The claim of a slot: where it lies, when it is made, replaced and given back, what it tells."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, ConditionStatus, Verdict, decided
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import cell_plane, project_plane
from datum_compute.api.resourceclaim import ResourceClaim, ResourceClaimStatus
from datum_compute.planning.actions import Create, Delete, Wait
from datum_compute.planning.claims import (
    ClaimHome,
    claim_home,
    claim_ref,
    instance_of,
    new_claim,
    pending_requeue_s,
    plan_claim,
    plan_release,
    quota_verdict,
)
from datum_compute.planning.sizing import Size
from testkit.builders import NOW, a_deployment, an_instance

CELL = cell_plane("dfw")
HOME = ClaimHome(project_plane("shop"), "default", "shop", "dfw")
SMALL, LARGE = Size(1000, 2048), Size(2000, 4096)


def a_claim(
    status: ConditionStatus = TRUE, reason: str = "QuotaAvailable", size: Size | None = SMALL
) -> ResourceClaim:
    claim = new_claim(HOME, an_instance(0), size)
    condition = decided("Granted", Verdict(status, reason, "words"), generation=1, now=NOW)
    metadata = msgspec.structs.replace(claim.metadata, uid="claim-uid")
    return msgspec.structs.replace(
        claim, metadata=metadata, status=ResourceClaimStatus(conditions=[condition])
    )


def a_namespace(**identity: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name="ns-1", labels=identity))


def test_a_claim_lies_in_the_project_that_the_namespace_is_of() -> None:
    identity = {
        labels.UPSTREAM_CLUSTER: "cluster-shop",
        labels.UPSTREAM_NAMESPACE: "default",
    }
    assert claim_home(CELL, Namespace(metadata=ObjectMeta(name="ns-1", labels=identity))) == HOME


def test_on_a_single_plane_it_lies_beside_its_instance() -> None:
    home = ClaimHome(project_plane("shop"), "ns-1", "shop", "dfw")
    assert claim_home(CELL, a_namespace(), "shop") == home


def test_without_an_identity_nobody_is_charged_by_accident() -> None:
    assert claim_home(CELL, a_namespace()) is None
    verdict = quota_verdict(None, an_instance(0), None, SMALL)
    assert (verdict.status, verdict.reason) == (FALSE, "QuotaProjectIDUnresolvable")


def test_a_claim_leads_back_to_its_instance() -> None:
    claim = a_claim()
    assert claim.metadata.name == "instance-web-dfw-0"
    assert claim_ref(HOME, "web-dfw-0") == Ref("default", claim.metadata.name)
    assert instance_of(claim) == (CELL, Ref("default", "web-dfw-0"))


@pytest.mark.parametrize("label", [labels.SOURCE_CLUSTER, labels.INSTANCE_NAMESPACE])
def test_a_claim_of_somebody_else_leads_nowhere(label: str) -> None:
    claim = a_claim()
    kept = {name: value for name, value in claim.metadata.labels.items() if name != label}
    metadata = msgspec.structs.replace(claim.metadata, labels=kept)
    assert instance_of(msgspec.structs.replace(claim, metadata=metadata)) is None
    odd = {**claim.metadata.labels, labels.SOURCE_CLUSTER: "No Cell!"}
    metadata = msgspec.structs.replace(claim.metadata, labels=odd)
    assert instance_of(msgspec.structs.replace(claim, metadata=metadata)) is None


def test_a_claim_is_made_once_and_replaced_with_another_size() -> None:
    (create,) = plan_claim(HOME, an_instance(0), None, SMALL).actions
    assert isinstance(create, Create)
    assert plan_claim(HOME, an_instance(0), a_claim(), SMALL).actions == ()
    (delete,) = plan_claim(HOME, an_instance(0), a_claim(), LARGE).actions
    assert isinstance(delete, Delete)
    assert delete.uid == "claim-uid"
    pending = quota_verdict(HOME, an_instance(0), a_claim(), LARGE)
    assert pending.status == UNKNOWN


def test_two_cells_do_not_share_a_claim() -> None:
    other = ClaimHome(HOME.plane, "default", "shop", "ord")
    (wait,) = plan_claim(other, an_instance(0), a_claim(), SMALL).actions
    assert isinstance(wait, Wait)
    verdict = quota_verdict(other, an_instance(0), a_claim(), SMALL)
    assert (verdict.status, verdict.reason) == (FALSE, "QuotaMisconfigured")
    assert "held by dfw" in verdict.message


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
def test_the_instance_says_what_the_claim_says(
    claim: ResourceClaim | None, status: str, reason: str
) -> None:
    verdict = quota_verdict(HOME, an_instance(0), claim, SMALL)
    assert (verdict.status, verdict.reason) == (status, reason)


def test_a_claim_stays_while_its_slot_is_wanted_or_filled() -> None:
    wants, leaves = a_deployment(), a_deployment(terminating=True)
    in_use = plan_release(HOME.plane, a_claim(), an_instance(0), None)
    assert in_use.actions == ()
    assert in_use.requeue_after_s is not None  # the event of its instance's end may not arrive
    (wait,) = plan_release(HOME.plane, a_claim(), None, wants).actions
    assert isinstance(wait, Wait)
    for deployment in (leaves, None):
        (delete,) = plan_release(HOME.plane, a_claim(), None, deployment).actions
        assert isinstance(delete, Delete)


@given(st.floats(0, 10**6), st.text(max_size=36))
def test_who_waits_is_looked_at_in_ever_longer_steps(waited_s: float, uid: str) -> None:
    tiers = [(60, 1), (300, 15), (600, 60), (10**7, 300)]
    expected = next(delay for until, delay in tiers if waited_s < until)
    assert expected <= pending_requeue_s(waited_s, uid) <= expected * 1.2


def test_those_who_began_together_come_back_one_by_one() -> None:
    delays = {pending_requeue_s(0, f"uid-{number}") for number in range(20)}
    assert len(delays) == 20
