"""Server: the machine behind an Instance, realised by a driver. Lives on the cell only."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.codec import ApiStruct
from datum_compute.api.instance import MAP_BY_NAME, Container
from datum_compute.api.meta import ApiObject, Column, KindInfo

Phase = Literal["Pending", "Running", "Sleeping", "Stopped", "Failed"]


class ServerSpec(ApiStruct, frozen=True, kw_only=True):
    instance_type: str
    template_hash: str
    containers: Annotated[list[Container], MAP_BY_NAME, Meta(min_length=1)]
    tags: dict[str, str] = {}


class ServerStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Phase = "Pending"
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None
    started_at: str | None = None
    addresses: list[str] = []
    observed_generation: int = 0


class Server(ApiObject, frozen=True, kw_only=True):
    spec: ServerSpec
    status: ServerStatus = ServerStatus()


KIND = KindInfo(
    group="region.datumapis.com",
    version="v1alpha",
    kind="Server",
    plural="servers",
    model=Server,
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Phase", ".status.phase"),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Message", ".status.message", wide=True),
    ),
)
