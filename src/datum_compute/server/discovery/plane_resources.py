"""What each plane serves: the kinds of the platform, and those its own definitions add.

Nothing is announced to this file. It asks the store, at every request, whether the definitions of
the plane have changed since it last looked, and then builds anew what depends on those that did.
So a kind is served from the commit that establishes it to the commit that removes it, also after
a restart, and never on another plane.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from datum_compute.api.errors import Invalid, NotFound, RequestEntityTooLarge
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo, Scale, Selectable
from datum_compute.api.planes import PlaneName
from datum_compute.api.schema.report import CheckBudget
from datum_compute.api.schema.validate import Report, compile_check, object_schema, structure_of
from datum_compute.server.discovery.conversion import Conversion, Rewrite
from datum_compute.server.discovery.openapi import OpenApi
from datum_compute.server.discovery.resources import (
    AcceptedNames,
    ResourceRegistry,
    ServedResource,
    served_kind,
)
from datum_compute.server.verbs.definitions import is_established
from datum_compute.store.records import Record
from datum_compute.store.store import Store

# --- The kinds that a CustomResourceDefinition adds to a plane, one for each version it serves


_WIDE_FROM = 1  # columns of this priority are for -o wide


def custom_kinds(definition: JsonObject, since: int) -> list[ServedResource]:
    """``since``: objects up to that version may have been stored under an earlier definition."""
    if not is_established(definition):
        return []
    versions = definition["spec"]["versions"]
    stored_in = next(version["name"] for version in versions if version["storage"])
    # While it terminates, its objects must be reachable to be deleted.
    ends = "deletionTimestamp" in definition["metadata"]
    return [
        _served(definition, version, stored_in, since)
        for version in versions
        if version["served"] or (ends and version["name"] == stored_in)
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


def _served(
    definition: JsonObject, version: JsonObject, stored_in: str, since: int
) -> ServedResource:
    kind = _kind(definition, version)
    schema = version["schema"]["openAPIV3Schema"]
    group = definition["spec"]["group"]
    conversion = Conversion(
        _brought_up_to_date(schema, kind.api_version),
        lambda obj: {**obj, "apiVersion": f"{group}/{stored_in}"},
        differs=version["name"] != stored_in,
        since=since,
    )
    metadata = definition["metadata"]
    revision = f"{metadata['uid']}/{metadata['resourceVersion']}"
    return served_kind(kind, schema, conversion, revision)


def _brought_up_to_date(schema: JsonObject, api_version: str) -> Rewrite:
    """Prune and default objects as if they were written now. Errors are left to the next write.

    If defaults would make an object too large, it is only pruned: it must stay readable, so that
    its owner can change or delete it.
    """
    structure = cache(lambda: compile_check(structure_of(object_schema(schema))))
    pruning = cache(lambda: compile_check(structure_of(object_schema(schema), defaults=False)))

    def rewrite(obj: JsonObject) -> JsonObject:
        served = {**obj, "apiVersion": api_version}
        result: JsonObject
        try:
            result = structure()(served, "", Report())
        except (Invalid, RequestEntityTooLarge):
            unlimited = CheckBudget(steps_left=sys.maxsize)
            result = pruning()(served, "", Report(budget=unlimited))
        return result

    return rewrite


def _kind(definition: JsonObject, version: JsonObject) -> KindInfo[Any]:
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
        columns=tuple(map(_column, version.get("additionalPrinterColumns", ()))),
        scale=_scale(subresources.get("scale")),
        categories=tuple(names.get("categories", ())),
        selectable=tuple(map(_selectable, version.get("selectableFields", ()))),
        singular_name=names["singular"],
        list_name=names["listKind"],
        defined=True,
        deprecation=_deprecation(definition, version),
    )


def _deprecation(definition: JsonObject, version: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    told: str = version.get("deprecationWarning") or ""
    return told or f"{group}/{version['name']} {kind} is deprecated"


def _column(column: JsonObject) -> Column:
    return Column(
        name=column["name"],
        path=column["jsonPath"],
        type=column["type"],
        wide=column.get("priority", 0) >= _WIDE_FROM,
        description=column.get("description", ""),
    )


def _scale(scale: JsonObject | None) -> Scale | None:
    if scale is None:
        return None
    return Scale(
        spec_replicas_path=scale["specReplicasPath"],
        status_replicas_path=scale["statusReplicasPath"],
        label_selector_path=scale.get("labelSelectorPath", ""),
    )


def _selectable(field: JsonObject) -> Selectable:
    path: str = field["jsonPath"]
    return Selectable(path.removeprefix("."), path)


# --- catalogues


@dataclass(frozen=True, slots=True)
class PlaneResources:
    """What a plane serves, and the documents about it."""

    catalogue: ResourceRegistry
    openapi: OpenApi


@dataclass(frozen=True, slots=True)
class _Defined:
    """The kinds of one definition, as it was at a version."""

    version: int
    kinds: list[ServedResource]
    names: AcceptedNames | None


@dataclass(frozen=True, slots=True)
class _Built:
    """What was built when the definitions had last changed at a version."""

    version: int
    api: PlaneResources
    defined: dict[str, _Defined]


class PlaneRegistries:
    def __init__(self, store: Store, kinds: Iterable[KindInfo[Any]]) -> None:
        self._store = store
        catalogue = ResourceRegistry.of_kinds(kinds)
        self.platform = PlaneResources(catalogue, OpenApi(catalogue))
        self._built: dict[PlaneName, _Built] = {}

    def of(self, plane: PlaneName) -> PlaneResources:
        """What the plane serves now; a plane that is not there has only what all have."""
        try:
            version = self._store.changed(plane, DEFINITION.storage)
        except NotFound:
            self._built.pop(plane, None)
            return self.platform
        found = self._built.get(plane)
        if found is None or found.version != version:
            found = self._built[plane] = self._build(plane, version, found)
        return found.api

    def _build(self, plane: PlaneName, version: int, last: _Built | None) -> _Built:
        defined: dict[str, _Defined] = {}
        for record in self._store.snapshot(plane, DEFINITION.storage).records:
            known = last.defined.get(record.key.name) if last else None
            if known is None or known.version != record.version:
                known = self._defined(plane, record, is_live=last is not None)
            defined[record.key.name] = known
        kinds = [served for definition in defined.values() for served in definition.kinds]
        names = [one.names for one in defined.values() if one.names is not None]
        if not names:
            return _Built(version, self.platform, defined)
        catalogue = self.platform.catalogue.with_more(kinds, names)
        openapi = OpenApi(catalogue, self.platform.openapi, last.api.openapi if last else None)
        return _Built(version, PlaneResources(catalogue, openapi), defined)

    def _defined(self, plane: PlaneName, record: Record, *, is_live: bool) -> _Defined:
        # Writes that were checked under an earlier definition may still be on their way to the
        # disk; after a start there are none.
        since = self._store.assigned(plane) if is_live else record.version
        definition = decode(record.body)
        kinds = custom_kinds(definition, since)
        return _Defined(record.version, kinds, accepted_names(definition))
