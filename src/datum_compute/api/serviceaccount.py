"""ServiceAccount (core): a name that programs, not people, act under."""

from __future__ import annotations

from datum_compute.api.corefields import LocalObjectReference, ObjectReference
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class ServiceAccount(ApiObject, frozen=True, kw_only=True):
    """ServiceAccount (core): a name that programs, not people, act under."""

    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None


SERVICE_ACCOUNT = KindInfo(
    group="",
    version="v1",
    kind="ServiceAccount",
    plural="serviceaccounts",
    model=ServiceAccount,
    has_status=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    short_names=("sa",),
    columns=(
        Column("Secrets", ".secrets", "count"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
