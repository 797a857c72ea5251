"""OrderedSet: a number of Members with one image, created in order. Member: one of them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn

GROUP = "examples.datumapis.com"
FINALIZER = f"{GROUP}/ordered-set"


class OrderedSetSpec(ApiStruct, frozen=True, kw_only=True):
    replicas: Annotated[int, Meta(ge=0, le=100), doc("How many members there shall be.")] = 1
    image: Annotated[str, Meta(min_length=1), doc("What each of them runs.")]


class OrderedSetStatus(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    replicas: Annotated[int, doc("Members there are.")] = 0
    ready_replicas: Annotated[int, doc("Members that are ready.")] = 0
    updated_replicas: Annotated[int, doc("Members that run the image asked for.")] = 0
    observed_generation: Annotated[int, doc("The generation this status is about.")] = 0


class OrderedSet(ApiObject, frozen=True, kw_only=True):
    spec: OrderedSetSpec
    status: OrderedSetStatus = OrderedSetStatus()


class MemberSpec(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    ordinal: Annotated[int, doc("Its place in the set.")]
    image: Annotated[str, doc("What it runs.")]


class MemberStatus(ApiStruct, frozen=True, kw_only=True):
    ready: Annotated[bool, doc("Whether it has started.")] = False


class Member(ApiObject, frozen=True, kw_only=True):
    spec: MemberSpec
    status: MemberStatus = MemberStatus()


ORDERED_SET = KindInfo(
    group=GROUP,
    version="v1",
    kind="OrderedSet",
    plural="orderedsets",
    model=OrderedSet,
    columns=(
        TableColumn("Wanted", ".spec.replicas", "integer"),
        TableColumn("Ready", ".status.readyReplicas", "integer"),
        TableColumn("Updated", ".status.updatedReplicas", "integer"),
    ),
)
MEMBER = KindInfo(
    group=GROUP,
    version="v1",
    kind="Member",
    plural="members",
    model=Member,
    columns=(TableColumn("Image", ".spec.image"), TableColumn("Ready", ".status.ready", "boolean")),
)
