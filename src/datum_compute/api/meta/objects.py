"""Metadata of objects, and the description of a kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Generic, NamedTuple, TypeVar

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    MERGE_PATCH_VALUES,
    SET,
    DateTime,
    doc,
    map_by,
    merge_patch_by,
)

T = TypeVar("T", bound="ApiObject")


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to the owner of an object. The owner is in the same namespace or cluster-scoped."""

    api_version: Annotated[str, doc("API version of the owner.")]
    kind: Annotated[str, doc("Kind of the owner.")]
    name: Annotated[str, doc("Name of the owner.")]
    uid: Annotated[str, doc("UID of the owner.")]
    controller: Annotated[
        bool, doc("Whether the owner is the controller that manages the object.")
    ] = False
    block_owner_deletion: Annotated[
        bool, doc("Whether foreground deletion of the owner waits until this object is deleted.")
    ] = False


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """Metadata that every object has."""

    name: Annotated[
        str, doc("Name of the object, unique for its kind in its namespace. It cannot be changed.")
    ] = ""
    generate_name: Annotated[
        str, doc("Prefix of a name that the server completes if name is empty.")
    ] = ""
    namespace: Annotated[
        str, doc("Namespace of the object. Empty for a cluster-scoped object.")
    ] = ""
    uid: Annotated[str, doc("Unique identifier of the object, set by the server.")] = ""
    resource_version: Annotated[
        str, doc("Version of the object. It changes with every write and is set by the server.")
    ] = ""
    generation: Annotated[
        int, doc("Number of changes of the desired state, set by the server.")
    ] = 0
    creation_timestamp: Annotated[
        DateTime | None, doc("Time when the object was created, set by the server.")
    ] = None
    deletion_timestamp: Annotated[
        DateTime | None, doc("Time when deletion was requested, set by the server.")
    ] = None
    labels: Annotated[
        dict[str, str], doc("Keys and values by which selectors find the object.")
    ] = {}
    annotations: Annotated[
        dict[str, str], doc("Keys and values of tools. Selectors cannot use them.")
    ] = {}
    finalizers: Annotated[
        list[str],
        SET,
        MERGE_PATCH_VALUES,
        doc("Finalizers that must be removed before a deleted object is removed."),
    ] = []
    owner_references: Annotated[
        list[OwnerReference],
        map_by("uid"),
        merge_patch_by("uid"),
        doc("Owners of the object. It is deleted when all owners are deleted."),
    ] = []


class ApiObject(ApiStruct, frozen=True, kw_only=True):
    """Base of all kinds. Each kind adds spec and status."""

    api_version: Annotated[
        str, doc("Group and version of the schema of this object, as GROUP/VERSION.")
    ] = ""
    kind: Annotated[str, doc("Kind of this object.")] = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def version(self) -> int:
        return int(self.metadata.resource_version or 0)


class Ref(NamedTuple):
    """Name and namespace of an object on one plane. The namespace is empty for cluster-scoped
    kinds.

    It is a tuple because caches and queues use it as a key, and tuples are hashed and compared
    fastest.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A printer column: a heading and the path of its value, such as ``.a.b``.

    In addition to the types of a schema, there are ``date`` (printed as an age), ``count`` (the
    number of entries), ``reference`` (``Kind/name``) and ``object`` (``kind/name``). Commas
    separate alternative paths: the first one that has a value is used; ``count`` adds up all paths.
    """

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Paths of the fields that the scale subresource shows, such as ``.spec.replicas``."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


@dataclass(frozen=True, slots=True)
class Selectable:
    """A field selector besides name and namespace: its label and the path of its value."""

    label: str
    path: str


@dataclass(frozen=True, slots=True)
class KindInfo(Generic[T]):
    """The description of a kind: its names, its model, and how the server stores and prints it."""

    group: str
    version: str
    kind: str
    plural: str
    model: type[T]
    namespaced: bool = True
    has_status: bool = True
    built_in: bool = False
    partial: bool = False  # only a part of the fields is modeled; the server keeps the others
    short_names: tuple[str, ...] = ()
    columns: tuple[TableColumn, ...] = ()
    scale: Scale | None = None
    scaled_by: str = ""  # hint for kinds without a scale subresource: what to scale instead
    categories: tuple[str, ...] = ()
    selectable: tuple[Selectable, ...] = ()
    needs_version: bool = True  # a PUT must contain a resourceVersion
    put_creates: bool = False  # a PUT of a missing object creates it
    has_generation: bool = True
    defined: bool = False  # defined by a CustomResourceDefinition of its plane
    deprecation: str = ""  # warning for requests of this version
    unsupported_message: str = ""  # set for a kind that is only served as an empty list: why
    stored_as: str = ""  # set for a kind that is a view of another resource
    singular_name: str = ""  # defaults to the kind in lower case
    list_name: str = ""  # defaults to the kind followed by List
    # Computed once, because every request uses them.
    api_version: str = field(init=False, compare=False, repr=False)
    resource: str = field(init=False, compare=False, repr=False)  # in errors
    storage: str = field(init=False, compare=False, repr=False)  # in the store

    def __post_init__(self) -> None:
        resource = f"{self.plural}.{self.group}" if self.group else self.plural
        version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "api_version", version)
        object.__setattr__(self, "resource", resource)
        object.__setattr__(self, "storage", self.stored_as or resource)

    def __hash__(self) -> int:
        """Hash only the type. A hash of all fields would cost more than the look-up
        that uses it.
        """
        return hash((self.api_version, self.kind))

    def path(self, ref: Ref) -> str:
        """Return the path of an object inside its plane; of the collection if ``ref`` has no
        name."""
        group_path = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        namespace = f"/namespaces/{ref.namespace}" if ref.namespace else ""
        name = f"/{ref.name}" if ref.name else ""
        return f"{group_path}{namespace}/{self.plural}{name}"

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.list_name or f"{self.kind}List"


def selectable_fields(*labels: str) -> tuple[Selectable, ...]:
    """Return field selectors whose label is the path of the value, such as ``spec.phase``."""
    return tuple(Selectable(label, f".{label}") for label in labels)


def ref_of(obj: ApiObject) -> Ref:
    return Ref(obj.metadata.namespace, obj.metadata.name)


def owner_reference(owner: ApiObject, kind: KindInfo[T]) -> OwnerReference:
    """Return a controller reference that also blocks foreground deletion of the owner."""
    return OwnerReference(
        api_version=kind.api_version,
        kind=kind.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def controller_uid(obj: ApiObject) -> str:
    """Return the UID of the controlling owner, or the empty string."""
    for owner in obj.metadata.owner_references:  # a loop, because it is called very often
        if owner.controller:
            return owner.uid
    return ""
