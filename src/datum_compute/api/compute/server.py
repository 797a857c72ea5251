"""Server: the machine behind an Instance, realised by a driver. Lives on the cell only."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.compute.data_sources import PinnedSources, PullSecret, Volume
from datum_compute.api.compute.instance import (
    GRACE_S,
    Container,
    GraceSeconds,
    Images,
    NetworkInterfaceStatus,
    ResourceAmounts,
)
from datum_compute.api.compute.scale_to_zero import ScaleToZero, Wake
from datum_compute.api.meta.codec import ApiStruct, canonical_hash
from datum_compute.api.meta.fields import MAP_BY_NAME, doc
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

Phase = Literal["Pending", "Running", "Sleeping", "Stopped", "Failed", "Unknown"]


class ServerSpec(ApiStruct, frozen=True, kw_only=True):
    instance_type: Annotated[str, doc("Name of the size of the machine.")]
    template_hash: Annotated[str, doc("Identity of the template it is set up from.")]
    resources: Annotated[
        ResourceAmounts,
        doc("The most that the machine may use: what quota was claimed for; empty if unknown."),
    ] = ResourceAmounts()
    containers: Annotated[
        list[Container], MAP_BY_NAME, Meta(min_length=1), doc("What runs on the machine.")
    ]
    image_pull_secrets: Annotated[
        list[PullSecret], MAP_BY_NAME, doc("Secrets by which registries let the images be read.")
    ] = []
    termination_grace_period_seconds: GraceSeconds = GRACE_S
    volumes: Annotated[list[Volume], MAP_BY_NAME, doc("Files that the containers attach.")] = []
    interfaces: Annotated[
        list[NetworkInterfaceStatus], MAP_BY_NAME, doc("Its interfaces with their addresses.")
    ] = []
    scale_to_zero: Annotated[
        ScaleToZero | None, doc("When the machine sleeps, and how; else it never does.")
    ] = None
    tags: Annotated[
        dict[str, str], doc("Marks by which the machine is found again, such as its instance.")
    ] = {}


class ServerStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Phase,
        doc("What the machine is doing; Unknown if the driver could not observe it for 30 s."),
    ] = "Pending"
    reason: Annotated[str, doc("Why it is in this phase, one word for programs.")] = ""
    message: Annotated[str, doc("Why it is in this phase, for people.")] = ""
    restarts: Annotated[int, doc("How often it was started again.")] = 0
    exit_code: Annotated[int | None, doc("Exit code of its last end.")] = None
    started_at: Annotated[str | None, doc("Since when it runs (RFC 3339).")] = None
    addresses: Annotated[list[str], doc("Addresses of the machine.")] = []
    last_lines: Annotated[list[str], doc("The last lines of its output, if it ended badly.")] = []
    observed_generation: Annotated[int, doc("The generation that this status is about.")] = 0
    referenced_data: PinnedSources = []
    images: Images = []
    last_wake: Annotated[Wake | None, doc("The last time that it was woken, if ever.")] = None
    spec_fingerprint: Annotated[
        str, doc("Fingerprint of the spec that the machine was started from; empty if unknown.")
    ] = ""


class Server(ApiObject, frozen=True, kw_only=True):
    """Server: the machine behind an Instance, realised by a driver. Lives on the cell only."""

    spec: ServerSpec
    status: ServerStatus = ServerStatus()


# Increase this when machine_fingerprint() changes. Fingerprints of different versions are not
# compared, so an upgrade recreates no machine.
FINGERPRINT_VERSION = "1"


def machine_fingerprint(spec: ServerSpec) -> str:
    """Identify what a machine is set up from: its containers and volumes.

    Sizes and interfaces are left out, because a Server may receive them after its machine started.
    """
    content = canonical_hash([spec.containers, spec.volumes])[:32]
    return f"{FINGERPRINT_VERSION}-{content}"


def runs_other_spec(server: Server) -> bool:
    """Return whether the machine is known to have been started from other containers or volumes."""
    version, _, _ = server.status.spec_fingerprint.partition("-")
    if version != FINGERPRINT_VERSION:
        return False
    return server.status.spec_fingerprint != machine_fingerprint(server.spec)


SERVER = KindInfo(
    group="region.datumapis.com",
    version="v1alpha",
    kind="Server",
    plural="servers",
    model=Server,
    categories=("region",),
    selectable=selectable_fields("status.phase"),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Phase", ".status.phase"),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Message", ".status.message", wide=True),
    ),
)
