"""WorkloadRevision: one release of a Workload, as it was asked for; what an undo goes back to.

A record, so its spec never changes and it has no status: an undo appends a new revision that names
the one it restores. It pins what a template alone does not say (image digests, versions of the data
it refers to), each left empty until somebody has resolved it. Named ``<workload>-<revision>``.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.compute.data_sources import PinnedData
from datum_compute.api.compute.deployment import WorkloadRef
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import Placement
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import MAP_BY_NAME, ShortText, Text, doc, immutable, keyed
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, selectable_fields

Revision = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class PinnedImage(ApiStruct, frozen=True, kw_only=True):
    """What an image name stood for at the time."""

    container: Annotated[ShortText, doc("Name of the container.")]
    digest: Annotated[ShortText, doc("Digest of its image.")]


class WorkloadRevisionSpec(ApiStruct, frozen=True, kw_only=True):
    workload_ref: WorkloadRef
    revision: Annotated[Revision, doc("Number of the release, counted for each workload.")]
    template_hash: Annotated[ShortText, doc("Identity of the template.")]
    template: InstanceTemplate
    placements: Annotated[
        list[Placement], MAP_BY_NAME, Meta(min_length=1), doc("Where it was to run.")
    ]
    changes: Annotated[
        list[Text], Meta(max_length=100), doc("What is new in this release, for people.")
    ] = []
    actor: Annotated[ShortText, doc("Who asked for it.")] = ""
    restores: Annotated[
        Revision | None, doc("The revision whose template was gone back to, if it is an undo.")
    ] = None
    images: Annotated[
        list[PinnedImage], keyed("container"), doc("Digests of the images, where known.")
    ] = []
    referenced_data: Annotated[
        list[PinnedData], keyed("kind", "name"), doc("Versions of the data, where known.")
    ] = []


class WorkloadRevision(ApiObject, frozen=True, kw_only=True):
    """WorkloadRevision: one release of a Workload, as it was asked for; what an undo goes back
    to.
    """

    spec: Annotated[
        WorkloadRevisionSpec,
        doc("What was asked for."),
        immutable("a release is a record; change the workload to make another"),
    ]


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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Workload", ".spec.workloadRef.name"),
        Column("Revision", ".spec.revision", "integer"),
        Column("Image", ".spec.template.spec.runtime.sandbox.containers[0].image"),
        Column("Restores", ".spec.restores", "integer"),
        Column("Actor", ".spec.actor", wide=True),
    ),
)
