"""The kinds that a server serves, found by their path, each with its compiled validation.

A write through the main endpoint is validated without its status, and a status write only by its
status. So an invalid status cannot block a change of the spec, and an invalid spec no status.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from datum_compute.api.events import RENAMED
from datum_compute.api.kinds import (
    DEFINITION,
    EVENT,
    EVENTS_V1,
    NAMESPACE,
    SERVICE_ACCOUNT,
    UNSUPPORTED_KINDS,
)
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.meta.json_path import field_names
from datum_compute.api.meta.names import (
    dns_label_problem,
    dns_subdomain_problem,
    path_segment_problem,
)
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.rbac import RBAC_GROUP
from datum_compute.api.reviews import REVIEWS, TOKEN_REQUEST
from datum_compute.api.schema.derive import PRESERVE, structural_schema
from datum_compute.api.schema.fast_path import compile_fast_check
from datum_compute.api.schema.validate import Check, object_schema
from datum_compute.server.apply.field_shape import ObjectShape, object_shape
from datum_compute.store.records import Record

_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]*))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}
_OBJECT_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
_READ_VERBS = ("get", "list", "watch")
_OBJECT_METHODS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCE_METHODS = {**_OBJECT_METHODS, "POST": "create"}
_COLLECTION_METHODS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ALL_VERBS = tuple(sorted((*_OBJECT_VERBS, "deletecollection")))


# --- Conversion between the stored and the served form of objects
# Most kinds are stored as they are served, and their bytes are not decoded. There are two
# exceptions: another view of the same objects (events), and a version of a custom kind that is not
# the storage version. Objects that were stored under an earlier schema are pruned and defaulted
# when they are read.


Rewrite = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class StorageConversion:
    """``differs`` is True if the served form always differs from the stored one. Objects up to the
    version ``outdated_until`` may have been stored under another schema."""

    from_stored: Rewrite
    to_stored: Rewrite
    differs: bool
    outdated_until: int = -1

    @property
    def is_verbatim(self) -> bool:
        """True if ``encode_served`` returns the stored bytes of every record."""
        return not self.differs and self.outdated_until < 0

    def is_current(self, record: Record) -> bool:
        """Return True if the record was stored under the present schema."""
        return record.version > self.outdated_until

    def encode_served(self, record: Record) -> bytes:
        """Return the bytes of a record in the served form."""
        if self.is_current(record):
            return self.convert_current(record.body)
        return encode(self.from_stored(decode(record.body)))

    def decode_served(self, record: Record) -> JsonObject:
        """Return the object of a record in the served form."""
        obj: JsonObject = decode(record.body)
        return self.from_stored(obj) if self.differs or not self.is_current(record) else obj

    def convert_current(self, body: bytes) -> bytes:
        """Convert the bytes of an object that was stored under the present schema."""
        return encode(self.from_stored(decode(body))) if self.differs else body


IDENTITY = StorageConversion(lambda obj: obj, lambda obj: obj, differs=False)


def rename_fields(names: Mapping[str, str], served: str, stored: str) -> StorageConversion:
    """Return a conversion for a view with other field names. ``names`` maps served to stored names;
    ``served`` and ``stored`` are the values of apiVersion."""
    stored_to_served = {stored_name: served_name for served_name, stored_name in names.items()}
    return StorageConversion(
        lambda obj: {**_rename(obj, stored_to_served), "apiVersion": served},
        lambda obj: {**_rename(obj, names), "apiVersion": stored},
        differs=True,
    )


def _rename(obj: JsonObject, names: Mapping[str, str]) -> JsonObject:
    return {names.get(name, name): value for name, value in obj.items()}


VIEWS: Mapping[str, StorageConversion] = {
    EVENTS_V1.resource: rename_fields(RENAMED, EVENTS_V1.api_version, EVENT.api_version)
}


# --- Resources


@dataclass(frozen=True, slots=True)
class MethodVerbs:
    """The verb of each HTTP method, for the routes of a resource. The GET of a collection can also
    be a watch. ``all_namespaces`` are the methods on a namespaced kind outside of a namespace."""

    objects: Mapping[str, str]
    collection: Mapping[str, str]
    all_namespaces: Mapping[str, str]
    subresources: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """A kind in one version, as the server serves it. ``build_resource`` creates it.

    ``check_main`` validates an object without its status, ``check_status`` the status alone.
    """

    kind: KindInfo[Any]
    schema: JsonObject
    check_main: Check
    check_status: Check
    shape: Callable[[], ObjectShape]  # built at the first write of an object, then cached
    conversion: StorageConversion
    initial_status: JsonObject | None  # of new objects, until a controller sets their status
    is_stored: bool  # False for reviews and other kinds that only get a response
    revision: str  # of the definition of a custom kind
    verbs: tuple[str, ...]
    methods: MethodVerbs
    subresources: dict[str, tuple[str, ...]]  # the verbs of each subresource
    name_problem: Callable[[str], str]  # returns why a name is invalid, or an empty string
    is_namespace: bool
    is_definition: bool  # CustomResourceDefinition

    def subresource_kind(self, subresource: str) -> KindInfo[Any]:
        """Return the kind of the objects that a subresource takes and returns."""
        return TOKEN_REQUEST if subresource == "token" else self.kind


@dataclass(frozen=True, slots=True)
class AcceptedNames:
    """The names that a definition reserves in its group, even if it serves no version."""

    definition: str
    group: str
    resources: frozenset[str]
    kinds: frozenset[str]


class ResourceRegistry:
    """The resources of a plane. If several have the same path, the first one is served, so that a
    definition cannot replace a built-in kind."""

    def __init__(
        self, resources: Iterable[ServedResource], accepted: Iterable[AcceptedNames] = ()
    ) -> None:
        self.accepted = tuple(accepted)
        # By group, version and plural.
        self.by_path: dict[tuple[str, str, str], ServedResource] = {}
        for resource in resources:
            path = (resource.kind.group, resource.kind.version, resource.kind.plural)
            self.by_path.setdefault(path, resource)
        self._by_version: dict[str, dict[str, list[ServedResource]]] = {}
        for (group, version, _), resource in self.by_path.items():
            self._by_version.setdefault(group, {}).setdefault(version, []).append(resource)
        self._kinds_by_storage = self._index_by_storage()

    @classmethod
    def of_kinds(cls, kinds: Iterable[KindInfo[Any]]) -> ResourceRegistry:
        """Return a registry of these kinds, the reviews, and the kinds that are always empty."""
        platform_kinds = map(_build_platform_resource, (*kinds, *UNSUPPORTED_KINDS))
        return cls((*platform_kinds, *map(build_review_resource, REVIEWS)))

    def extend(
        self, resources: Iterable[ServedResource], accepted: Iterable[AcceptedNames] = ()
    ) -> ResourceRegistry:
        return ResourceRegistry((*self.by_path.values(), *resources), accepted)

    def kinds(self) -> list[KindInfo[Any]]:
        return [resource.kind for resource in self.by_path.values()]

    def namespaced_storage(self) -> list[str]:
        """Return the names under which the store keeps namespaced objects."""
        return sorted({r.kind.storage for r in self._stored_resources() if r.kind.namespaced})

    def kinds_by_storage(self) -> dict[str, KindInfo[Any]]:
        """Return a kind for each name of the store, preferably the one in which it is stored."""
        return self._kinds_by_storage

    def _index_by_storage(self) -> dict[str, KindInfo[Any]]:
        kinds: dict[str, KindInfo[Any]] = {}
        for resource in self._stored_resources():
            if not (resource.conversion.differs and resource.kind.storage in kinds):
                kinds[resource.kind.storage] = resource.kind
        return kinds

    def kind_named(self, api_version: str, kind: str) -> KindInfo[Any] | None:
        """Return the kind in this version or, if that is not served, in another one."""
        group = api_version.rpartition("/")[0]
        candidates = [
            resource.kind
            for resource in self._stored_resources()
            if (resource.kind.group, resource.kind.kind) == (group, kind)
        ]
        same_version = [k for k in candidates if k.api_version == api_version]
        return next(iter((*same_version, *candidates)), None)

    def _stored_resources(self) -> list[ServedResource]:
        return [resource for resource in self.by_path.values() if resource.is_stored]

    def groups(self) -> list[str]:
        """Return the names of the API groups, without the core group."""
        return sorted(group for group in self._by_version if group)

    def versions(self, group: str) -> list[str]:
        """Return the versions of a group, the preferred one first."""
        return sorted(self._by_version.get(group, ()), key=_version_priority, reverse=True)

    def of_version(self, group: str, version: str) -> list[ServedResource]:
        resources = self._by_version.get(group, {}).get(version, [])
        return sorted(resources, key=lambda resource: resource.kind.plural)


def _is_namespace(kind: KindInfo[Any]) -> bool:
    return kind.plural == NAMESPACE.plural and not kind.group


def _name_check(kind: KindInfo[Any]) -> Callable[[str], str]:
    """Return the function that finds out why a name of an object is invalid."""
    if _is_namespace(kind):
        return dns_label_problem
    return path_segment_problem if kind.group == RBAC_GROUP else dns_subdomain_problem


def build_resource(
    kind: KindInfo[Any],
    schema: JsonObject,
    conversion: StorageConversion = IDENTITY,
    *,
    revision: str = "",
    is_stored: bool = True,
) -> ServedResource:
    whole = object_schema(schema)
    main, initial_status = whole, None
    status: JsonObject = {}
    if kind.has_status:
        properties = {name: s for name, s in whole["properties"].items() if name != "status"}
        required = [name for name in schema.get("required", ()) if name != "status"]
        main = {**whole, "properties": properties, "required": required}
        status = whole["properties"].get("status", {"type": "object", PRESERVE: PRESERVE in schema})
        initial_status = None if kind.defined else status.get("default")
    verbs = _verbs(kind) if is_stored else ("create",)
    subresources = _subresources(kind)
    replicas_path = (field_names(kind.scale.spec_replicas_path) if kind.scale else None) or ()
    return ServedResource(
        kind=kind,
        schema=schema,
        check_main=compile_fast_check(main),
        check_status=compile_fast_check(status),
        shape=cache(
            lambda: object_shape(whole, has_status=kind.has_status, replicas_path=replicas_path)
        ),
        conversion=conversion,
        initial_status=initial_status,
        is_stored=is_stored,
        revision=revision,
        verbs=verbs,
        methods=MethodVerbs(
            objects=_select_methods(_OBJECT_METHODS, verbs),
            collection=_select_methods(_COLLECTION_METHODS, verbs),
            all_namespaces=_select_methods({"GET": "list"}, verbs),
            subresources={
                name: _select_methods(_SUBRESOURCE_METHODS, supported)
                for name, supported in subresources.items()
            },
        ),
        subresources=subresources,
        name_problem=_name_check(kind),
        is_namespace=_is_namespace(kind),
        is_definition=(kind.plural, kind.group) == (DEFINITION.plural, DEFINITION.group),
    )


def _verbs(kind: KindInfo[Any]) -> tuple[str, ...]:
    if kind.unsupported_message:
        return _READ_VERBS
    # Namespaces have no deletecollection: each one is emptied before it is removed.
    return _OBJECT_VERBS if _is_namespace(kind) else _ALL_VERBS


def _select_methods(methods: Mapping[str, str], verbs: tuple[str, ...]) -> dict[str, str]:
    return {method: verb for method, verb in methods.items() if verb in verbs}


def _subresources(kind: KindInfo[Any]) -> dict[str, tuple[str, ...]]:
    subresources: dict[str, tuple[str, ...]] = {}
    if kind.has_status:
        subresources["status"] = ("get", "patch", "update")
    if kind.scale is not None:
        subresources["scale"] = ("get", "patch", "update")
    if _is_namespace(kind):
        subresources["finalize"] = ("update",)
    if kind.resource == SERVICE_ACCOUNT.resource:
        subresources["token"] = ("create",)
    return subresources


@cache
def _build_platform_resource(kind: KindInfo[Any]) -> ServedResource:
    """Return the resource of a kind of the platform, which all servers of a process share."""
    return build_resource(kind, structural_schema(kind), VIEWS.get(kind.resource, IDENTITY))


@cache
def build_review_resource(kind: KindInfo[Any]) -> ServedResource:
    return build_resource(kind, structural_schema(kind), is_stored=False)


def _version_priority(version: str) -> tuple[int, int, int, str]:
    """Return a sort key: stable versions are above beta and alpha, then higher numbers."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    major, stage, minor = found.groups()
    return (_STAGES[stage], int(major), int(minor or 0), version)
