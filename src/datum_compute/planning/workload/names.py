"""Names of the deployments of a Workload.

- A new deployment is named ``<workload>-<placement>-<city>``, with the city in lower case. Its
  instances are named ``<deployment>-<ordinal>``.
- If that name is too long, or belongs to another deployment, the name is ``<workload>-<city>-`` and
  eight hex digits of a hash of workload uid, placement and city. For example, workload ``a-b`` with
  placement ``c`` and workload ``a`` with placement ``b-c`` have the same readable name.
- If the other deployment is being removed, the new one is created when the name is free.
- Instances and claims are named after their deployment. A label with the uid of the workload
  distinguishes them from those of an earlier workload with the same names.
- Existing deployments are found by workload uid, placement and city, and keep their names: earlier
  releases used other names, and a readable name may have become free since.
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
# Parts of a name that is not readable.
_WORKLOAD_CHARACTERS_MAX = 30
_CITY_CHARACTERS_MAX = 12
_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A placement and a city in which it runs. The city is in upper case."""

    placement: str
    city: str


@dataclass(frozen=True, slots=True)
class NameHolder:
    """A deployment that has a certain name, and its workload; None if that no longer exists."""

    deployment: WorkloadDeployment
    workload: Workload | None = None

    @property
    def is_being_removed(self) -> bool:
        """Return True if the deployment will be removed without any action of a user.

        Garbage collection removes a deployment whose owner is gone.
        """
        if self.deployment.is_terminating:
            return True
        if self.workload is not None:
            return self.workload.is_terminating
        return bool(controller_uid(self.deployment))


@dataclass(frozen=True, slots=True)
class NamedPlaces:
    """The name for each place, and the deployments that must be removed first, by place."""

    names: Mapping[Place, str]
    waiting: Mapping[Place, NameHolder]


def readable_name(workload_name: str, place: Place) -> str:
    return f"{workload_name}-{place.placement}-{place.city.lower()}"


def candidate_names(workload: Workload, place: Place) -> Iterator[str]:
    """Yield the possible names of a new deployment, the preferred one first.

    The iterator is infinite. A third name is needed only if two hashes have the same digits.
    """
    metadata = workload.metadata
    readable = readable_name(metadata.name, place)
    if len(readable) <= NAME_CHARACTERS_MAX:
        yield readable
    name = metadata.name[:_WORKLOAD_CHARACTERS_MAX].rstrip("-.")
    city = place.city.lower()[:_CITY_CHARACTERS_MAX].rstrip("-")
    identity = "\0".join((metadata.uid, place.placement, place.city.lower()))
    for attempt in count():
        digest = hashlib.sha256((identity + "\0" * attempt).encode()).hexdigest()[:_HASH_DIGITS]
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

    ``own`` are the observed deployments of the workload. Those in other places are being deleted.
    ``holders`` are the deployments of other workloads by name.
    """
    wanted = sorted(set(places))
    existing = find_existing(workload, wanted, own)
    names = {place: d.metadata.name for place, d in existing.items()}
    used = set(names.values())
    own_holders = {d.metadata.name: NameHolder(d) for d in own}
    waiting: dict[Place, NameHolder] = {}
    for place in (place for place in wanted if place not in existing):
        for name in candidate_names(workload, place):
            if name in used:
                continue
            # An own deployment whose name is not in ``used`` is being deleted.
            holder = own_holders.get(name) or holders.get(name)
            if holder is None or name in own_holders or holder.is_being_removed:
                names[place] = name
                used.add(name)
                if holder is not None:
                    waiting[place] = holder
                break
    return NamedPlaces(names, waiting)


def find_existing(
    workload: Workload, places: Iterable[Place], own: Sequence[WorkloadDeployment]
) -> dict[Place, WorkloadDeployment]:
    """Return the deployment of each place that has one.

    If a place has several, the oldest that is not terminating is returned, or else the oldest. If
    the placement in the spec was edited by hand, the label still identifies the place.
    """
    wanted, uid = set(places), workload.metadata.uid
    by_preference = sorted((d for d in own if d.spec.workload_ref.uid == uid), key=_preference)
    existing: dict[Place, WorkloadDeployment] = {}
    for deployment in by_preference:
        existing.setdefault(place_of_deployment(deployment), deployment)
    for deployment in by_preference:
        if place_of_deployment(deployment) not in wanted:
            existing.setdefault(_labeled_place(deployment), deployment)
    return {place: existing[place] for place in wanted if place in existing}


def is_same_workload(uid: str, other_uid: str) -> bool:
    """Return False if both uids are known and differ.

    A deployment may have the name of a deployment of an earlier workload. The uid of an object from
    an earlier release may be unknown, because it has no label; its name is unique.
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


def _preference(deployment: WorkloadDeployment) -> tuple[bool, str, str]:
    """Sort deployments that are not terminating first, then the oldest."""
    metadata = deployment.metadata
    return deployment.is_terminating, metadata.creation_timestamp or "", metadata.name
