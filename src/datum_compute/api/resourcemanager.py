"""Projects and the organizations that own them, stored on the platform plane.

The organization of a project cannot be changed. When the Project is Ready, its plane is served at
``/apis/resourcemanager.miloapis.com/v1alpha1/projects/<name>/control-plane``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import ShortText, doc, immutable
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn, selectable_fields


class ProjectOwner(ApiStruct, frozen=True, kw_only=True):
    """Owner of the project."""

    kind: Annotated[Literal["Organization"], doc("Kind of the owner.")]
    name: Annotated[ShortText, Meta(min_length=1), doc("Name of the owner.")]


class ProjectSpec(ApiStruct, frozen=True, kw_only=True):
    owner_ref: Annotated[
        ProjectOwner, immutable("create a project in the other organization instead")
    ]


class ProjectStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class Project(ApiObject, frozen=True, kw_only=True):
    """A Project has a plane of its own for the workloads of an Organization. It is stored on the
    platform plane.
    """

    spec: ProjectSpec
    status: ProjectStatus = ProjectStatus()


PROJECT = KindInfo(
    group="resourcemanager.miloapis.com",
    version="v1alpha1",
    kind="Project",
    plural="projects",
    model=Project,
    namespaced=False,
    short_names=("proj",),
    categories=("resourcemanager",),
    selectable=selectable_fields("spec.ownerRef.name"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Owner", ".spec.ownerRef.name"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    ),
)


# --- Organization
# Its objects are in the namespace ``organization-<name>``. The public documents define no field of
# the spec, so it contains only a display name.


class OrganizationSpec(ApiStruct, frozen=True, kw_only=True):
    display_name: Annotated[ShortText, doc("Name for people.")] = ""


class OrganizationStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    observed_generation: Annotated[int, doc("Generation that this status describes.")] = 0


class Organization(ApiObject, frozen=True, kw_only=True):
    """An Organization owns projects. It is stored on the platform plane."""

    spec: OrganizationSpec = OrganizationSpec()
    status: OrganizationStatus = OrganizationStatus()


ORGANIZATION = KindInfo(
    group="resourcemanager.miloapis.com",
    version="v1alpha1",
    kind="Organization",
    plural="organizations",
    model=Organization,
    namespaced=False,
    short_names=("org",),
    categories=("resourcemanager",),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Display Name", ".spec.displayName"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ),
)
