"""Secret (core): named bytes that nothing but a read of the Secret itself may show."""

from __future__ import annotations

from datum_compute.api.corefields import Base64, SecretText
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Selectable

OPAQUE = "Opaque"


class Secret(ApiObject, frozen=True, kw_only=True):
    """Secret (core): named bytes that nothing but a read of the Secret itself may show."""

    data: dict[str, Base64] = {}
    string_data: dict[str, SecretText] = {}  # write-only: the server moves it into data
    type: str = OPAQUE
    immutable: bool | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


SECRET = KindInfo(
    group="",
    version="v1",
    kind="Secret",
    plural="secrets",
    model=Secret,
    has_status=False,
    built_in=True,
    needs_version=False,
    has_generation=False,
    selectable=(Selectable("type", ".type"),),
    columns=(
        Column("Type", ".type"),
        Column("Data", ".data", "count"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
