"""ConfigMap (core): named texts and bytes that are no secret."""

from __future__ import annotations

from datum_compute.api.corefields import Base64
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class ConfigMap(ApiObject, frozen=True, kw_only=True):
    """ConfigMap (core): named texts and bytes that are no secret."""

    data: dict[str, str] = {}
    binary_data: dict[str, Base64] = {}
    immutable: bool | None = None


CONFIG_MAP = KindInfo(
    group="",
    version="v1",
    kind="ConfigMap",
    plural="configmaps",
    model=ConfigMap,
    has_status=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    short_names=("cm",),
    columns=(
        Column("Data", ".data,.binaryData", "count"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
