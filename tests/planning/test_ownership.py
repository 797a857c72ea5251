"""The mapping from a Server to its Instance: one, none or many, and every other case reported."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import ObjectMeta, OwnerReference, Ref, owner_reference, ref_of
from datum_compute.api.server import Server, ServerSpec
from datum_compute.planning.rollout.server import (
    Match,
    belongs,
    claims_of,
    find_owner,
    instance_tag,
    refs_to_reconcile,
)
from testkit.builders import a_deployment, a_template, an_instance

FIRST, SECOND = an_instance(0), an_instance(1)
MALFORMED = [None, "", "junk", "a/b", "a//c", "/a/b", "a/b/c/d"]


def a_server(
    tag: str | None = None,
    *,
    owner: OwnerReference | None = None,
    label: str = "",
    name: str = "web-dfw-0",
) -> Server:
    return Server(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            owner_references=[] if owner is None else [owner],
            labels={labels.INSTANCE_UID: label} if label else {},
        ),
        spec=ServerSpec(
            instance_type="d1-standard-2",
            template_hash="abc",
            containers=a_template().spec.runtime.sandbox.containers,
            tags={} if tag is None else {labels.INSTANCE_TAG: tag},
        ),
    )


def owned_by(instance: Instance) -> OwnerReference:
    return owner_reference(instance, INSTANCE)


def replaced(instance: Instance) -> Instance:
    """A later Instance of the same name."""
    metadata = msgspec.structs.replace(instance.metadata, uid="another")
    return msgspec.structs.replace(instance, metadata=metadata)


def among(*instances: Instance) -> Callable[[Ref], Instance | None]:
    return {ref_of(instance): instance for instance in instances}.get


OWN = a_server(instance_tag(FIRST), owner=owned_by(FIRST), label=FIRST.metadata.uid)

CHAIN = [
    (a_server(instance_tag(FIRST)), Match.HIT),
    (a_server(None, owner=owned_by(FIRST)), Match.HIT_BY_OWNER),
    (a_server("junk", owner=owned_by(FIRST)), Match.HIT_BY_OWNER),
    (a_server(None, label=FIRST.metadata.uid), Match.HIT_BY_LABEL),
    (a_server("junk", label=FIRST.metadata.uid), Match.HIT_BY_LABEL),
    (a_server(None), Match.HIT_BY_NAME),
]


@pytest.mark.parametrize(
    ("server", "match"), CHAIN, ids=[f"{n}-{m}" for n, (_, m) in enumerate(CHAIN)]
)
def test_each_step_of_the_chain_finds_the_instance(server: Server, match: Match) -> None:
    assert find_owner(server, among(FIRST, SECOND), [server]).match is match
    assert belongs(server, FIRST)
    assert refs_to_reconcile(server, lambda _ref: True) == [ref_of(FIRST)]


def test_the_tag_comes_first() -> None:
    assert [claim.match for claim in claims_of(OWN)] == [
        Match.HIT,
        Match.HIT_BY_OWNER,
        Match.HIT_BY_LABEL,
    ]
    assert find_owner(OWN, among(FIRST), [OWN]).match is Match.HIT


def test_a_tag_of_an_instance_that_is_gone_gives_way_to_the_owner() -> None:
    server = a_server("default/web-dfw-0/gone", owner=owned_by(FIRST))
    assert find_owner(server, among(FIRST), [server]).match is Match.HIT_BY_OWNER
    assert belongs(server, FIRST)


def test_an_owner_of_another_kind_is_no_step_of_the_chain() -> None:
    server = a_server(None, owner=owner_reference(a_deployment(), DEPLOYMENT))
    assert find_owner(server, among(FIRST), [server]).match is Match.HIT_BY_NAME


@pytest.mark.parametrize("tag", MALFORMED)
def test_a_server_that_names_nothing_and_whose_name_nobody_has_is_reported(tag: str | None) -> None:
    owner = find_owner(a_server(tag), among(), [])
    assert owner.match is Match.MISSING_TAG
    assert "default/web-dfw-0" in owner.message


def test_an_instance_that_does_not_exist_is_reported() -> None:
    owner = find_owner(OWN, among(), [OWN])
    assert owner.match is Match.UNKNOWN_OWNER
    assert FIRST.metadata.uid in owner.message


EARLIER = [
    a_server(instance_tag(FIRST)),
    a_server(None, owner=owned_by(FIRST)),
    a_server(None, label=FIRST.metadata.uid),
    OWN,
]


@pytest.mark.parametrize("server", EARLIER, ids=["tag", "owner", "label", "all"])
def test_the_server_of_an_earlier_instance_of_the_name_is_not_taken_over(server: Server) -> None:
    later = replaced(FIRST)
    assert find_owner(server, among(later), [server]).match is Match.UNKNOWN_OWNER
    assert not belongs(server, later)


def test_a_tag_that_names_another_instance_is_ambiguous_and_takes_nothing_away() -> None:
    server = a_server(instance_tag(SECOND), owner=owned_by(FIRST), label=FIRST.metadata.uid)
    owner = find_owner(server, among(FIRST, SECOND), [server])
    assert owner.match is Match.AMBIGUOUS
    assert str(ref_of(FIRST)) in owner.message
    assert str(ref_of(SECOND)) in owner.message
    assert belongs(server, FIRST)
    assert refs_to_reconcile(server, lambda _ref: True) == [ref_of(SECOND), ref_of(FIRST)]


def test_the_instance_of_the_servers_name_keeps_it_whatever_else_the_server_names() -> None:
    server = a_server(instance_tag(SECOND))
    assert belongs(server, FIRST)
    assert refs_to_reconcile(server, lambda _ref: True) == [ref_of(SECOND), ref_of(FIRST)]


def test_a_server_of_a_name_that_no_instance_has_wakes_only_the_instance_it_names() -> None:
    twin = a_server(instance_tag(FIRST), name="twin")
    assert refs_to_reconcile(twin, lambda ref: ref == ref_of(FIRST)) == [ref_of(FIRST)]


def test_two_servers_of_one_instance_are_reported_by_name() -> None:
    second = a_server(instance_tag(FIRST), label=FIRST.metadata.uid, name="copy")
    owner = find_owner(OWN, among(FIRST), [OWN, second])
    assert owner.match is Match.DUPLICATE
    assert "default/copy" in owner.message


def test_only_the_steps_of_the_chain_are_hits() -> None:
    hits = [Match.HIT, Match.HIT_BY_OWNER, Match.HIT_BY_LABEL, Match.HIT_BY_NAME]
    assert [match for match in Match if match.is_hit] == hits
