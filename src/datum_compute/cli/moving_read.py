"""What moves from one platform to another: workloads, and what they cannot do without.

Only what people wrote goes along. Statuses, uids, versions, owners and finalizers belong to the
plane an object is on; the controllers of the other one make their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.compute.referenced_data import references, sources
from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import CONFIG_MAP, ENTITLEMENT, NAMESPACE, NETWORK, SECRET, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.cli.export import exported
from datum_compute.client.client import Client

_SOURCES: Mapping[str, KindInfo[Any]] = {"ConfigMap": CONFIG_MAP, "Secret": SECRET}
_KEPT_META = ("labels", "annotations")
_OF_A_CLIENT = ("kubectl.kubernetes.io/last-applied-configuration",)
_OF_A_PLANE = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class Copy:
    """An object as it is written on the other side. It may be a Secret: never printed."""

    kind: KindInfo[Any]
    manifest: JsonObject = field(repr=False)

    @property
    def ref(self) -> Ref:
        metadata = self.manifest["metadata"]
        return Ref(metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.ref}"


@dataclass(frozen=True, slots=True)
class ProjectCopies:
    """In the order in which they are written: nothing comes before what it needs."""

    entitlements: tuple[Copy, ...]
    namespaces: tuple[Copy, ...]
    objects: tuple[Copy, ...]
    missing: tuple[str, ...]  # what workloads refer to and is not there

    def all(self) -> tuple[Copy, ...]:
        return (*self.entitlements, *self.namespaces, *self.objects)


async def read_project(client: Client) -> ProjectCopies:
    """Everything of a project that moves; what is being deleted stays behind."""
    workloads = [w for w in (await client.list_plain(WORKLOAD)).items if _stays(w)]
    copies, missing = [], []
    for kind, ref in _needed(workloads):
        try:
            copies.append(Copy(kind, stripped(kind, await client.get_plain(kind, ref))))
        except NotFound:
            missing.append(f"{kind.kind} {ref}")
    copies.extend(Copy(WORKLOAD, _workload(workload)) for workload in workloads)
    spaces = sorted({copy.ref.namespace for copy in copies})
    entitlements = (await client.list_plain(ENTITLEMENT)).items if workloads else []
    return ProjectCopies(
        tuple(Copy(ENTITLEMENT, stripped(ENTITLEMENT, e)) for e in entitlements if _stays(e)),
        tuple(Copy(NAMESPACE, {**_head(NAMESPACE), "metadata": {"name": n}}) for n in spaces),
        tuple(copies),
        tuple(missing),
    )


def _needed(workloads: list[JsonObject]) -> Iterator[tuple[KindInfo[Any], Ref]]:
    """Each once: networks, then data, by namespace and name."""
    networks: set[Ref] = set()
    data: set[tuple[str, Ref]] = set()
    for workload in workloads:
        namespace = workload["metadata"]["namespace"]
        template = from_json(workload, Workload).spec.template
        for interface in template.spec.network_interfaces:
            network = interface.network
            networks.add(Ref(network.namespace or namespace, network.name))
        for source in sources(references(template)):
            data.add((source.kind, Ref(namespace, source.name)))
    yield from ((NETWORK, ref) for ref in sorted(networks))
    yield from ((_SOURCES[kind], ref) for kind, ref in sorted(data))


def stripped(kind: KindInfo[Any], found: JsonObject) -> JsonObject:
    """The object as people wrote it."""
    metadata = found["metadata"]
    kept: JsonObject = {"name": metadata["name"]}
    if metadata.get("namespace"):
        kept["namespace"] = metadata["namespace"]
    for name in _KEPT_META:
        own = {k: v for k, v in (metadata.get(name) or {}).items() if k not in _OF_A_CLIENT}
        if own:
            kept[name] = own
    content = {k: v for k, v in found.items() if k not in _OF_A_PLANE}
    return {**_head(kind), "metadata": kept, **content}


def _workload(found: JsonObject) -> JsonObject:
    shown = exported(found)
    metadata = {**shown["metadata"], "namespace": found["metadata"]["namespace"]}
    return {**shown, "metadata": metadata}


def _head(kind: KindInfo[Any]) -> JsonObject:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def _stays(found: JsonObject) -> bool:
    return not found["metadata"].get("deletionTimestamp")
