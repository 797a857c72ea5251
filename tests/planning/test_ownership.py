"""The way back from a Server to its Instance: one, none or many, and never silence."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.server import Server, ServerSpec
from datum_compute.planning.ownership import Match, find_owner, instance_tag, tag_of
from datum_compute.testing.builders import a_template, an_instance

INSTANCE = an_instance(0)


def a_server(tag: str | None, name: str = "web-dfw-0") -> Server:
    return Server(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ServerSpec(
            instance_type="d1-standard-2",
            template_hash="abc",
            containers=a_template().spec.runtime.sandbox.containers,
            tags={} if tag is None else {labels.INSTANCE_TAG: tag},
        ),
    )


OWN = a_server(instance_tag(INSTANCE))


def test_the_tag_names_namespace_name_and_uid() -> None:
    tag = tag_of(OWN)
    assert tag is not None
    assert (tag.ref, tag.uid) == (Ref("default", "web-dfw-0"), INSTANCE.metadata.uid)


def test_exactly_one_is_a_hit() -> None:
    assert find_owner(OWN, INSTANCE, [OWN]).match is Match.HIT


@pytest.mark.parametrize("tag", [None, "", "junk", "a/b", "a//c", "/a/b", "a/b/c/d"])
def test_a_tag_that_names_nothing_is_told(tag: str | None) -> None:
    owner = find_owner(a_server(tag), None, [])
    assert owner.match is Match.MISSING_TAG
    assert "default/web-dfw-0" in owner.message


def test_an_instance_that_is_not_there_is_told() -> None:
    assert find_owner(OWN, None, [OWN]).match is Match.UNKNOWN_OWNER


def test_a_later_instance_of_the_same_name_is_not_the_owner() -> None:
    metadata = msgspec.structs.replace(INSTANCE.metadata, uid="another")
    later = msgspec.structs.replace(INSTANCE, metadata=metadata)
    assert find_owner(OWN, later, [OWN]).match is Match.UNKNOWN_OWNER


def test_two_servers_for_one_instance_are_told_by_name() -> None:
    second = a_server(instance_tag(INSTANCE), "copy")
    owner = find_owner(OWN, INSTANCE, [OWN, second])
    assert owner.match is Match.DUPLICATE
    assert "default/copy" in owner.message
