"""The names of deployments: readable, unique, and stable for existing deployments."""

from __future__ import annotations

import re
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.workload import Workload
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.objects import owner_reference
from datum_compute.api.planes import instance_name
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.planning.workload.names import (
    NAME_CHARACTERS_MAX,
    NameHolder,
    Place,
    candidate_names,
    find_existing,
    name_places,
    new_places,
    preferred_name,
    preferred_names,
)
from testkit.builders import NOW, a_workload

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
CITIES = st.from_regex(r"[A-Z0-9]([-A-Z0-9]{0,30}[A-Z0-9])?", fullmatch=True)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DFW = Place("default", "DFW")


def named_workload(
    name: str, uid: str = "", *, placement: str = "default", cities: tuple[str, ...] = ("DFW",)
) -> Workload:
    workload = a_workload(cities=cities)
    metadata = msgspec.structs.replace(workload.metadata, name=name, uid=uid or f"uid-{name}")
    placements = [msgspec.structs.replace(workload.spec.placements[0], name=placement)]
    spec = msgspec.structs.replace(workload.spec, placements=placements)
    return msgspec.structs.replace(workload, metadata=metadata, spec=spec)


def terminating_workload(workload: Workload) -> Workload:
    metadata = msgspec.structs.replace(workload.metadata, deletion_timestamp=NOW)
    return msgspec.structs.replace(workload, metadata=metadata)


def stored_deployment(
    workload: Workload, name: str = "", *, created: str = NOW, terminating: bool = False
) -> WorkloadDeployment:
    """Return the stored deployment of a workload with one city."""
    (deployment,) = desired_deployments(workload)
    name = name or deployment.metadata.name
    metadata = msgspec.structs.replace(
        deployment.metadata,
        name=name,
        uid=f"uid-{name}",
        creation_timestamp=created,
        deletion_timestamp=NOW if terminating else None,
    )
    return msgspec.structs.replace(deployment, metadata=metadata)


def hashed_name(workload: Workload, place: Place = DFW) -> str:
    return next(islice(candidate_names(workload, place), 1, None))


def test_a_deployment_is_named_after_workload_placement_and_city() -> None:
    web = named_workload("web")
    assert preferred_name(web, DFW) == "web-default-dfw"
    assert instance_name(preferred_name(web, DFW), 0) == "web-default-dfw-0"
    (deployment,) = desired_deployments(web)
    assert deployment.metadata.name == "web-default-dfw"


@given(NAMES, st.uuids().map(str), NAMES, CITIES)
def test_deployment_names_are_short_and_valid(
    workload: str, uid: str, placement: str, city: str
) -> None:
    candidates = candidate_names(named_workload(workload, uid), Place(placement, city))
    for name in islice(candidates, 3):
        assert len(name) <= NAME_CHARACTERS_MAX
        assert SUBDOMAIN.fullmatch(name), name
        assert name.startswith(workload[:30].rstrip("-"))
        assert len(instance_name(name, 2**31)) <= 63


def test_a_name_of_more_than_52_characters_is_abbreviated_with_a_hash() -> None:
    longest = "w" * (52 - len("-default-dfw"))
    assert preferred_name(named_workload(longest), DFW) == f"{longest}-default-dfw"
    name = preferred_name(named_workload(f"{longest}w"), DFW)
    assert re.fullmatch(r"w{30}-dfw-[0-9a-f]{8}", name)


def test_a_long_city_code_is_abbreviated_as_well() -> None:
    name = preferred_name(named_workload("w" * 40), Place("default", "A" * 11 + "-" + "B" * 20))
    assert re.fullmatch(r"w{30}-a{11}-[0-9a-f]{8}", name)


def test_a_workload_name_with_dots_gives_a_valid_deployment_name() -> None:
    workload = named_workload("a" * 29 + ".tail" + "b" * 20)
    assert SUBDOMAIN.fullmatch(preferred_name(workload, DFW))


def test_generated_names_do_not_change_between_releases() -> None:
    """A deployment that waits for its name must not get another one after an upgrade."""
    web = named_workload("web", "uid-1")
    assert list(islice(candidate_names(web, DFW), 3)) == [
        "web-default-dfw",
        "web-dfw-24776004",
        "web-dfw-ad421fea",
    ]


def test_a_name_of_another_workload_is_not_used() -> None:
    """Workload ``a-b`` with placement ``c``, and workload ``a`` with placement ``b-c``."""
    first = named_workload("a-b", placement="c")
    second = named_workload("a", placement="b-c")
    assert preferred_names(first) == preferred_names(second) == ["a-b-c-dfw"]
    holder = NameHolder(stored_deployment(first), first)
    place = Place("b-c", "DFW")
    named = name_places(second, [place], (), {"a-b-c-dfw": holder})
    assert named.names == {place: hashed_name(second, place)}
    assert not named.waiting


@pytest.mark.parametrize("reason", ["deployment", "workload", "owner-gone"])
def test_a_name_is_awaited_while_its_deployment_is_being_removed(reason: str) -> None:
    earlier, web = named_workload("web", "uid-1"), named_workload("web", "uid-2")
    deployment = stored_deployment(earlier, terminating=reason == "deployment")
    owner = {"deployment": earlier, "workload": terminating_workload(earlier), "owner-gone": None}
    named = name_places(web, [DFW], (), {"web-default-dfw": NameHolder(deployment, owner[reason])})
    assert named.names == {DFW: "web-default-dfw"}
    assert list(named.waiting) == [DFW]


def test_a_name_is_not_awaited_if_nothing_removes_its_deployment() -> None:
    earlier, web = named_workload("web", "uid-1"), named_workload("web", "uid-2")
    deployment = stored_deployment(earlier)
    metadata = msgspec.structs.replace(deployment.metadata, owner_references=[])
    ownerless = msgspec.structs.replace(deployment, metadata=metadata)
    named = name_places(web, [DFW], (), {"web-default-dfw": NameHolder(ownerless)})
    assert named.names == {DFW: hashed_name(web)}
    assert not named.waiting


def test_an_existing_deployment_keeps_its_name_whatever_it_is() -> None:
    web = named_workload("web")
    for name in ("web-79b0697b5d", hashed_name(web), "web-default-dfw"):
        named = name_places(web, [DFW], [stored_deployment(web, name)], {})
        assert (named.names, named.waiting) == ({DFW: name}, {})
        assert not new_places(web, [stored_deployment(web, name)])


def test_a_terminating_deployment_of_the_same_place_keeps_its_name() -> None:
    web = named_workload("web")
    named = name_places(web, [DFW], [stored_deployment(web, "web-1", terminating=True)], {})
    assert named.names == {DFW: "web-1"}


def test_the_oldest_of_two_deployments_of_one_place_is_kept() -> None:
    web = named_workload("web")
    old = stored_deployment(web, "web-2", created="2026-01-01T00:00:00Z")
    new = stored_deployment(web, "web-1", created="2026-01-02T00:00:00Z")
    assert find_existing(web, [DFW], [new, old]) == {DFW: old}
    going = stored_deployment(web, "web-0", created="2025-01-01T00:00:00Z", terminating=True)
    assert find_existing(web, [DFW], [going, new]) == {DFW: new}


def test_a_deployment_that_names_another_workload_is_not_one_of_this_workload() -> None:
    web, other = named_workload("web"), named_workload("web", "uid-other")
    assert find_existing(web, [DFW], [stored_deployment(other)]) == {}


def test_a_deployment_whose_placement_was_edited_is_found_by_its_label() -> None:
    web = named_workload("web")
    deployment = stored_deployment(web, "web-79b0697b5d")
    spec = msgspec.structs.replace(deployment.spec, placement_name="edited")
    edited = msgspec.structs.replace(deployment, spec=spec)
    assert edited.metadata.labels[labels.PLACEMENT_NAME] == "default"
    assert find_existing(web, [DFW], [edited]) == {DFW: edited}


def test_two_places_of_one_workload_never_share_a_name() -> None:
    """Placement ``a`` in city ``B-C`` and placement ``a-b`` in city ``C``."""
    web = named_workload("web")
    one, other = Place("a", "B-C"), Place("a-b", "C")
    assert preferred_name(web, one) == preferred_name(web, other)
    named = name_places(web, [one, other], (), {})
    assert named.names == {one: "web-a-b-c", other: hashed_name(web, other)}
    again = name_places(web, [one, other], (), {})
    assert again == named


def test_the_name_of_a_removed_place_is_free_when_its_deployment_is_gone() -> None:
    web = named_workload("web", placement="a", cities=("B-C",))
    removed, place = stored_deployment(web), Place("a-b", "C")
    named = name_places(web, [place], [removed], {})
    assert named.names == {place: "web-a-b-c"}
    assert list(named.waiting) == [place]
    assert not name_places(web, [place], [], {}).waiting


def test_the_owner_of_a_deployment_is_the_workload_it_was_created_for() -> None:
    web = named_workload("web")
    (deployment,) = desired_deployments(web)
    assert deployment.metadata.owner_references == [owner_reference(web, WORKLOAD)]
