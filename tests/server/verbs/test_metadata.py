"""Metadata of a request: the fast path has the same result as the full check."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json, to_json
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.server.verbs.metadata import read_metadata

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}
FLAGS: tuple[JsonObject, ...] = (
    {},
    {"controller": True},
    {"controller": True, "blockOwnerDeletion": True},
)
ODD = st.sampled_from([None, 0, 1, False, True, "", "a", [], ["a"], {}, {"a": "b"}, {"a": 1}])
OWNERS = st.one_of(
    st.sampled_from([{**OWNER, **flags} for flags in FLAGS]),
    st.sampled_from([{**flags, **OWNER} for flags in FLAGS]),
    st.builds(lambda name, odd: {**OWNER, name: odd}, st.sampled_from([*OWNER, "controller"]), ODD),
    st.builds(
        lambda name: {k: v for k, v in OWNER.items() if k != name}, st.sampled_from([*OWNER])
    ),
    ODD,
)
SENT = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", ""])},
    optional={
        "labels": ODD,
        "finalizers": st.lists(st.sampled_from(["example.com/a", "", 1, None]), max_size=2) | ODD,
        "ownerReferences": st.lists(OWNERS, max_size=2) | ODD,
        "generateName": ODD,
    },
)
OF_CALLER = ("generateName", "labels", "annotations", "ownerReferences", "finalizers")


def parse_with_model(sent: JsonObject) -> Any:
    try:
        found = to_json(from_json({n: v for n, v in sent.items() if v is not None}, ObjectMeta))
    except DecodeError:
        return None
    return json.dumps({name: found[name] for name in OF_CALLER if name in found})


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=SENT)
def test_owners_and_finalizers_are_parsed_as_by_their_model(sent: JsonObject) -> None:
    expected = parse_with_model(sent)
    try:
        found = json.dumps(read_metadata({"metadata": sent}).fields)
    except BadRequest:
        found = None
    assert found == expected
