"""Server: the machine of an Instance, which a driver runs. It exists only on the cell."""

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
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields

Phase = Literal["Pending", "Running", "Sleeping", "Stopped", "Failed", "Unknown"]


class ServerSpec(ApiStruct, frozen=True, kw_only=True):
    instance_type: Annotated[str, doc("Name of the InstanceType of the machine.")]
    template_hash: Annotated[str, doc("Hash of the template from which the machine is set up.")]
    resources: Annotated[
        ResourceAmounts,
        doc("CPU and memory limits of the machine, for which quota was claimed. Empty if unknown."),
    ] = ResourceAmounts()
    containers: Annotated[
        list[Container], MAP_BY_NAME, Meta(min_length=1), doc("Containers of the machine.")
    ]
    image_pull_secrets: Annotated[
        list[PullSecret], MAP_BY_NAME, doc("Secrets with the credentials of image registries.")
    ] = []
    termination_grace_period_seconds: GraceSeconds = GRACE_S
    volumes: Annotated[list[Volume], MAP_BY_NAME, doc("Volumes that containers can mount.")] = []
    interfaces: Annotated[
        list[NetworkInterfaceStatus], MAP_BY_NAME, doc("Network interfaces with their addresses.")
    ] = []
    scale_to_zero: Annotated[
        ScaleToZero | None, doc("When the machine sleeps. If unset, it never sleeps.")
    ] = None
    suspended: Annotated[
        bool,
        doc("Whether the machine is stopped. It is kept, and starts again when this is false."),
    ] = False
    tags: Annotated[
        dict[str, str], doc("Tags by which the driver finds the machine, such as its instance.")
    ] = {}


class ServerStatus(ApiStruct, frozen=True, kw_only=True):
    phase: Annotated[
        Phase,
        doc("State of the machine. Unknown if the driver has not observed it for 30 s."),
    ] = "Pending"
    reason: Annotated[str, doc("One-word cause of the phase in CamelCase, for programs.")] = ""
    message: Annotated[str, doc("Cause of the phase in words, for people.")] = ""
    restarts: Annotated[int, doc("Number of restarts.")] = 0
    exit_code: Annotated[int | None, doc("Exit code of the last exit.")] = None
    started_at: Annotated[str | None, doc("Time since when the machine is running (RFC 3339).")] = (
        None
    )
    addresses: Annotated[list[str], doc("Addresses of the machine.")] = []
    last_lines: Annotated[list[str], doc("Last lines of the output, if the machine failed.")] = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0
    referenced_data: PinnedSources = []
    images: Images = []
    last_wake: Annotated[
        Wake | None, doc("Last time that the machine was woken. Unset if it never slept.")
    ] = None
    spec_fingerprint: Annotated[
        str, doc("Fingerprint of the spec from which the machine was started. Empty if unknown.")
    ] = ""
    recovering: Annotated[
        bool,
        doc(
            "Whether the ports accept connections again after an exit, while the machine is still "
            "Failed because it has not run for long enough."
        ),
    ] = False


class Server(ApiObject, frozen=True, kw_only=True):
    """A Server is the machine of an Instance. A driver of the cell runs it."""

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
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Phase", ".status.phase"),
        TableColumn("Restarts", ".status.restarts", "integer"),
        TableColumn("Message", ".status.message", wide=True),
    ),
)
