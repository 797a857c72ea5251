"""The resources of each plane: the kinds of the platform, and those that its definitions add.

``PlaneRegistries`` rebuilds the registry of a plane after its definitions have changed. A custom
kind is therefore served from the commit that establishes it to the commit that removes it, also
after a restart, and on no other plane.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from datum_compute.api.errors import Invalid, RequestEntityTooLarge
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import ApiObject, KindInfo, Scale, Selectable, TableColumn
from datum_compute.api.planes import PlaneName
from datum_compute.api.schema.report import CheckBudget
from datum_compute.api.schema.validate import (
    ValidationReport,
    compile_check,
    object_schema,
    structure_of,
)
from datum_compute.server.discovery.openapi import OpenApi
from datum_compute.server.discovery.resources import (
    AcceptedNames,
    ResourceRegistry,
    Rewrite,
    ServedResource,
    StorageConversion,
    build_resource,
)
from datum_compute.server.verbs.definitions import is_established
from datum_compute.store.records import Record
from datum_compute.store.store import Store

# --- The resources that a CustomResourceDefinition adds to a plane, one for each served version


_WIDE_PRIORITY_MIN = 1  # columns with this priority are shown by -o wide


def custom_resources(definition: JsonObject, outdated_until: int) -> list[ServedResource]:
    """Return the resources of a definition. Objects up to the version ``outdated_until`` may have
    been stored under an earlier definition."""
    if not is_established(definition):
        return []
    versions = definition["spec"]["versions"]
    storage_version = next(version["name"] for version in versions if version["storage"])
    # While a definition is terminating, its objects must be reachable to be deleted.
    is_terminating = "deletionTimestamp" in definition["metadata"]
    return [
        _build_custom_resource(definition, version, storage_version, outdated_until)
        for version in versions
        if version["served"] or (is_terminating and version["name"] == storage_version)
    ]


def accepted_names(definition: JsonObject) -> AcceptedNames | None:
    """Return the accepted names of a definition; None if they are not accepted."""
    names = definition.get("status", {}).get("acceptedNames") or {}
    if not names.get("kind"):
        return None
    return AcceptedNames(
        definition["metadata"]["name"],
        definition["spec"]["group"],
        frozenset({names["plural"], names["singular"], *names.get("shortNames", ())}),
        frozenset({names["kind"], names["listKind"]}),
    )


def _build_custom_resource(
    definition: JsonObject, version: JsonObject, storage_version: str, outdated_until: int
) -> ServedResource:
    kind = _build_kind(definition, version)
    schema = version["schema"]["openAPIV3Schema"]
    group = definition["spec"]["group"]
    conversion = StorageConversion(
        _build_upgrade(schema, kind.api_version),
        lambda obj: {**obj, "apiVersion": f"{group}/{storage_version}"},
        differs=version["name"] != storage_version,
        outdated_until=outdated_until,
    )
    metadata = definition["metadata"]
    revision = f"{metadata['uid']}/{metadata['resourceVersion']}"
    return build_resource(kind, schema, conversion, revision=revision)


def _build_upgrade(schema: JsonObject, api_version: str) -> Rewrite:
    """Return a function that prunes and defaults an object as if it were written now. Invalid
    fields stay: the next write reports them.

    If defaults would make an object too large, it is only pruned: it must stay readable, so that
    its owner can change or delete it.
    """
    prune_and_default = cache(lambda: compile_check(structure_of(object_schema(schema))))
    prune = cache(lambda: compile_check(structure_of(object_schema(schema), defaults=False)))

    def upgrade(obj: JsonObject) -> JsonObject:
        current = {**obj, "apiVersion": api_version}
        upgraded: JsonObject
        try:
            upgraded = prune_and_default()(current, "", ValidationReport())
        except (Invalid, RequestEntityTooLarge):
            unlimited = CheckBudget(steps_left=sys.maxsize)
            upgraded = prune()(current, "", ValidationReport(budget=unlimited))
        return upgraded

    return upgrade


def _build_kind(definition: JsonObject, version: JsonObject) -> KindInfo[Any]:
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    subresources = version.get("subresources") or {}
    return KindInfo(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        model=ApiObject,
        namespaced=spec["scope"] == "Namespaced",
        has_status=subresources.get("status") is not None,
        short_names=tuple(names.get("shortNames", ())),
        columns=tuple(map(_build_column, version.get("additionalPrinterColumns", ()))),
        scale=_build_scale(subresources.get("scale")),
        categories=tuple(names.get("categories", ())),
        selectable=tuple(map(_build_selectable, version.get("selectableFields", ()))),
        singular_name=names["singular"],
        list_name=names["listKind"],
        defined=True,
        deprecation=_deprecation_warning(definition, version),
    )


def _deprecation_warning(definition: JsonObject, version: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    warning: str = version.get("deprecationWarning") or ""
    return warning or f"{group}/{version['name']} {kind} is deprecated"


def _build_column(column: JsonObject) -> TableColumn:
    return TableColumn(
        name=column["name"],
        path=column["jsonPath"],
        type=column["type"],
        wide=column.get("priority", 0) >= _WIDE_PRIORITY_MIN,
        description=column.get("description", ""),
    )


def _build_scale(scale: JsonObject | None) -> Scale | None:
    if scale is None:
        return None
    return Scale(
        spec_replicas_path=scale["specReplicasPath"],
        status_replicas_path=scale["statusReplicasPath"],
        label_selector_path=scale.get("labelSelectorPath", ""),
    )


def _build_selectable(field: JsonObject) -> Selectable:
    path: str = field["jsonPath"]
    return Selectable(path.removeprefix("."), path)


# --- The registry of each plane


@dataclass(frozen=True, slots=True)
class PlaneResources:
    """The resources of a plane, and their OpenAPI documents."""

    registry: ResourceRegistry
    openapi: OpenApi


@dataclass(frozen=True, slots=True)
class _DefinitionResources:
    """The resources of one definition at a version."""

    version: int
    resources: list[ServedResource]
    names: AcceptedNames | None


@dataclass(frozen=True, slots=True)
class _BuiltResources:
    """The resources of a plane, and the parts that do not change with another definition."""

    resources: PlaneResources
    by_definition: dict[str, _DefinitionResources]


class PlaneRegistries:
    def __init__(self, store: Store, kinds: Iterable[KindInfo[Any]]) -> None:
        self._store = store
        registry = ResourceRegistry.of_kinds(kinds)
        self.platform = PlaneResources(registry, OpenApi(registry))
        self._current: dict[PlaneName, PlaneResources] = {}
        self._last_built: dict[PlaneName, _BuiltResources] = {}
        self._callbacks: dict[PlaneName, Callable[[], None]] = {}

    def get(self, plane: PlaneName) -> PlaneResources:
        """Return what the plane serves now. A plane that does not exist has the kinds that all
        planes have."""
        current = self._current.get(plane)
        if current is not None:
            return current
        if not self._store.has_plane(plane):
            return self.platform
        # The store ignores a callback that it already has.
        callback = self._callbacks.setdefault(plane, partial(self._on_change, plane))
        self._store.subscribe(plane, DEFINITION.storage, callback)
        built = self._last_built[plane] = self._build(plane, self._last_built.get(plane))
        self._current[plane] = built.resources
        return built.resources

    def _on_change(self, plane: PlaneName) -> None:
        """Rebuild the registry at the next request: definitions have changed, or the plane has been
        deleted."""
        self._current.pop(plane, None)
        if not self._store.has_plane(plane):
            self._last_built.pop(plane, None)
            self._callbacks.pop(plane, None)

    def _build(self, plane: PlaneName, last: _BuiltResources | None) -> _BuiltResources:
        by_definition: dict[str, _DefinitionResources] = {}
        for record in self._store.snapshot(plane, DEFINITION.storage).records:
            known = last.by_definition.get(record.key.name) if last else None
            if known is None or known.version != record.version:
                known = self._read_definition(plane, record, is_first=last is None)
            by_definition[record.key.name] = known
        resources = [one for known in by_definition.values() for one in known.resources]
        names = [known.names for known in by_definition.values() if known.names is not None]
        if not names:
            return _BuiltResources(self.platform, by_definition)
        registry = self.platform.registry.extend(resources, names)
        last_openapi = last.resources.openapi if last else None
        openapi = OpenApi(registry, self.platform.openapi, last_openapi)
        return _BuiltResources(PlaneResources(registry, openapi), by_definition)

    def _read_definition(
        self, plane: PlaneName, record: Record, *, is_first: bool
    ) -> _DefinitionResources:
        # Writes that were validated under an earlier definition may not be durable yet. When the
        # registry of a plane is built for the first time, there are none.
        outdated_until = record.version if is_first else self._store.last_assigned_version(plane)
        definition = decode(record.body)
        resources = custom_resources(definition, outdated_until)
        return _DefinitionResources(record.version, resources, accepted_names(definition))
