"""The ReferencedData gate of an instance: cleared when the ConfigMaps and Secrets that it refers to
are on its plane, with the keys it asks for.

An instance that waits is found by what it waits for, so a source that appears wakes exactly those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, Verdict
from datum_compute.api.instance import REFERENCED_DATA_READY, Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.reasons import Reason
from datum_compute.api.references import references_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.referenced_data import (
    index_values,
    observe_sources,
    unreadable_kinds,
    wakes,
)
from datum_compute.planning.resolution import arrival_verdict, carried
from datum_compute.planning.rollout.gates import (
    FIRST_SYNC_S,
    REFERENCED_DATA,
    Decision,
    gate_names,
    waiting_s,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, watches
from datum_compute.runtime.informer import ObjectChange

# The sources' own events come at once; this repairs what was missed.
RECHECK_S = 30.0


def decide_data(context: Context, key: Key, instance: Instance) -> Decision | None:
    if REFERENCED_DATA not in gate_names(instance) or instance.is_terminating:
        return None
    view = context.planes.require(key.plane)
    unread = unreadable_kinds(view, references_of(instance.spec))
    if unread and waiting_s(instance, context.unix_s()) >= FIRST_SYNC_S:
        message = f"The platform cannot read {' and '.join(unread)} on this plane"
        verdict = Verdict(FALSE, Reason.SOURCE_UNAUTHORIZED, message)
    else:
        verdict = _verdict(view, instance)
    recheck_s = None if verdict.status == TRUE else RECHECK_S
    return Decision(REFERENCED_DATA, REFERENCED_DATA_READY, verdict, recheck_s)


def _verdict(view: CachedClient, instance: Instance) -> Verdict:
    namespace, wanted = instance.metadata.namespace, references_of(instance.spec)
    owner = Ref(namespace, instance.metadata.labels.get(labels.DEPLOYMENT_NAME, ""))
    deployment = view.read(DEPLOYMENT).get(owner)
    template = instance.spec.controller.template_hash
    observed = observe_sources(view, namespace, wanted)
    return arrival_verdict(deployment, template, wanted, observed)


def waits_for(instance: Instance) -> Iterable[str]:
    if REFERENCED_DATA in gate_names(instance):
        yield from index_values(instance.metadata.namespace, references_of(instance.spec))


def from_deployment(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Instances that wait for what their project says about their data."""
    new = change.new
    if new is None or (change.old is not None and carried(change.old) == carried(new)):
        return
    for instance in view.cached(INSTANCE).with_label(labels.DEPLOYMENT_NAME, new.metadata.name):
        waits = REFERENCED_DATA in gate_names(instance)
        if waits and instance.metadata.namespace == new.metadata.namespace:
            yield Key(view.plane, ref_of(instance))


WAITING = Index(INSTANCE, "waits-for-data", waits_for)

EDGES: tuple[Edge, ...] = (*wakes(WAITING), watches(DEPLOYMENT, from_deployment))
