"""CustomResourceDefinition (apiextensions.k8s.io): a kind that a plane learns while it runs.

The schema is kept as it comes; admission checks that it is structural. The whole status is the
server's: nobody else can write it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"

Schema = Annotated[
    dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})
]


class Names(ApiStruct, frozen=True, kw_only=True):
    plural: str
    kind: str
    singular: str = ""
    short_names: list[str] = []
    list_kind: str = ""
    categories: list[str] = []


class PrinterColumn(ApiStruct, frozen=True, kw_only=True):
    name: str
    type: str
    json_path: str
    description: str = ""
    format: str = ""
    priority: int = 0


class ScaleSubresource(ApiStruct, frozen=True, kw_only=True):
    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class Subresources(ApiStruct, frozen=True, kw_only=True):
    status: Schema | None = None
    scale: ScaleSubresource | None = None


class SelectableField(ApiStruct, frozen=True, kw_only=True):
    json_path: str


class VersionSchema(ApiStruct, frozen=True, kw_only=True):
    open_api_v3_schema: Schema | None = field(name="openAPIV3Schema", default=None)


class Version(ApiStruct, frozen=True, kw_only=True):
    name: str
    served: bool
    storage: bool
    version_schema: VersionSchema | None = field(name="schema", default=None)
    subresources: Subresources | None = None
    additional_printer_columns: list[PrinterColumn] = []
    selectable_fields: list[SelectableField] = []
    deprecated: bool = False
    deprecation_warning: str | None = None


class Conversion(ApiStruct, frozen=True, kw_only=True):
    strategy: str = "None"
    webhook: Schema | None = None


class DefinitionSpec(ApiStruct, frozen=True, kw_only=True):
    group: str
    names: Names
    scope: Literal["Namespaced", "Cluster"]
    versions: Annotated[list[Version], Meta(min_length=1)]
    conversion: Conversion = Conversion(strategy="None")
    preserve_unknown_fields: bool = False


class DefinitionStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    accepted_names: Names | None = None
    stored_versions: list[str] = []


class CustomResourceDefinition(ApiObject, frozen=True, kw_only=True):
    """CustomResourceDefinition (apiextensions.k8s.io): a kind that a plane learns while it runs."""

    spec: DefinitionSpec
    status: DefinitionStatus = DefinitionStatus()


DEFINITION = KindInfo(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    model=CustomResourceDefinition,
    namespaced=False,
    built_in=True,
    short_names=("crd", "crds"),
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
)
