"""Lease (coordination.k8s.io): who leads, and until when that holds unless it is renewed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.corefields import MicroTime
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: Annotated[int, Meta(ge=1)] | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: Annotated[int, Meta(ge=0)] | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(ApiObject, frozen=True, kw_only=True):
    """Lease (coordination.k8s.io): who leads, and until when that holds unless it is renewed."""

    spec: LeaseSpec = LeaseSpec()


LEASE = KindInfo(
    group="coordination.k8s.io",
    version="v1",
    kind="Lease",
    plural="leases",
    model=Lease,
    has_status=False,
    built_in=True,
    put_creates=True,
    has_generation=False,
    columns=(
        Column("Holder", ".spec.holderIdentity"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
