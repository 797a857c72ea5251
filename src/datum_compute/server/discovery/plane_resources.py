"""What each plane serves: the kinds of the platform, and those its own definitions add.

Nothing is announced to this file. It asks the store, at every request, whether the definitions of
the plane have changed since it last looked, and then builds anew what depends on those that did.
So a kind is served from the commit that establishes it to the commit that removes it, also after
a restart, and never on another plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import DEFINITION
from datum_compute.api.meta.codec import decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.server.customkinds import accepted_names, custom_kinds
from datum_compute.server.discovery.openapi import OpenApi
from datum_compute.server.discovery.resources import AcceptedNames, Catalogue, Served
from datum_compute.store.records import Record
from datum_compute.store.store import Store


@dataclass(frozen=True, slots=True)
class PlaneApi:
    """What a plane serves, and the documents about it."""

    catalogue: Catalogue
    openapi: OpenApi


@dataclass(frozen=True, slots=True)
class _Defined:
    """The kinds of one definition, as it was at a version."""

    version: int
    kinds: list[Served]
    names: AcceptedNames | None


@dataclass(frozen=True, slots=True)
class _Built:
    """What was built when the definitions had last changed at a version."""

    version: int
    api: PlaneApi
    defined: dict[str, _Defined]


class Catalogues:
    def __init__(self, store: Store, kinds: Iterable[KindInfo[Any]]) -> None:
        self._store = store
        catalogue = Catalogue.of_kinds(kinds)
        self.platform = PlaneApi(catalogue, OpenApi(catalogue))
        self._built: dict[PlaneName, _Built] = {}

    def of(self, plane: PlaneName) -> PlaneApi:
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
        return _Built(version, PlaneApi(catalogue, openapi), defined)

    def _defined(self, plane: PlaneName, record: Record, *, is_live: bool) -> _Defined:
        # Writes that were checked under an earlier definition may still be on their way to the
        # disk; after a start there are none.
        since = self._store.assigned(plane) if is_live else record.version
        definition = decode(record.body)
        kinds = custom_kinds(definition, since)
        return _Defined(record.version, kinds, accepted_names(definition))
