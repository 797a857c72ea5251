"""CustomResourceDefinition (apiextensions.k8s.io): a kind that is added to a plane at run time.

The schema is stored as it is sent; admission checks that it is structural. Only the server writes
the status.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from datum_compute.api.conditions import Conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED, ESTABLISHED, TERMINATING = "NamesAccepted", "Established", "Terminating"

Schema = Annotated[
    dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})
]


class Names(ApiStruct, frozen=True, kw_only=True):
    """Names of the kind."""

    plural: Annotated[str, doc("Name of the resource in paths, in lower case and plural.")]
    kind: Annotated[str, doc("Name of the kind in CamelCase and singular.")]
    singular: Annotated[
        str, doc("Singular name in lower case. Defaults to the kind in lower case.")
    ] = ""
    short_names: Annotated[list[str], doc("Short names for kubectl.")] = []
    list_kind: Annotated[
        str, doc("Name of the kind of lists. Defaults to the kind followed by List.")
    ] = ""
    categories: Annotated[
        list[str], doc("Groups of resources that kubectl lists together, such as all.")
    ] = []


class PrinterColumn(ApiStruct, frozen=True, kw_only=True):
    """A column that kubectl get shows."""

    name: Annotated[str, doc("Heading of the column.")]
    type: Annotated[str, doc("Type of the values: integer, number, string, boolean or date.")]
    json_path: Annotated[str, doc("JSON path of the value, such as .spec.replicas.")]
    description: Annotated[str, doc("Description of the column.")] = ""
    format: Annotated[
        str, doc("Format of the values. The format name marks the primary identifier.")
    ] = ""
    priority: Annotated[
        int, doc("Columns with a priority above 0 are only shown with -o wide.")
    ] = 0


class ScaleSubresource(ApiStruct, frozen=True, kw_only=True):
    """Fields that the scale subresource reads and writes."""

    spec_replicas_path: Annotated[
        str, doc("JSON path of the desired number of replicas. It must be below .spec.")
    ]
    status_replicas_path: Annotated[
        str, doc("JSON path of the observed number of replicas. It must be below .status.")
    ]
    label_selector_path: Annotated[
        str, doc("JSON path of the label selector of the replicas, as a string.")
    ] = ""


class Subresources(ApiStruct, frozen=True, kw_only=True):
    """Subresources of the kind."""

    status: Annotated[Schema | None, doc("If set, the kind has a status subresource.")] = None
    scale: Annotated[ScaleSubresource | None, doc("If set, the kind has a scale subresource.")] = (
        None
    )


class SelectableField(ApiStruct, frozen=True, kw_only=True):
    """A field that field selectors can use."""

    json_path: Annotated[str, doc("JSON path of the field, such as .spec.color.")]


class VersionSchema(ApiStruct, frozen=True, kw_only=True):
    """Schema of a version."""

    open_api_v3_schema: Annotated[
        Schema | None, doc("Structural OpenAPI v3 schema of the objects.")
    ] = field(name="openAPIV3Schema", default=None)


class Version(ApiStruct, frozen=True, kw_only=True):
    """A version of the kind."""

    name: Annotated[str, doc("Name of the version, such as v1 or v1beta1.")]
    served: Annotated[bool, doc("Whether the version is served.")]
    storage: Annotated[
        bool,
        doc(
            "Whether objects are stored in this version. Exactly one version must "
            "be the storage version."
        ),
    ]
    version_schema: Annotated[VersionSchema | None, doc("Schema of the objects.")] = field(
        name="schema", default=None
    )
    subresources: Annotated[Subresources | None, doc("Subresources of the version.")] = None
    additional_printer_columns: Annotated[
        list[PrinterColumn],
        doc("Columns that kubectl get shows. Defaults to the age of the object."),
    ] = []
    selectable_fields: Annotated[
        list[SelectableField], doc("Fields that field selectors can use.")
    ] = []
    deprecated: Annotated[bool, doc("Whether requests of this version get a warning.")] = False
    deprecation_warning: Annotated[
        str | None, doc("Text of that warning. A default text is used if it is unset.")
    ] = None


class Conversion(ApiStruct, frozen=True, kw_only=True):
    """How objects are converted between versions."""

    strategy: Annotated[
        str, doc("Only None is supported. It changes the apiVersion of an object and nothing else.")
    ] = "None"
    webhook: Annotated[Schema | None, doc("Not supported.")] = None


class DefinitionSpec(ApiStruct, frozen=True, kw_only=True):
    group: Annotated[str, doc("API group of the kind.")]
    names: Annotated[Names, doc("Names of the kind.")]
    scope: Annotated[Literal["Namespaced", "Cluster"], doc("Namespaced or Cluster.")]
    versions: Annotated[list[Version], Meta(min_length=1), doc("Versions of the kind.")]
    conversion: Annotated[Conversion, doc("How objects are converted between versions.")] = (
        Conversion(strategy="None")
    )
    preserve_unknown_fields: Annotated[
        bool, doc("Must be false. Use x-kubernetes-preserve-unknown-fields in the schema instead.")
    ] = False


class DefinitionStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    accepted_names: Annotated[Names | None, doc("Names that are served.")] = None
    stored_versions: Annotated[list[str], doc("Versions in which objects may be stored.")] = []


class CustomResourceDefinition(ApiObject, frozen=True, kw_only=True):
    """A CustomResourceDefinition adds a kind to the plane."""

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
    columns=(TableColumn("Created At", ".metadata.creationTimestamp"),),
)
