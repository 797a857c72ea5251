"""Reads ConfigMaps and Secrets that objects refer to, and maps their changes to those objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.referenced_data import Reference, Source, references, sources
from datum_compute.api.errors import Forbidden
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, SECRET
from datum_compute.api.meta.objects import KindInfo, Ref, ref_of
from datum_compute.planning.rollout.referenced_data import ObservedSources, SourceObject
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, MapFunction, watches
from datum_compute.runtime.informer import ObjectChange

KINDS: dict[str, KindInfo[Any]] = {kind.kind: kind for kind in (CONFIG_MAP, SECRET)}


def observe_sources(
    client: CachedClient, namespace: str, wanted: Sequence[Reference]
) -> ObservedSources:
    held: dict[Source, SourceObject] = {}
    for source in sources(wanted):
        found = client.read(KINDS[source.kind]).get(Ref(namespace, source.name))
        if found is not None:
            held[source] = found
    return ObservedSources(held)


async def read_sources(
    client: CachedClient, namespace: str, wanted: Sequence[Reference]
) -> ObservedSources:
    """Read the sources live, not from the cache."""
    held: dict[Source, SourceObject] = {}
    denied: set[Source] = set()
    for source in sources(wanted):
        try:
            found = await client.get_uncached(KINDS[source.kind], Ref(namespace, source.name))
        except Forbidden:
            denied.add(source)
            continue
        if found is not None:
            held[source] = found
    return ObservedSources(held, frozenset(denied))


def unreadable_kinds(client: CachedClient, wanted: Sequence[Reference]) -> list[str]:
    """Return the referenced kinds that are not synced, for example because of missing access."""
    kinds = [KINDS[name] for name in sorted({reference.kind for reference in wanted})]
    return [kind.plural for kind in kinds if not client.declare(kind).is_synced]


def source_index_values(namespace: str, wanted: Sequence[Reference]) -> Iterable[str]:
    """Return the index values of an object that refers to the sources."""
    return (f"{namespace}/{source}" for source in sources(wanted))


def source_edges(index: Index[Any]) -> tuple[Edge, ...]:
    """Return edges that map a changed source to the objects that refer to it, by the index."""
    return tuple(watches(kind, _map_source(kind, index)) for kind in KINDS.values())


def _map_source(kind: KindInfo[Any], index: Index[Any]) -> MapFunction:
    def to_keys(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        metadata = change.latest.metadata
        value = f"{metadata.namespace}/{kind.kind}/{metadata.name}"
        for found in client.read_unsynced(index.kind).list_by_index(index.name, value):
            yield Key(client.plane, ref_of(found))

    return to_keys


def _sources_of_deployment(deployment: WorkloadDeployment) -> Iterable[str]:
    return source_index_values(deployment.metadata.namespace, references(deployment.spec.template))


DEPLOYMENTS_BY_SOURCE = Index(DEPLOYMENT, "refers-to", _sources_of_deployment)
