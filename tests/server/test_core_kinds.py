"""Built-in kinds have the rules of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.verbs.delete import EVENT_LIFETIME_S, expire_events
from testkit.api_server.running_server import START_S, InProcessServer, causes

CORE = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
TABLE = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def core(kind: str, name: str, **fields: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def event(name: str = "e", **fields: Any) -> JsonObject:
    about = {"kind": "Workload", "name": "web", "namespace": "default"}
    return core("Event", name, **{"involvedObject": about, "reason": "Started", **fields})


def lease(**spec: Any) -> JsonObject:
    identity = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**identity, "metadata": {"name": "leader"}, "spec": spec}


def role(kind: str, *rules: JsonObject, name: str = "system:reader") -> JsonObject:
    identity = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind}
    return {**identity, "metadata": {"name": name}, "rules": list(rules)}


def binding(**fields: Any) -> JsonObject:
    identity = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
    reference = {"kind": "Role", "name": "reader"}
    return {**identity, "metadata": {"name": "readers"}, "roleRef": reference, **fields}


# --- ConfigMap and Secret


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret", "ServiceAccount", "Event"])
async def test_data_kinds_have_no_generation_and_need_no_version(
    server: InProcessServer, kind: str
) -> None:
    plural = f"{CORE}/{kind.lower()}s"
    obj = event("a") if kind == "Event" else core(kind, "a")
    created = await server.json("POST", plural, obj)
    assert "generation" not in created["metadata"]
    obj["metadata"]["labels"] = {"a": "b"}
    changed = await server.json("PUT", f"{plural}/a", obj)
    assert changed["metadata"]["uid"] == created["metadata"]["uid"]
    assert changed["metadata"]["labels"] == {"a": "b"}


async def test_items_of_built_in_lists_do_not_repeat_their_type(server: InProcessServer) -> None:
    await server.json("POST", f"{CORE}/configmaps", core("ConfigMap", "a", data={"k": "v"}))
    listed = await server.json("GET", f"{CORE}/configmaps")
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "ConfigMapList")
    (item,) = listed["items"]
    assert set(item) == {"metadata", "data"}
    (_, seen) = await (await server.watch(f"{CORE}/configmaps")).next()
    assert (seen["apiVersion"], seen["kind"]) == ("v1", "ConfigMap")


async def test_string_data_is_merged_into_data_and_never_returned(server: InProcessServer) -> None:
    secret = core("Secret", "s", data={"a": "QQ==", "b": "Qg=="}, stringData={"b": "new", "c": ""})
    created = await server.json("POST", f"{CORE}/secrets", secret)
    assert created["data"] == {"a": "QQ==", "b": "bmV3", "c": ""}
    assert created["type"] == "Opaque"
    patched = await server.merge(f"{CORE}/secrets/s", {"stringData": {"a": "x"}})
    assert patched["data"]["a"] == "eA=="
    assert "stringData" not in await server.json("GET", f"{CORE}/secrets/s")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"data": {"a": "topsecret!"}}, "data.a"),
        ({"data": {"a": 4711}}, "data.a"),
        ({"data": "topsecret!"}, "data"),
        ({"stringData": {"a": 4711}}, "stringData.a"),
        ({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "NDcxMSE="}},
         "data[.dockerconfigjson]"),
        ({"type": "kubernetes.io/tls", "data": {"tls.crt": "NDcxMQ=="}}, "data[tls.key]"),
        ({"data": {"a/b": "NDcxMQ=="}}, "data[a/b]"),
    ],
)  # fmt: skip
async def test_errors_about_a_secret_name_the_field_and_never_the_value(
    server: InProcessServer, fields: JsonObject, field: str
) -> None:
    status = await server.status("POST", f"{CORE}/secrets", core("Secret", "s", **fields))
    assert status["code"] == 422
    assert field in causes(status)
    assert "topsecret" not in str(status)
    assert "4711" not in str(status)


async def test_the_type_of_a_secret_is_immutable(server: InProcessServer) -> None:
    await server.json("POST", f"{CORE}/secrets", core("Secret", "s"))
    status = await server.patch_refused(f"{CORE}/secrets/s", {"type": "other"})
    assert causes(status) == {"type": "FieldValueInvalid"}


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
async def test_immutable_protects_the_data_and_itself(server: InProcessServer, kind: str) -> None:
    path = f"{CORE}/{kind.lower()}s"
    await server.json("POST", path, core(kind, "a", data={"k": "Zg=="}, immutable=True))
    for change in ({"data": {"k": "Zw=="}}, {"data": None}, {"immutable": False}):
        status = await server.patch_refused(f"{path}/a", change)
        assert causes(status) == {next(iter(change)): "FieldValueForbidden"}
    assert (await server.merge(f"{path}/a", {"metadata": {"labels": {"a": "b"}}}))["immutable"]


async def test_tables_contain_the_number_of_data_entries(server: InProcessServer) -> None:
    config = core("ConfigMap", "a", data={"k": "v"}, binaryData={"b": "AA=="})
    await server.json("POST", f"{CORE}/configmaps", config)
    table = await server.json("GET", f"{CORE}/configmaps", headers=TABLE)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"] == ["a", 2, "0s"]


# --- events


async def test_both_event_groups_serve_the_same_objects(server: InProcessServer) -> None:
    sent = event(message="up", source={"component": "kubelet"}, count=2, type="Normal")
    old = await server.json("POST", f"{CORE}/events", sent)
    new = await server.json("GET", f"{NEW_EVENTS}/e")
    assert (new["apiVersion"], new["kind"]) == ("events.k8s.io/v1", "Event")
    assert new["metadata"] == old["metadata"]
    assert new["regarding"] == sent["involvedObject"]
    assert (new["note"], new["deprecatedCount"]) == ("up", 2)
    assert new["deprecatedSource"] == {"component": "kubelet"}
    changed = await server.merge(f"{NEW_EVENTS}/e", {"deprecatedCount": 3, "note": "still up"})
    assert changed["apiVersion"] == "events.k8s.io/v1"
    again = await server.json("GET", f"{CORE}/events/e")
    assert (again["apiVersion"], again["count"], again["message"]) == ("v1", 3, "still up")
    await server.json("DELETE", f"{NEW_EVENTS}/e")
    assert (await server.ask("GET", f"{CORE}/events/e")).status == 404


async def test_watches_of_both_groups_see_the_same_events(server: InProcessServer) -> None:
    watches = [await server.watch(f"{CORE}/events"), await server.watch(NEW_EVENTS)]
    await server.json("POST", f"{CORE}/events", event(message="up"))
    (_, old), (_, new) = [await watch.next() for watch in watches]
    assert (old["apiVersion"], old["message"]) == ("v1", "up")
    assert (new["apiVersion"], new["note"]) == ("events.k8s.io/v1", "up")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("involvedObject.name=web", ["a"]),
        ("involvedObject.name=web,involvedObject.kind=Workload,", ["a"]),
        ("reason!=Started", ["b"]),
        ("source=kubelet", ["a"]),
        ("source=robot", ["b"]),
        ("type=Warning", ["b"]),
        ("metadata.name=a,reason=Stopped", []),
        ("reportingComponent=", ["a"]),
    ],
)
async def test_events_are_found_by_their_fields(
    server: InProcessServer, selector: str, names: list[str]
) -> None:
    other = {"kind": "Instance", "name": "i", "namespace": "default"}
    await server.json("POST", f"{CORE}/events", event("a", source={"component": "kubelet"}))
    second = event("b", involvedObject=other, reason="Stopped", type="Warning")
    await server.json("POST", f"{CORE}/events", {**second, "reportingComponent": "robot"})
    found = await server.json("GET", f"{CORE}/events", fieldSelector=selector)
    assert [item["metadata"]["name"] for item in found["items"]] == names
    renamed = selector.replace("involvedObject", "regarding")
    renamed = renamed.replace("reportingComponent", "reportingController")
    found = await server.json("GET", NEW_EVENTS, fieldSelector=renamed)
    assert [item["metadata"]["name"] for item in found["items"]] == names


async def test_an_unknown_field_label_is_400(server: InProcessServer) -> None:
    status = await server.status("GET", f"{CORE}/events", fieldSelector="regarding.name=x")
    assert status["code"] == 400
    assert "regarding.name" in status["message"]


async def test_times_are_normalised(server: InProcessServer) -> None:
    sent = event(
        firstTimestamp="2024-01-02T03:04:05.678901+01:00",
        lastTimestamp="2024-01-02T03:04:05Z",
        eventTime="2024-01-02T03:04:05.5Z",
        reportingComponent="robot",
        reportingInstance="robot-1",
        action="Start",
    )
    created = await server.json("POST", f"{CORE}/events", sent)
    assert created["firstTimestamp"] == "2024-01-02T02:04:05Z"
    assert created["lastTimestamp"] == "2024-01-02T03:04:05Z"
    assert created["eventTime"] == "2024-01-02T03:04:05.500000Z"
    held = await server.json("POST", LEASES, lease(renewTime="2024-01-02T03:04:05+01:00"))
    assert held["spec"]["renewTime"] == "2024-01-02T02:04:05.000000Z"
    status = await server.status("POST", f"{CORE}/events", event("b", firstTimestamp="yesterday"))
    assert causes(status) == {"firstTimestamp": "FieldValueInvalid"}


async def test_an_event_has_the_namespace_of_its_object_and_a_reporter(
    server: InProcessServer,
) -> None:
    elsewhere = {"kind": "Workload", "name": "web", "namespace": "other"}
    status = await server.status("POST", f"{CORE}/events", event(involvedObject=elsewhere))
    assert causes(status) == {"involvedObject.namespace": "FieldValueInvalid"}
    new = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "n"}}
    status = await server.status("POST", NEW_EVENTS, new)
    assert causes(status) == {"eventTime": "FieldValueRequired"}


async def test_events_expire_an_hour_after_they_last_happened(server: InProcessServer) -> None:
    await server.json("POST", f"{CORE}/events", event("old"))
    await server.json("POST", f"{CORE}/events", event("renewed"))
    await server.json(
        "POST", f"{CORE}/events", event("ahead", lastTimestamp="2099-01-01T00:00:00Z")
    )
    await server.merge(f"{CORE}/events/renewed", {"lastTimestamp": "2023-11-14T22:43:20Z"})
    watch = await server.watch(
        f"{CORE}/events", resourceVersion=str(server.store.version("platform"))
    )
    assert await expire_events(server.store, "platform", START_S + EVENT_LIFETIME_S - 1) == 0
    assert await expire_events(server.store, "platform", START_S + EVENT_LIFETIME_S) == 2
    assert await watch.names(2) == [("DELETED", "ahead"), ("DELETED", "old")]
    listed = await server.json("GET", f"{CORE}/events")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["renewed"]


# --- creation by PUT


async def test_a_put_of_a_missing_lease_creates_it_and_later_needs_a_version(
    server: InProcessServer,
) -> None:
    response = await server.ask("PUT", f"{LEASES}/leader", lease(holderIdentity="a"))
    assert response.status == 201
    status = await server.status("PUT", f"{LEASES}/leader", lease(holderIdentity="b"))
    assert causes(status) == {"metadata.resourceVersion": "FieldValueInvalid"}
    found = await server.json("GET", f"{LEASES}/leader")
    assert "generation" not in found["metadata"]
    found["spec"]["holderIdentity"] = "b"
    assert (await server.json("PUT", f"{LEASES}/leader", found))["spec"]["holderIdentity"] == "b"


async def test_a_put_of_a_missing_object_is_404_for_most_kinds(server: InProcessServer) -> None:
    put = await server.status("PUT", f"{CORE}/configmaps/a", core("ConfigMap", "a"))
    assert put["code"] == 404
    assert (await server.ask("PUT", f"{CORE}/events/e", event())).status == 201
    path = f"{RBAC}/namespaces/default/roles/system:reader"
    assert (await server.ask("PUT", path, role("Role"))).status == 201
    wrong = await server.status("PUT", f"{LEASES}/other", lease())
    assert wrong["code"] == 400


@pytest.mark.parametrize("spec", [{"leaseDurationSeconds": 0}, {"leaseTransitions": -1}])
async def test_invalid_numbers_of_a_lease_are_rejected(
    server: InProcessServer, spec: JsonObject
) -> None:
    status = await server.status("POST", LEASES, lease(**spec))
    assert causes(status) == {f"spec.{next(iter(spec))}": "FieldValueInvalid"}


# --- access kinds


async def test_names_of_roles_may_hold_colons(server: InProcessServer) -> None:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
    created = await server.json("POST", f"{RBAC}/clusterroles", role("ClusterRole", rule))
    assert created["rules"] == [rule]
    assert (await server.json("GET", f"{RBAC}/clusterroles/system:reader")) == created
    status = await server.status("POST", f"{RBAC}/clusterroles", role("ClusterRole", name="a%b"))
    assert causes(status) == {"metadata.name": "FieldValueInvalid"}


async def test_rules_are_checked_with_their_paths(server: InProcessServer) -> None:
    path = f"{RBAC}/namespaces/default/roles"
    urls = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    status = await server.status("POST", path, role("Role", {"verbs": []}, urls))
    assert set(causes(status)) == {
        *("rules[0].verbs", "rules[0].apiGroups", "rules[0].resources"),
        "rules[1].nonResourceURLs",
    }
    assert (
        await server.ask("POST", f"{RBAC}/clusterroles", role("ClusterRole", urls))
    ).status == 201


async def test_bindings_get_default_groups_and_their_role_is_immutable(
    server: InProcessServer,
) -> None:
    path = f"{RBAC}/namespaces/default/rolebindings"
    subjects = [
        {"kind": "User", "name": "ada"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
    ]
    created = await server.json("POST", path, binding(subjects=subjects))
    assert created["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    assert created["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    assert "apiGroup" not in created["subjects"][1]
    status = await server.patch_refused(f"{path}/readers", {"roleRef": {"name": "writer"}})
    assert causes(status) == {"roleRef": "FieldValueInvalid"}
    wrong = binding(subjects=[{"kind": "Robot", "name": ""}], roleRef={"kind": "X", "name": "y"})
    assert causes(await server.status("POST", path, wrong)) == {
        "roleRef.kind": "FieldValueNotSupported",
        "subjects[0].name": "FieldValueRequired",
        "subjects[0].kind": "FieldValueNotSupported",
    }
