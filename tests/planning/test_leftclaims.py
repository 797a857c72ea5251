"""What a cell held that has left is free again: deleted first, then let go."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.plane import project_plane
from datum_compute.api.quotametrics import consumer_of
from datum_compute.api.resourceclaim import ResourceClaim, ResourceClaimSpec
from datum_compute.planning.federation.cells import plan_left_claims
from datum_compute.planning.plan import Delete, Patch
from testkit.builders import NOW

PROJECT = project_plane("shop")


def a_claim(name: str, *, terminating: bool = False) -> ResourceClaim:
    consumer = consumer_of("shop")
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            finalizers=[labels.CLAIM_FINALIZER],
            deletion_timestamp=NOW if terminating else None,
        ),
        spec=ResourceClaimSpec(consumer_ref=consumer, resource_ref=consumer, requests=[]),
    )


def test_claims_of_a_cell_that_has_left_are_deleted_and_then_let_go() -> None:
    claims = [a_claim("instance-web-0"), a_claim("instance-web-1", terminating=True)]
    delete, release = plan_left_claims(PROJECT, claims, "cell dfw has left").actions
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.reason) == ("uid-of-instance-web-0", "cell dfw has left")
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []
