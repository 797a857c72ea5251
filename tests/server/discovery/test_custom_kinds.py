"""Custom kinds: definitions are established, and objects are validated, defaulted and pruned."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.access.authentication import MASTERS, StaticTokens, User
from datum_compute.server.api_server import ApiServer
from datum_compute.server.options import AuthenticationOptions, ServerEnvironment
from datum_compute.store.store import Store
from testkit.api_server.definitions import (
    DEFINITIONS,
    SPEC,
    WIDGETS,
    conditions,
    define,
    definition,
    objects,
    replace_definition,
    version,
    widget,
    with_schema,
)
from testkit.api_server.running_server import (
    PROJECT,
    TOKEN,
    Clock,
    InProcessServer,
    SequentialIds,
    causes,
    running_server,
)

TABLE = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
AGGREGATED = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
STATUS: JsonObject = {"subresources": {"status": {}}}


# --- the definition


async def test_a_definition_is_established_at_once_and_its_kind_served(
    server: InProcessServer,
) -> None:
    assert (await server.ask("GET", WIDGETS)).body == b"404 page not found\n"
    created = await define(server, definition())
    assert conditions(created) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert created["status"]["storedVersions"] == ["v1"]
    names = {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"}
    assert created["status"]["acceptedNames"] == created["spec"]["names"] == names
    assert created["spec"]["conversion"] == {"strategy": "None"}
    assert created["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    made = await server.json("POST", WIDGETS, widget())
    assert made["spec"] == {"color": "red"}
    assert made["metadata"]["generation"] == 1
    assert (await server.json("GET", WIDGETS))["kind"] == "WidgetList"


async def test_users_cannot_write_the_status_of_a_definition(server: InProcessServer) -> None:
    created = await define(server, definition())
    path = f"{DEFINITIONS}/widgets.example.com"
    forged = {"status": {"conditions": [], "acceptedNames": {"plural": "x", "kind": "X"}}}
    assert await server.merge(f"{path}/status", forged) == created


async def test_custom_kinds_are_part_of_discovery_and_openapi(server: InProcessServer) -> None:
    before = await server.json("GET", "/openapi/v3")
    names = {"shortNames": ["wd"], "categories": ["all"], "singular": "wid"}
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    schema = objects(spec=SPEC, status=objects(size={"type": "integer"}))
    both = version(schema=schema, subresources={"status": {}, "scale": scale})
    await define(server, definition(both, names=names))
    listed = await server.json("GET", "/apis/example.com/v1")
    found = {resource["name"]: resource for resource in listed["resources"]}
    assert set(found) == {"widgets", "widgets/status", "widgets/scale"}
    assert found["widgets"]["shortNames"] == ["wd"]
    assert found["widgets"]["categories"] == ["all"]
    assert found["widgets"]["singularName"] == "wid"
    assert (found["widgets/scale"]["group"], found["widgets/scale"]["kind"]) == (
        "autoscaling",
        "Scale",
    )
    groups = await server.json("GET", "/apis", headers=AGGREGATED)
    assert "example.com" in [item["metadata"]["name"] for item in groups["items"]]
    after = await server.json("GET", "/openapi/v3")
    added = set(after["paths"]) - set(before["paths"])
    assert added == {"apis/example.com/v1"}
    assert before["paths"].items() <= after["paths"].items()
    first = after["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    document = await server.json("GET", "/openapi/v3/apis/example.com/v1")
    properties = document["components"]["schemas"]["com.example.v1.Widget"]["properties"]
    assert properties["spec"]["properties"]["color"]["enum"] == ["red", "blue"]
    await replace_definition(server, definition(version()))
    index = await server.json("GET", "/openapi/v3")
    assert index["paths"]["apis/example.com/v1"]["serverRelativeURL"] != first


async def test_names_in_use_are_not_accepted_and_the_kind_is_not_served(
    server: InProcessServer,
) -> None:
    await define(server, definition(names={"shortNames": ["wd"]}))
    second = definition(kind="Gadget", names={"kind": "Widget", "singular": "gadget"})
    created = await define(server, second)
    assert conditions(created) == {
        "NamesAccepted": ("False", "KindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert created["status"]["acceptedNames"] == {"plural": "", "kind": ""}
    assert (await server.ask("GET", "/apis/example.com/v1/gadgets")).status == 404
    third = await define(server, definition(kind="Wheel", names={"shortNames": ["wd"]}))
    assert conditions(third)["NamesAccepted"] == ("False", "ShortNamesConflict")
    elsewhere = await define(server, definition(group="other.example.com"))
    assert conditions(elsewhere)["Established"][0] == "True"
    changed = await replace_definition(server, definition(kind="Gadget"))
    assert conditions(changed)["Established"][0] == "True"
    assert (await server.ask("GET", "/apis/example.com/v1/gadgets")).status == 200


async def test_a_definition_cannot_replace_a_kind_of_the_platform(server: InProcessServer) -> None:
    taken = definition(version("v2"), kind="Workload", group="compute.datumapis.com")
    response = await server.ask("POST", DEFINITIONS, taken)
    assert response.status == 409 or b'"PluralConflict"' in response.body
    assert (await server.ask("GET", "/apis/compute.datumapis.com/v2/workloads")).status == 404


SCHEMA = "spec.versions[0].schema.openAPIV3Schema"
BAD: list[tuple[JsonObject, str, str]] = [
    ({"group": "nodots"}, "spec.group", "FieldValueInvalid"),
    ({"group": "x.k8s.io"}, "metadata.annotations", "FieldValueRequired"),
    ({"scope": "Galaxy"}, "spec.scope", "FieldValueNotSupported"),
    ({"names": {"kind": "9"}}, "spec.names.kind", "FieldValueInvalid"),
    ({"versions": []}, "spec.versions", "FieldValueInvalid"),
    ({"versions": [version(storage=False)]}, "spec.versions", "FieldValueInvalid"),
    ({"versions": [version(), version()]}, "spec.versions[1].name", "FieldValueDuplicate"),
    ({"versions": [version(schema={})]}, SCHEMA, "FieldValueRequired"),
    ({"conversion": {"strategy": "Webhook"}}, "spec.conversion.strategy", "FieldValueNotSupported"),
    ({"preserveUnknownFields": True}, "spec.preserveUnknownFields", "FieldValueInvalid"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "reason"), BAD)
async def test_an_invalid_definition_is_rejected_with_its_field(
    server: InProcessServer, change: JsonObject, field: str, reason: str
) -> None:
    obj = definition(group=change.get("group", "example.com"))
    names = {**obj["spec"]["names"], **change.get("names", {})}
    obj["spec"] = {**obj["spec"], **change, "names": names}
    if change.get("versions") == [version(schema={})]:
        obj["spec"]["versions"][0]["schema"] = {}
    status = await server.status("POST", DEFINITIONS, obj)
    assert status["code"] == 422
    assert causes(status).get(field) == reason


S = SCHEMA
CEL, LIST_TYPE = "x-kubernetes-validations", "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
A = f"{S}.properties[a]"
NOT_STRUCTURAL: list[tuple[JsonObject, str]] = [
    ({"type": "string"}, f"{S}.type"),
    (objects(a={}), f"{A}.type"),
    (objects(a={"type": "thing"}), f"{A}.type"),
    (objects(a={"type": "array"}), f"{A}.items"),
    (objects(a={"type": "string", "pattern": "("}), f"{A}.pattern"),
    (objects(a={"type": "string", "minLength": "1"}), f"{A}.minLength"),
    (objects(a={"type": "string", "strange": 1}), f"{A}.strange"),
    (objects(a={"$ref": "#/x"}), f"{A}.$ref"),
    (objects(a=[]), f"{A}"),
    ({"type": "object", "properties": []}, f"{S}.properties"),
    ({"type": "object", "allOf": [1]}, f"{S}.allOf[0]"),
    ({"type": "object", "required": [1]}, f"{S}.required"),
    (objects(a={"type": "integer", "default": "x"}), f"{A}.default"),
    (objects(a={**objects(b={"type": "string"}), "default": {"c": 1}}), f"{A}.default.c"),
    (objects(a={"type": "object", CEL: [{"rule": "true"}]}), f"{A}.{CEL}"),
    ({**objects(), "anyOf": [objects(b={"minimum": 1})]}, f"{S}.anyOf[0].type"),
    ({**objects(), "not": {"properties": {"b": {"minimum": 1}}}}, f"{S}.not.properties[b]"),
    ({**objects(), "not": {"type": "object"}}, f"{S}.not.type"),
    (objects(metadata=objects(labels=objects())), f"{S}.properties[metadata].properties[labels]"),
    (objects(a={"type": "array", "items": objects(), LIST_TYPE: "map"}), f"{A}.{LIST_KEYS}"),
    (objects(a={"type": "object", "additionalProperties": False}), f"{A}.additionalProperties"),
    (objects(a={"x-kubernetes-int-or-string": True, "type": "string"}), f"{A}.type"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "field"), NOT_STRUCTURAL)
async def test_a_schema_that_is_not_structural_is_refused_with_its_path(
    server: InProcessServer, schema: JsonObject, field: str
) -> None:
    status = await server.status("POST", DEFINITIONS, with_schema(schema))
    assert status["code"] == 422
    assert field in causes(status)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"additionalPrinterColumns": [{"name": "A", "type": "thing", "jsonPath": ".a"}]},
         "spec.versions[0].additionalPrinterColumns[0].type"),
        ({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a[0:1]"}]},
         "spec.versions[0].additionalPrinterColumns[0].jsonPath"),
        ({"subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.n"}}},
         "spec.versions[0].subresources.scale.specReplicasPath"),
        ({"selectableFields": [{"jsonPath": ".spec.nothing"}]},
         "spec.versions[0].selectableFields[0].jsonPath"),
    ],
)  # fmt: skip
async def test_paths_of_a_definition_are_checked(
    server: InProcessServer, more: JsonObject, field: str
) -> None:
    status = await server.status("POST", DEFINITIONS, definition(version(**more)))
    assert set(causes(status)) == {field}


# --- objects


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"color": "green"}, "spec.color", "FieldValueNotSupported"),
        ({"size": 0}, "spec.size", "FieldValueInvalid"),
        ({"size": "big"}, "spec.size", "FieldValueTypeInvalid"),
        ([], "spec", "FieldValueTypeInvalid"),
    ],
)
async def test_objects_are_checked_by_their_schema(
    server: InProcessServer, spec: Any, field: str, reason: str
) -> None:
    await define(server, definition())
    status = await server.status("POST", WIDGETS, widget(spec=spec))
    assert causes(status) == {field: reason}
    assert status["message"].startswith('Widget.example.com "w" is invalid')


async def test_unknown_fields_are_pruned_and_warned_of_unless_preserved(
    server: InProcessServer,
) -> None:
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    nested = {**open_object, **objects(known=objects(a={"type": "integer"}))}
    await define(server, with_schema(objects(spec=SPEC, free=nested)))
    sent = widget(spec={"shape": "round"}, free={"any": 1, "known": {"a": 1, "b": 2}}, other=1)
    response = await server.ask("POST", WIDGETS, sent)
    assert response.status == 201
    assert 'unknown field \\"spec.shape\\"' in response.headers["warning"]
    stored = await server.json("GET", f"{WIDGETS}/w")
    assert stored["spec"] == {"color": "red"}
    assert stored["free"] == {"any": 1, "known": {"a": 1}}
    assert "other" not in stored
    status = await server.status("POST", WIDGETS, sent, fieldValidation="Strict")
    assert status["code"] == 400


async def test_nullable_int_or_string_and_embedded_resources(server: InProcessServer) -> None:
    spec = objects(
        maybe={"type": "string", "nullable": True, "default": "d"},
        never={"type": "string", "default": "d"},
        port={"x-kubernetes-int-or-string": True},
        template={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    )
    await define(server, with_schema(objects(spec=spec)))
    inner = {"apiVersion": "v1", "kind": "Thing", "metadata": {"labels": {"a": "b"}}, "x": 1}
    sent = {"maybe": None, "never": None, "port": "http", "template": inner}
    made = await server.json("POST", WIDGETS, widget(spec=sent))
    assert made["spec"] == {"maybe": None, "never": "d", "port": "http", "template": inner}
    wrong = {"port": 1.5, "template": {"kind": "Thing"}}
    assert causes(await server.status("POST", WIDGETS, widget("x", wrong))) == {
        "spec.port": "FieldValueInvalid",
        "spec.template.apiVersion": "FieldValueRequired",
    }


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "b": 1}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, {}),
        ({"allOf": [{"properties": {"a": {"minimum": 2}}}]}, {"a": 2}, {"a": 1}),
        ({"not": {"required": ["a"]}}, {"b": 1}, {"a": 1}),
        ({"maxProperties": 1}, {"a": 1}, {"a": 1, "b": 1}),
    ],
)  # fmt: skip
async def test_any_of_one_of_all_of_and_not_are_validated(
    server: InProcessServer, rule: JsonObject, right: JsonObject, wrong: JsonObject
) -> None:
    number = {"type": "integer"}
    await define(server, with_schema(objects(spec={**objects(a=number, b=number), **rule})))
    assert (await server.json("POST", WIDGETS, widget(spec=right)))["spec"] == right
    status = await server.status("POST", WIDGETS, widget("x", wrong))
    assert status["code"] == 422


async def test_lists_keep_their_keys_unique_and_formats_are_checked(
    server: InProcessServer,
) -> None:
    by_name = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    item = {**objects(name={"type": "string"}), "required": ["name"]}
    spec = objects(
        ports={"type": "array", "items": item, **by_name},
        address={"type": "string", "format": "ipv4"},
        since={"type": "string", "format": "date-time"},
    )
    await define(server, with_schema(objects(spec=spec)))
    twice = {"ports": [{"name": "a"}, {"name": "a"}], "address": "1.2.3", "since": "now"}
    assert causes(await server.status("POST", WIDGETS, widget(spec=twice))) == {
        "spec.ports[1]": "FieldValueDuplicate",
        "spec.address": "FieldValueInvalid",
        "spec.since": "FieldValueInvalid",
    }


async def test_status_is_a_subresource_only_if_the_definition_has_one(
    server: InProcessServer,
) -> None:
    await define(server, definition())
    made = await server.json("POST", WIDGETS, widget(status={"ready": True}))
    assert made["status"] == {"ready": True}
    assert (await server.ask("GET", f"{WIDGETS}/w/status")).status == 404
    await replace_definition(server, definition(version(**STATUS)))
    ignored = await server.merge(f"{WIDGETS}/w", {"status": {"ready": False}})
    assert ignored["status"] == {"ready": True}
    patched = await server.merge(
        f"{WIDGETS}/w/status", {"status": {"ready": False, "x": 1}, "spec": {"color": "blue"}}
    )
    assert (patched["status"], patched["spec"]) == ({"ready": False}, {"color": "red"})
    assert patched["metadata"]["generation"] == 1


async def test_columns_and_selectable_fields_of_the_definition_are_used(
    server: InProcessServer,
) -> None:
    columns = [
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
    ]
    more: JsonObject = {
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }
    await define(server, definition(version(**more)))
    await server.json("POST", WIDGETS, widget("a"))
    await server.json("POST", WIDGETS, widget("b", {"color": "blue", "size": 3}))
    table = await server.json("GET", WIDGETS, headers=TABLE)
    shown = [(c["name"], c["priority"]) for c in table["columnDefinitions"]]
    assert shown == [("Name", 0), ("Color", 0), ("Size", 1)]
    assert [row["cells"] for row in table["rows"]] == [
        ["a", "red", None],
        ["b", "blue", 3],
    ]
    found = await server.json("GET", WIDGETS, fieldSelector="spec.color=blue")
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
    assert (await server.ask("GET", WIDGETS, fieldSelector="spec.size=3")).status == 400


# --- changes of definitions


async def test_an_update_of_the_schema_applies_at_once_to_stored_objects(
    server: InProcessServer,
) -> None:
    await define(
        server, with_schema(objects(spec=objects(size={"type": "integer"}, old={"type": "string"})))
    )
    await server.json("POST", WIDGETS, widget(spec={"size": 1, "old": "x"}))
    watch = await server.watch(WIDGETS)
    await replace_definition(server, definition())
    read = await server.json("GET", f"{WIDGETS}/w")
    assert read["spec"] == {"size": 1, "color": "red"}
    listed = await server.json("GET", WIDGETS)
    assert listed["items"] == [read]
    assert (await server.watch(WIDGETS)) is not watch
    refused = await server.patch_refused(f"{WIDGETS}/w", {"spec": {"size": 0}})
    assert causes(refused) == {"spec.size": "FieldValueInvalid"}
    labelled = await server.merge(f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["spec"] == {"size": 1, "color": "red"}


async def test_all_versions_serve_the_same_objects(server: InProcessServer) -> None:
    old = version("v1alpha1", storage=False)
    await define(server, definition(version("v1"), old))
    made = await server.json("POST", WIDGETS, widget())
    alpha = WIDGETS.replace("/v1/", "/v1alpha1/")
    read = await server.json("GET", f"{alpha}/w")
    assert read == {**made, "apiVersion": "example.com/v1alpha1"}
    sent = {**widget("x"), "apiVersion": "example.com/v1alpha1"}
    assert (await server.json("POST", alpha, sent))["apiVersion"] == "example.com/v1alpha1"
    listed = await server.json("GET", WIDGETS)
    assert {item["apiVersion"] for item in listed["items"]} == {"example.com/v1"}
    _, seen = await (await server.watch(alpha)).next()
    assert seen["apiVersion"] == "example.com/v1alpha1"
    versions = (await server.json("GET", "/apis/example.com"))["versions"]
    assert [v["version"] for v in versions] == ["v1", "v1alpha1"]


async def test_stored_versions_are_recorded_and_cannot_be_removed(
    server: InProcessServer,
) -> None:
    await define(server, definition(version("v1")))
    await server.json("POST", WIDGETS, widget())
    both = definition(version("v1", storage=False), version("v2"))
    changed = await replace_definition(server, both)
    assert changed["status"]["storedVersions"] == ["v1", "v2"]
    path = f"{DEFINITIONS}/widgets.example.com"
    alone = {**changed, "spec": definition(version("v2"))["spec"]}
    status = await server.status("PUT", path, alone)
    assert causes(status) == {"status.storedVersions[0]": "FieldValueInvalid"}
    newer = WIDGETS.replace("/v1/", "/v2/")
    assert (await server.json("GET", f"{newer}/w"))["apiVersion"] == "example.com/v2"
    await server.merge(f"{newer}/w", {"metadata": {"labels": {"a": "b"}}})
    await server.merge(f"{path}/status", {"status": {"storedVersions": ["v2"]}})
    assert (await replace_definition(server, definition(version("v2"))))["status"][
        "storedVersions"
    ] == ["v2"]
    assert (await server.ask("GET", f"{WIDGETS}/w")).status == 404


async def test_users_of_a_deprecated_version_are_warned(server: InProcessServer) -> None:
    await define(server, definition(version(deprecated=True)))
    response = await server.ask("POST", WIDGETS, widget(spec={"shape": "round"}))
    deprecated, unknown = response.headers["warning"].split(", ")
    assert deprecated == '299 - "example.com/v1 Widget is deprecated"'
    assert "spec.shape" in unknown


async def test_a_version_that_is_not_served_is_not_found(server: InProcessServer) -> None:
    await define(server, definition(version("v1"), version("v2", served=False, storage=False)))
    assert (await server.ask("GET", WIDGETS)).status == 200
    assert (await server.ask("GET", WIDGETS.replace("/v1/", "/v2/"))).status == 404


async def test_a_terminating_definition_accepts_no_new_objects(
    server: InProcessServer,
) -> None:
    await define(server, definition())
    await server.json("POST", WIDGETS, widget())
    watch = await server.watch(WIDGETS)
    await watch.next()
    path = f"{DEFINITIONS}/widgets.example.com"
    ending = await server.json("DELETE", path)
    assert conditions(ending)["Terminating"] == ("True", "InstanceDeletionInProgress")
    assert (await server.status("POST", WIDGETS, widget("late")))["code"] == 405
    refused = await server.patch_refused(path, {"metadata": {"finalizers": None}})
    assert refused["code"] == 409
    await server.json("DELETE", f"{WIDGETS}/w")
    await server.merge(path, {"metadata": {"finalizers": None}})
    assert (await server.ask("GET", WIDGETS)).body == b"404 page not found\n"
    assert [kind for kind, _ in await watch.rest()] == ["DELETED"]
    await define(server, definition())
    assert (await server.json("GET", WIDGETS))["items"] == []


async def test_kinds_are_served_again_before_the_first_request_after_a_restart() -> None:
    async with running_server() as server:
        await define(server, definition())
        await server.json("POST", WIDGETS, widget(spec={"size": 2}))
        store = Store(server.journal)
        await store.load()
        users = {TOKEN: User("root", (MASTERS,), frozenset({"*"}))}
        api = ApiServer(
            store,
            ServerEnvironment(Clock(), SequentialIds("u"), SequentialIds("s")),
            AuthenticationOptions(StaticTokens(users)),
        )
        restarted = InProcessServer(store, api, server.clock, server.suffixes, server.journal)
        found = await restarted.json("GET", f"{WIDGETS}/w")
        assert found["spec"] == {"size": 2, "color": "red"}


async def test_a_definition_is_served_on_its_own_plane_only(server: InProcessServer) -> None:
    await define(server, definition(), prefix=PROJECT)
    assert (await server.ask("GET", PROJECT + WIDGETS)).status == 200
    assert (await server.ask("GET", WIDGETS)).status == 404
    names = [i["metadata"]["name"] for i in (await server.json("GET", DEFINITIONS))["items"]]
    assert "widgets.example.com" not in names
    assert "apis/example.com/v1" not in (await server.json("GET", "/openapi/v3"))["paths"]
    assert conditions(await define(server, definition(kind="Gadget", names={"kind": "Widget"})))[
        "Established"
    ] == ("True", "InitialNamesAccepted")


async def test_errors_without_access_do_not_show_which_kinds_a_plane_has() -> None:
    users = {"unprivileged": User("unprivileged", (), frozenset({"hub"}))}
    async with running_server(users=users) as server:
        await define(server, definition())
        kind, none = [
            await server.status("GET", f"/apis/example.com/v1/{plural}", token="unprivileged")
            for plural in ("widgets", "gizmos")
        ]
        assert kind["code"] == none["code"] == 403
        assert kind["message"].replace("widgets", "gizmos") == none["message"]
