"""Records: building from decoded metadata and decoding from bytes give the same record."""

from __future__ import annotations

import gc

import pytest

from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import build_record, decode_record
from datum_compute.store.watch_log import StoreEvent

KEY = ObjectKey("things.example.com", "default", "one")
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "its-owner", "uid": "o-1"}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"name": "one", "uid": "u-1"},
        {"name": "one", "uid": "u-1", "labels": {"tier": "front"}, "annotations": {"a": "b"}},
        {"name": "one", "ownerReferences": [OWNER, {**OWNER, "uid": "o-2", "controller": True}]},
        {"name": "one", "ownerReferences": [{"name": "without-uid"}], "finalizers": ["f", "g"]},
        {"name": "one", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]},
    ],
)
def test_a_record_built_from_metadata_equals_the_record_decoded_from_the_body(
    metadata: JsonObject,
) -> None:
    body = encode({"metadata": metadata, "spec": {"size": 3}})
    assert build_record(KEY, 7, body, metadata) == decode_record(KEY, 7, body)


def test_the_garbage_collector_does_not_traverse_records_and_events() -> None:
    record = build_record(ObjectKey("configmaps", "default", "a"), 1, b"{}", {"labels": {"a": "b"}})
    event = StoreEvent(1, False, record, None)
    assert not gc.is_tracked(record)
    assert not gc.is_tracked(event)
