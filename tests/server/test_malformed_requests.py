"""Malformed requests never cause an internal error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datum_compute.api.http import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    PROTOBUF,
    STRATEGIC_PATCH,
    YAML,
    Request,
)
from datum_compute.api.meta.codec import decode, encode
from testkit.api_server.running_server import (
    COMPUTE,
    PROJECT,
    TOKEN,
    WORKLOADS,
    InProcessServer,
    namespace,
    running_server,
    workload,
)

WEB = f"{WORKLOADS}/web"


@pytest.mark.parametrize(
    ("method", "path", "media_type"),
    [
        ("POST", WORKLOADS, JSON),
        ("PUT", WEB, YAML),
        ("PATCH", WEB, MERGE_PATCH),
        ("PATCH", WEB, JSON_PATCH),
        ("PATCH", WEB, APPLY_PATCH),
        ("DELETE", WEB, JSON),
    ],
)
async def test_a_compressed_body_is_rejected(
    server: InProcessServer, method: str, path: str, media_type: str
) -> None:
    await server.json("POST", WORKLOADS, workload())
    query = {"fieldManager": "test"}
    headers = {"content-type": media_type, "content-encoding": "gzip"}
    answer = await server.ask(method, path, workload("other"), headers=headers, **query)
    assert answer.status == 415
    assert "content encoding 'gzip'" in decode(answer.body)["message"]


async def test_a_body_with_identity_encoding_is_accepted(server: InProcessServer) -> None:
    headers = {"content-type": JSON, "content-encoding": "identity"}
    assert (await server.ask("POST", WORKLOADS, workload(), headers=headers)).status == 201


def nested(depth: int) -> bytes:
    return b'{"spec":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"1",
        b'"text"',
        b"\xff\xfe",
        b"\x00",
        b'{"a":1}{"b":2}',
        b"{'a':1}",
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"k8s\x00\x0a",
        nested(65),
        nested(2000),
        b"[" * 100_000,
        b'{"metadata":null}',
        b'{"apiVersion":{},"kind":[]}',
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_body_of_the_wrong_type_is_400(
    server: InProcessServer, method: str, body: bytes
) -> None:
    await server.json("POST", WORKLOADS, workload())
    path = WORKLOADS if method == "POST" else WEB
    headers = {"content-type": MERGE_PATCH if method == "PATCH" else JSON}
    response = await server.ask(method, path, body, headers=headers)
    harmless = (method == "DELETE" and body in (b"", b'{"metadata":null}')) or (
        method == "DELETE" and body.startswith(b'{"spec"') and len(body) < 1000
    )
    assert response.status == 400 or harmless, response.body
    assert response.status in (200, 400)


@pytest.mark.parametrize(
    "metadata",
    [
        5,
        [],
        "x",
        {"name": 5},
        {"name": ["web"]},
        {"name": "web", "labels": []},
        {"name": "web", "labels": {"a": 1}},
        {"name": "web", "labels": {"a": None}},
        {"name": "web", "annotations": {"a": {}}},
        {"name": "web", "finalizers": "x"},
        {"name": "web", "finalizers": [1]},
        {"name": "web", "ownerReferences": {}},
        {"name": "web", "ownerReferences": [{}]},
        {"name": "web", "ownerReferences": [None]},
        {"name": "web", "generation": "1"},
        {"name": "web", "uid": 1},
        {"name": "web", "resourceVersion": 1},
        {"name": "web", "creationTimestamp": 1},
        {"name": "web", "generateName": 1},
    ],
)
async def test_metadata_of_the_wrong_type_is_400_with_the_field(
    server: InProcessServer, metadata: Any
) -> None:
    status = await server.status("POST", WORKLOADS, {**workload(), "metadata": metadata})
    assert status["code"] == 400
    assert "metadata" in status["message"]


async def test_numbers_beyond_64_bits_are_no_internal_error(server: InProcessServer) -> None:
    for number in ("18446744073709551616", "-9223372036854775809", "1e300", "123456789" * 30):
        body = encode(workload()).replace(b'"minReplicas":1', b'"minReplicas":' + number.encode())
        assert (await server.ask("POST", WORKLOADS, body)).status in (400, 422)


async def test_a_path_or_query_with_surrogates_is_400(server: InProcessServer) -> None:
    assert (await server.status("GET", f"{WORKLOADS}/\ud800"))["code"] == 400
    assert (await server.status("GET", WORKLOADS, labelSelector="\udfff"))["code"] == 400
    headers = {"content-type": "\ud800"}
    assert (await server.status("POST", WORKLOADS, workload(), headers=headers))["code"] == 400


VALUES = [
    *("", "0", "1", "-1", "true", "x", "All", "Exact", "NotOlderThan", "Strict", "Warn", "9" * 40),
    *("1e9", "\u0661", "\x00", "a=b", "!a", "a in (b)", "metadata.name=web", ",", "=", "("),
    *("Object", "Orphan", "Background", "\u2028", "%ff", "e30", "1 OR 1"),
]
PARAMETERS = [
    *("watch", "resourceVersion", "resourceVersionMatch", "limit", "continue", "labelSelector"),
    *("fieldSelector", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents", "dryRun"),
    *("fieldValidation", "propagationPolicy", "gracePeriodSeconds", "includeObject", "pretty"),
    *("fieldManager", "orphanDependents", "force"),
]
SEGMENTS = [
    *("", "api", "apis", "v1", "v1alpha", "compute.datumapis.com", "cluster.karmada.io"),
    *("namespaces", "default", "workloads", "clusters", "web", "status", "finalize", "openapi"),
    *("v3", "planes", "hub", "cells", "dfw", "..", ".", "%2e", "a/b", "\u00e9", "x" * 300),
    "healthz",
]
ACCEPTS = [
    *("", "*/*", JSON, ";;;", ",", "a/b;q=x", "application/json;q=nan", "application/yaml"),
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
]
CONTENT_TYPES = [
    *(JSON, MERGE_PATCH, JSON_PATCH, APPLY_PATCH, STRATEGIC_PATCH, YAML, PROTOBUF, "", ";"),
    "application/apply-patch+cbor",
]
PATHS = [
    WORKLOADS,
    WEB,
    f"{WEB}/status",
    f"{COMPUTE}/workloads",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/default/finalize",
    "/apis/cluster.karmada.io/v1alpha1/clusters",
    "/apis/cluster.karmada.io/v1alpha1/clusters/web",
    f"{PROJECT}{WORKLOADS}",
    "/apis",
    "/openapi/v3",
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["web", "default", "Workload", "add", "test", "/metadata/labels", "/spec", ""]),
    st.sampled_from(["Apply", "Update", "FieldsV1", "delete", "replace", "v1"]),
)
FIELDS = [
    *("metadata", "name", "labels", "annotations", "finalizers", "spec", "status", "kind"),
    *("apiVersion", "resourceVersion", "uid", "op", "path", "value", "from", "placements"),
    *("template", "cityCodes", "ownerReferences", "preconditions", "dryRun", "conditions"),
    *("managedFields", "manager", "operation", "fieldsType", "fieldsV1", "f:spec", "k:{}", "."),
    *("$patch", "$retainKeys", "$setElementOrder/finalizers", "$deleteFromPrimitiveList/x"),
]
keys = st.sampled_from(FIELDS) | st.text(max_size=5)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)


@st.composite
def mutated_objects(draw: st.DrawFn) -> Any:
    """A valid object with some values replaced."""
    obj: Any = draw(st.sampled_from([workload(), namespace("web")]))
    obj = decode(encode(obj))
    for _ in range(draw(st.integers(1, 3))):
        place = obj
        while isinstance(place, dict | list) and place:
            key = draw(
                st.sampled_from(list(place) if isinstance(place, dict) else range(len(place)))
            )
            if not isinstance(place[key], dict | list) or draw(st.booleans()):
                place[key] = draw(documents)
                break
            place = place[key]
    return obj


bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=40),
    st.binary(max_size=60).map(lambda body: b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace" + body),
    mutated_objects().map(lambda obj: yaml.safe_dump(obj).encode()),
    documents.map(encode),
    mutated_objects().map(encode),
    st.lists(
        st.fixed_dictionaries(
            {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])},
            optional={"path": documents, "from": documents, "value": documents},
        ),
        max_size=4,
    ).map(encode),
)
requests = st.builds(
    Request,
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "X"]),
    path=st.one_of(
        st.sampled_from(PATHS),
        st.sampled_from(PATHS),
        st.lists(st.sampled_from(SEGMENTS), max_size=8).map(lambda parts: "/" + "/".join(parts)),
        st.text(max_size=20),
    ),
    query=st.dictionaries(
        st.sampled_from(PARAMETERS), st.sampled_from(VALUES) | st.text(max_size=10), max_size=4
    ),
    headers=st.fixed_dictionaries(
        {
            "authorization": st.just(f"Bearer {TOKEN}"),
            "accept": st.sampled_from(ACCEPTS),
            "content-type": st.sampled_from(CONTENT_TYPES),
        }
    ),
    body=bodies,
)


async def check_all(todo: list[Request]) -> None:
    async with running_server() as server:
        await server.json("POST", WORKLOADS, workload())
        for request in todo:
            response = await server.api.dispatch(request)
            # Kubernetes also responds with 504 to a future version.
            ahead = response.status == 504 and "resourceVersion" in request.query
            assert response.status < 500 or ahead, (request, response.body)
            if response.status >= 400 and response.content_type == JSON:
                assert decode(response.body)["kind"] == "Status"
        for key in ("workloads.compute.datumapis.com", "namespaces"):
            for record in server.store.snapshot("platform", key).records:
                stored = decode(record.body)["metadata"]
                assert (stored["name"], stored["resourceVersion"]) == (
                    record.key.name,
                    str(record.version),
                )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests, min_size=1, max_size=6))
def test_random_requests_cause_no_internal_error(todo: list[Request]) -> None:
    asyncio.run(check_all(todo))
