"""Which cell a deployment of a city goes to: one, or none and the reason why.

Karmada would put it on every cluster that matches (planning/policies.py asks it for one). Here a
city has one cell: where two match nothing is doubled. What is placed stays where it is; what is not
is held back and says so. A cell that is drained (a taint that says NoSchedule, as with Karmada)
gets nothing new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from datum_compute.api.cluster import NO_SCHEDULE, Cluster
from datum_compute.api.conditions import FALSE, TRUE, Verdict
from datum_compute.api.reasons import Reason
from datum_compute.planning.federation.unreachable import silence_of

_OF_KARMADA = "cluster.karmada.io/"
_PLACED = Verdict(TRUE, "Success", "Binding has been scheduled successfully")
_NOWHERE = Verdict(FALSE, "NoClusterFit", "No cluster matches the policy")


@dataclass(frozen=True, slots=True)
class Placing:
    """The clusters, and what the binding says of it."""

    targets: tuple[str, ...]
    verdict: Verdict


def is_drained(cluster: Cluster) -> bool:
    """By an operator. Karmada marks those that do not answer in the same way, in its own words."""
    return any(
        taint.effect == NO_SCHEDULE and not taint.key.startswith(_OF_KARMADA)
        for taint in cluster.spec.taints
    )


def refused(cells: Sequence[Cluster]) -> Verdict | None:
    """Why none of the cells of a city takes what is new, where the scheduler says no more than that
    none fits; None if there are none, or one that would."""
    if not cells or any(silence_of(c) is None and not is_drained(c) for c in cells):
        return None
    silences = (silence_of(cell) for cell in cells if not is_drained(cell))
    silence = next(filter(None, silences), None)
    return silence.verdict if silence is not None else drained(cells[0].metadata.name)


def drained(cell: str) -> Verdict:
    message = f"Cell {cell} is drained: nothing new is placed there"
    return Verdict(FALSE, Reason.CELL_DRAINED, message)


def placed_on_all(matching: Sequence[Cluster]) -> Placing:
    """For what goes along with deployments, wherever those are: namespaces, ConfigMaps, Secrets."""
    names = tuple(sorted(cluster.metadata.name for cluster in matching))
    return Placing(names, _PLACED if names else _NOWHERE)


def placed_on_one(matching: Sequence[Cluster], bound: Collection[str]) -> Placing:
    """``bound`` are the clusters it is placed on already: those keep it, drained or not."""
    names = sorted(cluster.metadata.name for cluster in matching)
    kept = [name for name in names if name in bound]
    if kept:
        return Placing((kept[0],), _PLACED)
    open_ = sorted(c.metadata.name for c in matching if not is_drained(c))
    if len(open_) == 1 and len(names) == 1:
        return Placing((open_[0],), _PLACED)
    if len(names) > 1:
        message = f"Cells {' and '.join(names)} serve the same city; only one of them may"
        return Placing((), Verdict(FALSE, Reason.AMBIGUOUS_SERVING_LOCATION, message))
    if names:
        return Placing((), drained(names[0]))
    return Placing((), _NOWHERE)


def serving(cluster: Cluster, others: Sequence[Cluster]) -> Verdict:
    """What is to be said of a cluster; ``others`` are those of its city."""
    if others:
        names = ", ".join(sorted(other.metadata.name for other in others))
        message = f"The city is also served by {names}: nothing new is placed until one has left"
        return Verdict(FALSE, Reason.AMBIGUOUS_SERVING_LOCATION, message)
    if is_drained(cluster):
        message = "Nothing new is placed on this cell; what runs there stays"
        return Verdict(FALSE, Reason.CELL_DRAINED, message)
    return Verdict(TRUE, "ServesCity", "The cell takes what is placed in its city")
