"""Names of the deployments of a Workload.

- A new deployment is named ``<workload>-<placement>-<city>``, with the city in lower case. Its
  instances are named ``<deployment>-<ordinal>``.
- If that name is too long, or belongs to another deployment, the name is ``<workload>-<city>-`` and
  eight hex digits of workload uid, placement and city. ``a-b`` with placement ``c`` and ``a`` with
  placement ``b-c`` have the same readable name, for example.
- If the other deployment is being removed, the new one waits for its name.
- Objects of a deployment that are named after it, such as instances and claims, have the uid of the
  workload in a label. So those of an earlier workload with the same names are recognized.
- Existing deployments are found by workload uid, placement and city, and keep their names. Earlier
  releases named them differently, and a name that was taken may be free now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.workload import Workload
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ApiObject, controller_uid
from datum_compute.api.planes import normalize_city

# An instance name is a label value: 52 characters, a dash and an ordinal of ten digits make 63.
NAME_CHARACTERS_MAX = 52
_WORKLOAD_CHARACTERS_MAX = 30
_CITY_CHARACTERS_MAX = 12
_DIGITS = 8


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A placement and a city in which it runs. The city is in upper case."""

    placement: str
    city: str


@dataclass(frozen=True, slots=True)
class NameHolder:
    """A deployment that has a name, and the workload that it belongs to, if that exists."""

    deployment: WorkloadDeployment
    workload: Workload | None = None

    @property
    def is_being_removed(self) -> bool:
        """Return True if the deployment will be gone without any action of its user.

        Garbage collection removes a deployment whose owner is gone.
        """
        if self.deployment.is_terminating:
            return True
        if self.workload is not None:
            return self.workload.is_terminating
        return bool(controller_uid(self.deployment))


@dataclass(frozen=True, slots=True)
class NamedPlaces:
    """The name of each place, and the places that wait until another deployment is removed."""

    names: Mapping[Place, str]
    waiting: Mapping[Place, NameHolder]


def readable_name(workload_name: str, place: Place) -> str:
    return f"{workload_name}-{place.placement}-{place.city.lower()}"


def candidate_names(workload: Workload, place: Place) -> Iterator[str]:
    """Yield the possible names of a new deployment, the preferred one first.

    The iterator does not end. Only names whose digits are equal by chance lead to a third one.
    """
    metadata = workload.metadata
    readable = readable_name(metadata.name, place)
    if len(readable) <= NAME_CHARACTERS_MAX:
        yield readable
    name = metadata.name[:_WORKLOAD_CHARACTERS_MAX].rstrip("-.")
    city = place.city.lower()[:_CITY_CHARACTERS_MAX].rstrip("-")
    identity = "\0".join((metadata.uid, place.placement, place.city.lower()))
    for attempt in count():
        digest = hashlib.sha256((identity + "\0" * attempt).encode()).hexdigest()[:_DIGITS]
        yield f"{name}-{city}-{digest}"


def preferred_name(workload: Workload, place: Place) -> str:
    return next(candidate_names(workload, place))


def preferred_names(workload: Workload) -> list[str]:
    """Return the preferred names of all places in which the workload may run."""
    return [preferred_name(workload, place) for place in _possible_places(workload)]


def new_places(workload: Workload, own: Sequence[WorkloadDeployment]) -> list[Place]:
    """Return the places in which the workload may run and has no deployment."""
    places = _possible_places(workload)
    existing = find_existing(workload, places, own)
    return [place for place in places if place not in existing]


def _possible_places(workload: Workload) -> list[Place]:
    return [
        Place(placement.name, normalize_city(city))
        for placement in workload.spec.placements
        for city in (*placement.city_codes, *placement.fallback_city_codes)
    ]


def name_places(
    workload: Workload,
    places: Iterable[Place],
    own: Sequence[WorkloadDeployment],
    holders: Mapping[str, NameHolder],
) -> NamedPlaces:
    """Return the names of the deployments in these places.

    ``own`` are the observed deployments of the workload, of which those in other places are being
    deleted. ``holders`` are the deployments of other workloads by name.
    """
    wanted = sorted(set(places))
    existing = find_existing(workload, wanted, own)
    names = {place: d.metadata.name for place, d in existing.items()}
    used = set(names.values())
    removed = {d.metadata.name: NameHolder(d) for d in own}
    waiting: dict[Place, NameHolder] = {}
    for place in (place for place in wanted if place not in existing):
        for name in candidate_names(workload, place):
            if name in used:
                continue
            holder = removed.get(name) or holders.get(name)
            if holder is None or name in removed or holder.is_being_removed:
                names[place] = name
                used.add(name)
                waiting |= {place: holder} if holder is not None else {}
                break
    return NamedPlaces(names, waiting)


def find_existing(
    workload: Workload, places: Iterable[Place], own: Sequence[WorkloadDeployment]
) -> dict[Place, WorkloadDeployment]:
    """Return the deployment of each place that has one.

    If a place has several, the oldest is kept, or the oldest that is not terminating. The labels
    find a deployment whose placement was edited.
    """
    wanted, uid = set(places), workload.metadata.uid
    ranked = sorted((d for d in own if d.spec.workload_ref.uid == uid), key=_rank)
    existing: dict[Place, WorkloadDeployment] = {}
    for deployment in ranked:
        existing.setdefault(place_of_deployment(deployment), deployment)
    for deployment in ranked:
        if place_of_deployment(deployment) not in wanted:
            existing.setdefault(_labeled_place(deployment), deployment)
    return {place: existing[place] for place in wanted if place in existing}


def is_same_workload(uid: str, other_uid: str) -> bool:
    """Return False if both uids are known and differ.

    A deployment may have the name of a deployment of an earlier workload. Objects of earlier
    releases may lack the label with the uid; their names are unique.
    """
    return not uid or not other_uid or uid == other_uid


def workload_uid_in(manifest: JsonObject) -> str:
    """Return the uid of the workload of a deployment in a Work; empty for other kinds."""
    reference = manifest.get("spec", {}).get("workloadRef", {})
    return str(reference.get("uid", "")) if isinstance(reference, dict) else ""


def labeled_workload(obj: ApiObject) -> str:
    """Return the uid of the workload that the label of an object names; empty without label."""
    return obj.metadata.labels.get(labels.WORKLOAD_UID, "")


def place_of_deployment(deployment: WorkloadDeployment) -> Place:
    return Place(deployment.spec.placement_name, normalize_city(deployment.spec.city_code))


def _labeled_place(deployment: WorkloadDeployment) -> Place:
    placement = deployment.metadata.labels.get(labels.PLACEMENT_NAME, "")
    return replace(place_of_deployment(deployment), placement=placement)


def _rank(deployment: WorkloadDeployment) -> tuple[bool, str, str]:
    metadata = deployment.metadata
    return deployment.is_terminating, metadata.creation_timestamp or "", metadata.name
