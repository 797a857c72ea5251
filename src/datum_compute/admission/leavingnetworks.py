"""Nobody joins a network that is being deleted: it stays while it is used, so it would never go.

Asked about networks that are named for the first time; a workload that is in one may be scaled and
edited there until its owner moves it. A network that there is not (yet) is no fault here: instances
wait for it and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.questions import Answers, Listing, Write
from datum_compute.admission.rules.template import interfaces
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import NETWORK
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.network import DEFAULT_NETWORK

NETWORKS = Listing(NETWORK)
_INTERFACES = "spec.template.spec.networkInterfaces"


def asks_for_networks(write: Write) -> Iterable[Listing]:
    if _joined(write):
        yield NETWORKS


def networks_stay(write: Write, answers: Answers) -> Iterable[Cause]:
    joined = _joined(write)
    leaving = _leaving(answers) if joined else {}
    for field, network in joined:
        if network in leaving:
            why = (
                f'network "{network.name}" in the namespace "{network.namespace}" is being deleted '
                f"since {leaving[network]} and takes no new workloads; name another, or wait until "
                "it is gone and made again"
            )
            yield Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _joined(write: Write) -> list[tuple[str, Ref]]:
    if not write.changes_spec:
        return []
    old = write.old
    before = {ref for _, ref in _networks(old, write.namespace)} if old is not None else set()
    return [(f, ref) for f, ref in _networks(write.new, write.namespace) if ref not in before]


def _networks(workload: JsonObject, namespace: str) -> Iterator[tuple[str, Ref]]:
    named = list(interfaces(workload))
    for path, interface in named:
        network = interface["network"]
        yield f"{path}.network", Ref(network.get("namespace") or namespace, network["name"])
    if not named:
        yield _INTERFACES, DEFAULT_NETWORK


def _leaving(answers: Answers) -> dict[Ref, str]:
    """Since when, by network."""
    found = (network["metadata"] for network in answers.listed[NETWORKS])
    return {
        Ref(metadata["namespace"], metadata["name"]): metadata["deletionTimestamp"]
        for metadata in found
        if metadata.get("deletionTimestamp")
    }
