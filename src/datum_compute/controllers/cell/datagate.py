"""The ReferencedData gate of an instance: cleared when the ConfigMaps and Secrets that it refers to
are on its plane, with the keys it asks for.

An instance that waits is found by what it waits for, so a source that appears wakes exactly those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from datum_compute.api.conditions import FALSE, TRUE, Verdict
from datum_compute.api.instance import REFERENCED_DATA_READY, Instance
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, SECRET
from datum_compute.api.meta import KindInfo, Ref, ref_of
from datum_compute.api.reasons import Reason
from datum_compute.api.references import Reference, Source, references_of, sources
from datum_compute.controllers.cell.quotagate import FRESH_S, waiting_s
from datum_compute.controllers.context import Context
from datum_compute.planning.gates import REFERENCED_DATA, Decision, gate_names
from datum_compute.planning.references import Held, ObservedSources, data_verdict
from datum_compute.runtime.cache import Index
from datum_compute.runtime.controller import Edge, Mapping, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.view import View

# The sources' own events come at once; this repairs what was missed.
RECHECK_S = 30.0

KINDS: dict[str, KindInfo[Any]] = {"ConfigMap": CONFIG_MAP, "Secret": SECRET}


def decide_data(context: Context, key: Key, instance: Instance) -> Decision | None:
    if REFERENCED_DATA not in gate_names(instance) or instance.is_terminating:
        return None
    view, wanted = context.planes.need(key.plane), references_of(instance.spec)
    unread = unreadable_kinds(view, wanted)
    if unread and waiting_s(context, instance) >= FRESH_S:
        message = f"The platform cannot read {' and '.join(unread)} on this plane"
        verdict = Verdict(FALSE, Reason.SOURCE_UNAUTHORIZED, message)
    else:
        verdict = data_verdict(wanted, observe_sources(view, key.ref.namespace, wanted))
    recheck_s = None if verdict.status == TRUE else RECHECK_S
    return Decision(REFERENCED_DATA, REFERENCED_DATA_READY, verdict, recheck_s)


def unreadable_kinds(view: View, wanted: Sequence[Reference]) -> list[str]:
    """Kinds that are referred to and that the plane has not let us see."""
    kinds = [KINDS[name] for name in sorted({reference.kind for reference in wanted})]
    return [kind.plural for kind in kinds if not view.declare(kind).synced]


def observe_sources(view: View, namespace: str, wanted: Sequence[Reference]) -> ObservedSources:
    held: dict[Source, Held] = {}
    for source in sources(wanted):
        found = view.read(KINDS[source.kind]).get(Ref(namespace, source.name))
        if found is not None:
            held[source] = found
    return ObservedSources(held)


def waits_for(instance: Instance) -> Iterable[str]:
    """Where an instance that waits for data is found: under each of its sources."""
    if REFERENCED_DATA in gate_names(instance):
        namespace = instance.metadata.namespace
        yield from (f"{namespace}/{source}" for source in sources(references_of(instance.spec)))


def from_source(kind: KindInfo[Any], waiting: Index[Any]) -> Mapping:
    """A source wakes those of the index's kind that wait for it."""

    def to_keys(view: View, change: Change[Any]) -> Iterable[Key]:
        metadata = change.latest.metadata
        value = f"{metadata.namespace}/{kind.kind}/{metadata.name}"
        for found in view.cached(waiting.kind).indexed(waiting.name, value):
            yield Key(view.plane, ref_of(found))

    return to_keys


WAITING = Index(INSTANCE, "waits-for-data", waits_for)

EDGES: tuple[Edge, ...] = (
    watches(CONFIG_MAP, from_source(CONFIG_MAP, WAITING)),
    watches(SECRET, from_source(SECRET, WAITING)),
)
