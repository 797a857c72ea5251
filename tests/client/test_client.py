"""What each verb sends, and what becomes of the answers."""

from __future__ import annotations

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import Conflict, Expired, InternalError, NotFound
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.codec import decode
from datum_compute.api.meta.objects import ObjectMeta, Ref
from tests.client.recorded import Recorded, answer, event, listed, namespace, status, stream

A = Ref("", "a")


async def test_a_list_is_read_page_by_page_at_the_version_of_the_first() -> None:
    transport = Recorded(
        listed(5, namespace("a", 1), **{"continue": "t1"}),
        listed(5, namespace("b", 2), **{"continue": "t2"}),
        listed(5, namespace("c", 3)),
    )
    found = await transport.client().list(NAMESPACE, labels={"x": "1", "b": "2"}, page_size=1)
    assert [item.metadata.name for item in found.items] == ["a", "b", "c"]
    assert found.version == "5"
    selector = {"labelSelector": "b=2,x=1", "limit": "1"}
    assert [r.query for r in transport.asked] == [
        selector,
        {**selector, "continue": "t1"},
        {**selector, "continue": "t2"},
    ]


async def test_pages_that_a_server_cuts_unasked_are_read_as_well() -> None:
    transport = Recorded(listed(5, namespace("a", 1), **{"continue": "t"}), listed(5))
    assert len((await transport.client().list_plain(NAMESPACE)).items) == 1
    assert len(transport.asked) == 2


async def test_a_list_whose_pages_expire_begins_again_and_at_last_asks_for_all_at_once() -> None:
    first = listed(5, namespace("a", 1), **{"continue": "t"})
    expired = status(410, "Expired")
    transport = Recorded(first, expired, first, expired, listed(9, namespace("b", 8)))
    found = await transport.client().list(NAMESPACE, page_size=1)
    assert [item.metadata.name for item in found.items] == ["b"]
    assert found.version == "9"
    assert "limit" not in transport.asked[-1].query


async def test_a_list_of_nothing_may_say_null() -> None:
    transport = Recorded(answer({"items": None, "metadata": {"resourceVersion": "5"}}))
    assert (await transport.client().list(NAMESPACE)).items == []


async def test_apply_sends_the_whole_intent_with_its_manager() -> None:
    transport = Recorded(answer(namespace("a", 5)), answer(namespace("a", 6)))
    wanted = Namespace(metadata=ObjectMeta(name="a", labels={"x": "1"}))
    client = transport.client()
    applied = await client.apply(NAMESPACE, wanted, manager="tests")
    assert applied.metadata.resource_version == "5"
    await client.apply(NAMESPACE, wanted, manager="tests", force=True, dry_run=True)
    first, second = transport.asked
    assert (first.method, first.path) == ("PATCH", "/planes/hub/api/v1/namespaces/a")
    assert first.headers["content-type"] == "application/apply-patch+yaml"
    assert first.query == {"fieldManager": "tests"}
    assert second.query == {"fieldManager": "tests", "force": "true", "dryRun": "All"}
    body = decode(first.body)
    assert (body["apiVersion"], body["kind"]) == ("v1", "Namespace")
    assert body["metadata"] == {"name": "a", "labels": {"x": "1"}}


async def test_fields_that_others_hold_make_apply_a_conflict_with_their_paths() -> None:
    refused = answer(
        {
            "code": 409,
            "reason": "Conflict",
            "message": "1 conflict",
            "details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec.x"}]},
        },
        409,
    )
    with pytest.raises(Conflict) as caught:
        await Recorded(refused).client().apply_plain(NAMESPACE, namespace("a", 1), manager="t")
    assert [cause.field for cause in caught.value.causes] == [".spec.x"]


async def test_a_list_is_sent_as_json_patch_and_an_object_as_merge_patch() -> None:
    transport = Recorded(answer(namespace("a", 5)), answer(namespace("a", 6)))
    client = transport.client()
    await client.patch(NAMESPACE, A, [{"op": "remove", "path": "/metadata/labels/x"}])
    await client.patch_plain(NAMESPACE, A, {"metadata": {"labels": None}})
    assert [r.headers["content-type"] for r in transport.asked] == [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]


async def test_a_status_is_patched_at_the_version_it_was_decided_on() -> None:
    transport = Recorded(answer(namespace("a", 5)))
    await transport.client().patch_status(NAMESPACE, A, {"phase": "Active"}, version="4")
    (request,) = transport.asked
    assert request.path.endswith("/namespaces/a/status")
    assert decode(request.body) == {
        "metadata": {"resourceVersion": "4"},
        "status": {"phase": "Active"},
    }


async def test_update_replaces_at_the_version_it_was_read() -> None:
    transport = Recorded(answer(namespace("a", 5)), answer(namespace("a", 6)))
    client = transport.client()
    read = await client.get(NAMESPACE, A)
    assert (await client.update(NAMESPACE, read)).metadata.resource_version == "6"
    assert transport.asked[1].method == "PUT"
    assert decode(transport.asked[1].body)["metadata"]["resourceVersion"] == "5"


async def test_delete_may_be_bound_to_one_very_object() -> None:
    transport = Recorded(answer({}))
    await transport.client().delete(NAMESPACE, A, uid="u", version="4")
    assert decode(transport.asked[0].body) == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "4"},
    }


async def test_a_plain_watch_keeps_fields_that_no_model_knows() -> None:
    added = event("ADDED", {**namespace("a", 7), "unknown": 1})
    transport = Recorded(stream(added, lives_s=0))
    events = [e async for e in transport.client().watch_plain(NAMESPACE, "5")]
    assert [(e.type, e.version, e.object) for e in events] == [
        ("ADDED", "7", {**namespace("a", 7), "unknown": 1})
    ]


async def test_a_watch_raises_the_error_it_is_sent() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Gone", "message": "old"})
    with pytest.raises(Expired, match="old"):
        await anext(Recorded(stream(gone)).client().watch(NAMESPACE, "5"))


async def test_a_watch_that_is_answered_with_a_body_is_an_error() -> None:
    with pytest.raises(InternalError, match="instead of a stream"):
        await anext(Recorded(listed(5)).client().watch(NAMESPACE, "5"))


async def test_an_answer_that_cannot_be_read_is_an_error_of_the_server() -> None:
    with pytest.raises(InternalError, match="cannot be read"):
        await Recorded(answer([1])).client().get(NAMESPACE, A)


async def test_a_name_cannot_lead_to_another_path() -> None:
    transport = Recorded(status(404, "NotFound"))
    with pytest.raises(NotFound):
        await transport.client().get(NAMESPACE, Ref("", "../secrets?x=1"))
    assert transport.asked[0].path == "/planes/hub/api/v1/namespaces/..%2Fsecrets%3Fx%3D1"
