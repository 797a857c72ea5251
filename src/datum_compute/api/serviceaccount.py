"""ServiceAccount (core): an identity for programs; its tokens come from the ``token`` subresource
and end with it."""

from __future__ import annotations

from datum_compute.api.codec import ApiStruct
from datum_compute.api.meta import ApiObject, Column, KindInfo


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class LocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    name: str = ""


class ServiceAccount(ApiObject, frozen=True, kw_only=True):
    secrets: list[ObjectReference] = []
    image_pull_secrets: list[LocalObjectReference] = []
    automount_service_account_token: bool | None = None


KIND = KindInfo(
    group="",
    version="v1",
    kind="ServiceAccount",
    plural="serviceaccounts",
    model=ServiceAccount,
    has_status=False,
    built_in=True,
    short_names=("sa",),
    columns=(Column("Age", ".metadata.creationTimestamp", "date"),),
)
