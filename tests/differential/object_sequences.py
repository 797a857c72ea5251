"""Requests for objects of Kubernetes kinds, custom kinds and platform kinds."""

from __future__ import annotations

from tests.differential.manifests import (
    COMPUTE,
    CORE,
    EXAMPLE,
    NETWORKING,
    QUOTA,
    Object,
    config_map,
    in_space,
    widget,
)
from tests.differential.steps import (
    APPLY,
    JSON_PATCH,
    STRATEGIC,
    TABLE,
    Step,
    delete,
    get,
    patch,
    post,
    put,
)


def config_maps(space: str) -> list[Step]:
    maps, one = in_space(CORE, space, "configmaps"), in_space(CORE, space, "configmaps", "one")
    return [
        post("create", maps, config_map("one", a="1")),
        post("again", maps, config_map("one", a="1")),
        get("get", one),
        put("put", one, config_map("one", a="2")),
        put("same", one, config_map("one", a="2")),
        put(
            "stale",
            one,
            {
                **config_map("one", a="3"),
                "metadata": {
                    "name": "one",
                    "resourceVersion": "${create.metadata.resourceVersion}",
                },
            },
        ),
        put("renamed", one, config_map("other")),
        put("missing", f"{maps}/two", config_map("two")),
        patch("merge", one, {"data": {"b": "x", "a": None}}),
        patch("json", one, [{"op": "replace", "path": "/data/b", "value": "y"}], kind=JSON_PATCH),
        patch("test", one, [{"op": "test", "path": "/data/b", "value": "z"}], kind=JSON_PATCH),
        patch("no-path", one, [{"op": "remove", "path": "/data/none"}], kind=JSON_PATCH),
        patch("strategic", one, {"metadata": {"labels": {"a": "b"}}}, kind=STRATEGIC),
        patch("patch-missing", f"{maps}/two", {"data": {"a": "1"}}),
        patch("uid", one, {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        delete("wrong-uid", one, {"preconditions": {"uid": "no"}}),
        delete("wrong-version", one, {"preconditions": {"resourceVersion": "1"}}),
        delete("delete", one),
        get("gone", one),
        delete("delete-again", one),
    ]


def secrets(space: str) -> list[Step]:
    all_, one = in_space(CORE, space, "secrets"), in_space(CORE, space, "secrets", "one")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}
    return [
        post("create", all_, {**secret, "stringData": {"a": "plain"}, "data": {"b": "eA=="}}),
        post(
            "not-base64",
            all_,
            {**secret, "metadata": {"name": "two"}, "data": {"b": "not base64!"}},
        ),
        patch("type", one, {"type": "other"}),
        patch("freeze", one, {"immutable": True}),
        patch("frozen", one, {"data": {"a": "eQ=="}}),
        patch("thaw", one, {"immutable": False}),
        patch("label-frozen", one, {"metadata": {"labels": {"a": "b"}}}),
        get("list", all_, "fieldSelector=type%3DOpaque"),
        delete("delete", one),
    ]


def custom(space: str) -> list[Step]:
    all_, one = in_space(EXAMPLE, space, "widgets"), in_space(EXAMPLE, space, "widgets", "one")
    full = {**widget("one", size=2), "status": {"replicas": 5}}
    return [
        post("create", all_, full),
        get("get", one),
        put("no-version", one, widget("one", size=3)),
        patch("spec", one, {"spec": {"size": 3}}),
        patch("label", one, {"metadata": {"labels": {"a": "b"}}}),
        patch("same", one, {"metadata": {"labels": {"a": "b"}}}),
        patch("status", f"{one}/status", {"status": {"replicas": 7}, "spec": {"size": 99}}),
        patch("status-by-main", one, {"status": {"replicas": 8}}),
        patch("strategic", one, {"spec": {"size": 4}}, kind=STRATEGIC),
        get("scale", f"{one}/scale"),
        patch("scale-up", f"{one}/scale", {"spec": {"replicas": 4}}),
        patch("scale-badly", f"{one}/scale", {"spec": {"replicas": -1}}),
        get("status-part", f"{one}/status"),
        get("no-part", f"{one}/nothing"),
        patch("finalizer", one, {"metadata": {"finalizers": ["example.com/hold"]}}),
        delete("delete", one),
        delete("delete-again", one),
        patch("more-finalizers", one, {"metadata": {"finalizers": ["example.com/hold", "a.b/c"]}}),
        patch("release", one, {"metadata": {"finalizers": None}}),
        get("gone", one),
    ]


def validation(space: str) -> list[Step]:
    all_ = in_space(EXAMPLE, space, "widgets")
    nameless = {**widget("x"), "metadata": {}}
    return [
        post(
            "missing",
            all_,
            {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "a"},
                "spec": {},
            },
        ),
        post("type", all_, widget("a", size="large")),
        post("minimum", all_, widget("a", size=0)),
        post("enum", all_, widget("a", colour="pink")),
        post("pattern", all_, widget("a", code="x1")),
        post("length", all_, widget("a", code="abcdefghijk")),
        post("items", all_, widget("a", parts=[{"name": "a"}, {"name": "a"}])),
        post("item-field", all_, widget("a", parts=[{"weight": 1}])),
        post("set", all_, widget("a", tags=["x", "x"])),
        post("name", all_, widget("Not_A_Name")),
        post("nameless", all_, nameless),
        post("long-name", all_, widget("x" * 254)),
        post("generated", all_, {**widget("x"), "metadata": {"generateName": "made-"}}),
        post("label", all_, {**widget("a"), "metadata": {"name": "a", "labels": {"a b": "c"}}}),
        post("kind", all_, config_map("a")),
        post("no-kind", all_, {"metadata": {"name": "a"}}),
        post("other-space", all_, {**widget("a"), "metadata": {"name": "a", "namespace": "b"}}),
        post("unknown-warned", all_, widget("a", nothing=1)),
        get("pruned", f"{all_}/a"),
        post("unknown-strict", all_, widget("b", nothing=1), "fieldValidation=Strict"),
        post("unknown-ignored", all_, widget("c", nothing=1), "fieldValidation=Ignore"),
        post("unknown-word", all_, widget("d"), "fieldValidation=Perhaps"),
        post("dry", all_, widget("dry"), "dryRun=All"),
        get("dry-gone", f"{all_}/dry"),
        post("dry-word", all_, widget("dry"), "dryRun=Some"),
        post(
            "cm-strict",
            in_space(CORE, space, "configmaps"),
            {**config_map("strict"), "nothing": 1},
            "fieldValidation=Strict",
        ),
        post(
            "cm-key",
            in_space(CORE, space, "configmaps"),
            {**config_map("keys"), "data": {"a/b": "x"}},
        ),
        post("nowhere", in_space(CORE, "no-such-space", "configmaps"), config_map("a")),
    ]


def apply(space: str) -> list[Step]:
    one = in_space(EXAMPLE, space, "widgets", "one")
    maps = in_space(CORE, space, "configmaps", "one")
    by_a, by_b = "fieldManager=a", "fieldManager=b"
    parts = [{"name": "x", "weight": 1}]
    return [
        patch("create", one, widget("one", size=2, parts=parts), by_a, kind=APPLY),
        patch("same", one, widget("one", size=2, parts=parts), by_a, kind=APPLY),
        patch("conflict", one, widget("one", size=3), by_b, kind=APPLY),
        patch("shared", one, widget("one", size=2, colour="red"), by_b, kind=APPLY),
        patch("force", one, widget("one", size=3, colour="red"), f"{by_b}&force=true", kind=APPLY),
        patch("let-go", one, widget("one", size=3, colour="red"), by_a, kind=APPLY),
        patch(
            "more-parts",
            one,
            widget("one", size=3, parts=[{"name": "y"}]),
            "fieldManager=c",
            kind=APPLY,
        ),
        patch("update", one, {"spec": {"most": 9}}, "fieldManager=d"),
        patch(
            "status",
            f"{one}/status",
            {**widget("one", size=3), "status": {"replicas": 1}},
            "fieldManager=s&force=true",
            kind=APPLY,
        ),
        get("owners", one),
        patch("no-manager", one, widget("one"), kind=APPLY),
        patch("other-name", one, widget("two"), f"{by_a}&force=true", kind=APPLY),
        patch(
            "with-owners",
            one,
            {**widget("one"), "metadata": {"name": "one", "managedFields": [{"manager": "x"}]}},
            by_a,
            kind=APPLY,
        ),
        patch("core", maps, config_map("one", a="1"), by_a, kind=APPLY),
        patch("core-conflict", maps, config_map("one", a="2"), by_b, kind=APPLY),
        patch("core-take", maps, config_map("one", a="2"), f"{by_b}&force=true", kind=APPLY),
        patch("core-drop", maps, config_map("one"), by_b, kind=APPLY),
        patch("force-merge", maps, {"data": {"a": "1"}}, "force=true"),
    ]


def owned(name: str, *, blocks: bool = False) -> Object:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": "${owner.metadata.uid}",
        "blockOwnerDeletion": blocks,
    }
    return {**config_map(name), "metadata": {"name": name, "ownerReferences": [reference]}}


def cascades(space: str) -> list[Step]:
    """Uses a built-in kind: garbage collectors detect a new kind only after half a minute."""
    maps, owner = in_space(CORE, space, "configmaps"), in_space(CORE, space, "configmaps", "owner")
    return [
        post("owner", maps, config_map("owner", a="1")),
        post("child", maps, owned("child")),
        delete("background", owner, {"propagationPolicy": "Background"}),
        get("child-goes", f"{maps}/child", until=404),
        post("owner", maps, config_map("owner", a="1")),
        post("kept", maps, owned("kept")),
        delete("orphan", owner, {"propagationPolicy": "Orphan"}),
        get("owner-goes", owner, until=404),
        get("orphaned", f"{maps}/kept"),
        post("owner", maps, config_map("owner", a="1")),
        post("blocking", maps, owned("blocking", blocks=True)),
        delete("foreground", owner, {"propagationPolicy": "Foreground"}),
        get("owner-gone", owner, until=404),
        get("blocking-gone", f"{maps}/blocking"),
        delete("both", f"{maps}/kept", {"propagationPolicy": "Orphan", "orphanDependents": True}),
        delete("unknown-policy", f"{maps}/kept", {"propagationPolicy": "Sideways"}),
        delete("grace", f"{maps}/kept", {"gracePeriodSeconds": -1}),
    ]


def leases_and_events(space: str) -> list[Step]:
    leases = in_space("/apis/coordination.k8s.io/v1", space, "leases")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
    spec = {
        "holderIdentity": "x",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z",
    }
    events = in_space(CORE, space, "events")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "reason": "Tested",
        "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": space},
        "message": "m",
        "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z",
    }
    return [
        post("lease", leases, {**lease, "spec": spec}),
        put("create-by-put", f"{leases}/b", {**lease, "metadata": {"name": "b"}, "spec": spec}),
        patch("renew", f"{leases}/a", {"spec": {"renewTime": "2026-01-02T00:00:00.000000Z"}}),
        post(
            "bad-duration",
            leases,
            {**lease, "metadata": {"name": "c"}, "spec": {**spec, "leaseDurationSeconds": 0}},
        ),
        post("event", events, event),
        post(
            "elsewhere",
            events,
            {
                **event,
                "metadata": {"name": "f"},
                "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "other"},
            },
        ),
        get("by-object", events, "fieldSelector=involvedObject.name%3Da"),
        patch("renew-in-seconds", f"{leases}/a", {"spec": {"renewTime": "2026-01-03T00:00:00Z"}}),
        get("newer-group", in_space("/apis/events.k8s.io/v1", space, "events", "e")),
    ]


_NETWORK = {
    "apiVersion": "networking.datumapis.com/v1alpha",
    "kind": "Network",
    "metadata": {"name": "n"},
    "spec": {"ipam": {"mode": "Auto"}},
}
_GRANT = {
    "apiVersion": "quota.miloapis.com/v1alpha1",
    "kind": "ResourceGrant",
    "metadata": {"name": "g"},
    "spec": {
        "consumerRef": {
            "apiGroup": "resourcemanager.miloapis.com",
            "kind": "Project",
            "name": "p",
        },
        "allowances": [
            {"resourceType": "compute.datumapis.com/instances", "buckets": [{"amount": 3}]}
        ],
    },
}
_DEPLOYMENT = {
    "apiVersion": "compute.datumapis.com/v1alpha",
    "kind": "WorkloadDeployment",
    "metadata": {"name": "d"},
    "spec": {
        "workloadRef": {"name": "w", "uid": "u"},
        "placementName": "p",
        "cityCode": "DFW",
        "template": {
            "spec": {
                "runtime": {
                    "sandbox": {"containers": [{"name": "app", "image": "x.example/web:1"}]}
                }
            }
        },
        "scaleSettings": {"minReplicas": 1},
    },
}


def ours(space: str) -> list[Step]:
    """Platform kinds, with the definitions in deploy/crds."""
    networks = in_space(NETWORKING, space, "networks")
    grants = in_space(QUOTA, space, "resourcegrants")
    deployments = in_space(COMPUTE, space, "workloaddeployments")
    return [
        post("network", networks, _NETWORK),
        post(
            "mode",
            networks,
            {**_NETWORK, "metadata": {"name": "m"}, "spec": {"ipam": {"mode": "Manual"}}},
        ),
        get("networks", networks, accept=TABLE),
        post("grant", grants, _GRANT),
        patch(
            "negative",
            f"{grants}/g",
            [{"op": "replace", "value": -1, "path": "/spec/allowances/0/buckets/0/amount"}],
            kind=JSON_PATCH,
        ),
        get("grants", grants, accept=TABLE),
        post("deployment", deployments, _DEPLOYMENT),
        get("deployment-read", f"{deployments}/d"),
        get("scale", f"{deployments}/d/scale"),
        get("deployments", deployments, accept=TABLE),
        patch("count", f"{deployments}/d/status", {"status": {"replicas": 2}}),
        patch("bad-count", f"{deployments}/d/status", {"status": {"replicas": "two"}}),
        delete("delete", f"{deployments}/d"),
    ]
