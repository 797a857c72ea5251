"""WorkloadRevision: a template of a Workload to which a rollback can return.

A rollback creates a new revision that contains the number of the restored one. A recorded template
never changes, and there is no status. Only the digests of the images are added later, when the
first instances report them. The name is ``<workload>-<revision>``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.compute.data_sources import PinnedData
from datum_compute.api.compute.deployment import WorkloadRef
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import CityRestart, Placement
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import MAP_BY_NAME, ShortText, Text, doc, immutable, map_by
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields

_INSTEAD = "a revision is a record; change the workload to make another"

Revision = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class PinnedImage(ApiStruct, frozen=True, kw_only=True):
    """Digest of the image of a container."""

    container: Annotated[ShortText, doc("Name of the container.")]
    digest: Annotated[ShortText, doc("Digest of the image.")]


class WorkloadRevisionSpec(ApiStruct, frozen=True, kw_only=True):
    workload_ref: Annotated[WorkloadRef, immutable(_INSTEAD)]
    revision: Annotated[
        Revision, doc("Number of the revision, counted for each workload."), immutable(_INSTEAD)
    ]
    template_hash: Annotated[ShortText, doc("Hash of the template."), immutable(_INSTEAD)]
    template: Annotated[InstanceTemplate, immutable(_INSTEAD)]
    placements: Annotated[
        list[Placement],
        MAP_BY_NAME,
        Meta(min_length=1),
        doc("Placements of the workload."),
        immutable(_INSTEAD),
    ]
    restarts: Annotated[
        list[CityRestart],
        map_by("cityCode"),
        Meta(max_length=100),
        doc("Last restart of each city that was restarted separately."),
    ] = []
    changes: Annotated[
        list[Text], Meta(max_length=100), doc("Changes since the previous revision, for people.")
    ] = []
    actor: Annotated[ShortText, doc("User who made the change.")] = ""
    restores: Annotated[
        Revision | None,
        doc("Revision whose template was restored, if this change was a rollback."),
    ] = None
    cause: Annotated[
        Literal["Change", "AutomaticRollback"],
        doc("AutomaticRollback if the platform restored the template after a failed rollout."),
    ] = "Change"
    images: Annotated[
        list[PinnedImage],
        map_by("container"),
        doc("Digests of the images that the containers run, once known."),
    ] = []
    referenced_data: Annotated[
        list[PinnedData],
        map_by("kind", "name"),
        doc("Versions of the ConfigMaps and Secrets, where known."),
    ] = []


class WorkloadRevision(ApiObject, frozen=True, kw_only=True):
    """A WorkloadRevision records one template of a Workload, to which a rollback can return."""

    spec: Annotated[WorkloadRevisionSpec, doc("Recorded template and placements.")]


REVISION = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="WorkloadRevision",
    plural="workloadrevisions",
    model=WorkloadRevision,
    has_status=False,
    short_names=("wlrev",),
    categories=("compute",),
    selectable=selectable_fields("spec.workloadRef.name", "spec.templateHash"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Workload", ".spec.workloadRef.name"),
        TableColumn("Revision", ".spec.revision", "integer"),
        TableColumn("Image", ".spec.template.spec.runtime.sandbox.containers[0].image"),
        TableColumn("Restores", ".spec.restores", "integer"),
        TableColumn("Cause", ".spec.cause", wide=True),
        TableColumn("Actor", ".spec.actor", wide=True),
    ),
)
