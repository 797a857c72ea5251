"""Requests of each verb, and the errors that their responses raise."""

from __future__ import annotations

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import Cause, Conflict, Expired, InternalError, Invalid, NotFound
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE
from datum_compute.api.meta.codec import decode
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.server.encoding.responses import error_response
from tests.client.replay_transport import (
    ReplayTransport,
    event,
    json_response,
    list_response,
    namespace,
    status,
    stream,
)

A = Ref("", "a")


async def test_a_list_is_read_page_by_page_at_the_version_of_the_first() -> None:
    transport = ReplayTransport(
        list_response(5, namespace("a", 1), **{"continue": "t1"}),
        list_response(5, namespace("b", 2), **{"continue": "t2"}),
        list_response(5, namespace("c", 3)),
    )
    found = await transport.client().list(NAMESPACE, labels={"x": "1", "b": "2"}, page_size=1)
    assert [item.metadata.name for item in found.items] == ["a", "b", "c"]
    assert found.version == "5"
    selector = {"labelSelector": "b=2,x=1", "limit": "1"}
    assert [r.query for r in transport.requests] == [
        selector,
        {**selector, "continue": "t1"},
        {**selector, "continue": "t2"},
    ]


async def test_all_pages_are_read_if_the_server_limits_the_page_size() -> None:
    transport = ReplayTransport(
        list_response(5, namespace("a", 1), **{"continue": "t"}), list_response(5)
    )
    assert len((await transport.client().list_plain(NAMESPACE)).items) == 1
    assert len(transport.requests) == 2


async def test_a_list_whose_pages_expire_twice_is_read_without_a_page_size() -> None:
    first = list_response(5, namespace("a", 1), **{"continue": "t"})
    expired = status(410, "Expired")
    transport = ReplayTransport(first, expired, first, expired, list_response(9, namespace("b", 8)))
    found = await transport.client().list(NAMESPACE, page_size=1)
    assert [item.metadata.name for item in found.items] == ["b"]
    assert found.version == "9"
    assert "limit" not in transport.requests[-1].query


async def test_null_items_are_an_empty_list() -> None:
    transport = ReplayTransport(
        json_response({"items": None, "metadata": {"resourceVersion": "5"}})
    )
    assert (await transport.client().list(NAMESPACE)).items == []


async def test_apply_sends_the_object_and_its_field_manager() -> None:
    transport = ReplayTransport(json_response(namespace("a", 5)), json_response(namespace("a", 6)))
    wanted = Namespace(metadata=ObjectMeta(name="a", labels={"x": "1"}))
    client = transport.client()
    applied = await client.apply(NAMESPACE, wanted, manager="tests")
    assert applied.metadata.resource_version == "5"
    await client.apply(NAMESPACE, wanted, manager="tests", force=True, dry_run=True)
    first, second = transport.requests
    assert (first.method, first.path) == ("PATCH", "/planes/hub/api/v1/namespaces/a")
    assert first.headers["content-type"] == "application/apply-patch+yaml"
    assert first.query == {"fieldManager": "tests"}
    assert second.query == {"fieldManager": "tests", "force": "true", "dryRun": "All"}
    body = decode(first.body)
    assert (body["apiVersion"], body["kind"]) == ("v1", "Namespace")
    assert body["metadata"] == {"name": "a", "labels": {"x": "1"}}


async def test_the_conflict_of_an_apply_contains_the_paths_of_the_fields() -> None:
    refused = json_response(
        {
            "code": 409,
            "reason": "Conflict",
            "message": "1 conflict",
            "details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec.x"}]},
        },
        409,
    )
    client = ReplayTransport(refused).client()
    with pytest.raises(Conflict) as caught:
        await client.apply_plain(NAMESPACE, namespace("a", 1), manager="t")
    assert [cause.field for cause in caught.value.causes] == [".spec.x"]


async def test_a_list_is_sent_as_json_patch_and_an_object_as_merge_patch() -> None:
    transport = ReplayTransport(json_response(namespace("a", 5)), json_response(namespace("a", 6)))
    client = transport.client()
    await client.patch(NAMESPACE, A, [{"op": "remove", "path": "/metadata/labels/x"}])
    await client.patch_plain(NAMESPACE, A, {"metadata": {"labels": None}})
    assert [r.headers["content-type"] for r in transport.requests] == [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]


async def test_a_status_patch_contains_the_observed_version() -> None:
    transport = ReplayTransport(json_response(namespace("a", 5)))
    await transport.client().patch_status(NAMESPACE, A, {"phase": "Active"}, version="4")
    (request,) = transport.requests
    assert request.path.endswith("/namespaces/a/status")
    assert decode(request.body) == {
        "metadata": {"resourceVersion": "4"},
        "status": {"phase": "Active"},
    }


async def test_an_update_contains_the_observed_version() -> None:
    transport = ReplayTransport(json_response(namespace("a", 5)), json_response(namespace("a", 6)))
    client = transport.client()
    read = await client.get(NAMESPACE, A)
    assert (await client.update(NAMESPACE, read)).metadata.resource_version == "6"
    assert transport.requests[1].method == "PUT"
    assert decode(transport.requests[1].body)["metadata"]["resourceVersion"] == "5"


async def test_a_delete_can_require_the_uid_of_the_object() -> None:
    transport = ReplayTransport(json_response({}))
    await transport.client().delete(NAMESPACE, A, uid="u", version="4")
    assert decode(transport.requests[0].body) == {
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "4"},
    }


async def test_a_plain_watch_keeps_unknown_fields() -> None:
    added = event("ADDED", {**namespace("a", 7), "unknown": 1})
    transport = ReplayTransport(stream(added, lives_s=0))
    events = [e async for e in transport.client().watch_plain(NAMESPACE, "5")]
    assert [(e.type, e.version, e.object) for e in events] == [
        ("ADDED", "7", {**namespace("a", 7), "unknown": 1})
    ]


async def test_a_watch_raises_the_error_of_an_error_event() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Gone", "message": "old"})
    with pytest.raises(Expired, match="old"):
        await anext(ReplayTransport(stream(gone)).client().watch(NAMESPACE, "5"))


async def test_a_watch_response_without_a_stream_is_an_error() -> None:
    with pytest.raises(InternalError, match="instead of a stream"):
        await anext(ReplayTransport(list_response(5)).client().watch(NAMESPACE, "5"))


async def test_an_invalid_response_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="cannot decode the response"):
        await ReplayTransport(json_response([1])).client().get(NAMESPACE, A)


async def test_a_name_with_a_slash_does_not_change_the_path() -> None:
    transport = ReplayTransport(status(404, "NotFound"))
    with pytest.raises(NotFound):
        await transport.client().get(NAMESPACE, Ref("", "../secrets?x=1"))
    assert transport.requests[0].path == "/planes/hub/api/v1/namespaces/..%2Fsecrets%3Fx%3D1"


@pytest.mark.parametrize(
    ("field", "raised"), [("metadata.uid", Conflict), ("metadata.labels", Invalid)]
)
async def test_an_invalid_uid_in_the_response_to_a_patch_is_a_conflict(
    field: str, raised: type[Exception]
) -> None:
    async def reject(_request: Request) -> Response:
        cause = Cause(field, "FieldValueInvalid", "Invalid value: field is immutable")
        return error_response(Invalid("is invalid", causes=[cause]))

    client = Client(InProcessTransport(reject), prefix="", token="", agent="test")
    with pytest.raises(raised):
        await client.patch(CONFIG_MAP, Ref("default", "one"), {"metadata": {"uid": "other"}})


async def test_each_warning_of_a_response_is_reported() -> None:
    response = json_response({"metadata": {"name": "a"}})
    header = '299 - "the type is deprecated", 299 - "a \\"quoted\\" name"'
    warned: list[str] = []
    transport = ReplayTransport(Response(200, response.body, headers={"warning": header}))
    client = Client(transport, prefix="", token="", agent="test", on_warning=warned.append)
    await client.get(NAMESPACE, A)
    assert warned == ["the type is deprecated", 'a "quoted" name']
