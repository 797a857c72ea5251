"""Lists, watches, representations, namespaces, discovery, identity and definitions."""

from __future__ import annotations

from typing import Any

from tests.differential.manifests import (
    CORE,
    EXAMPLE,
    SPACES,
    Object,
    config_map,
    in_space,
    widget,
)
from tests.differential.steps import (
    PARTIAL,
    PARTIALS,
    TABLE,
    YAML,
    Step,
    delete,
    get,
    patch,
    post,
    watch,
)


def lists(space: str) -> list[Step]:
    maps = in_space(CORE, space, "configmaps")
    made = [
        post(f"make-{n}", maps, config_map(f"n{n}", {"even": str(n % 2 == 0).lower()}))
        for n in range(5)
    ]
    mine = "fieldSelector=metadata.name!=kube-root-ca.crt"
    return [
        *made,
        get("all", maps, mine),
        get("page-1", maps, "limit=2&labelSelector=even"),
        get("page-2", maps, "limit=2&labelSelector=even&continue=${page-1.metadata.continue}"),
        get("page-3", maps, "limit=2&labelSelector=even&continue=${page-2.metadata.continue}"),
        get("no-selector", in_space(CORE, space, "secrets"), "limit=1"),
        get("labels", maps, "labelSelector=even%3Dtrue"),
        get("label-set", maps, "labelSelector=even+in+(true,false),even!%3Dfalse"),
        get("bad-labels", maps, "labelSelector=%3D%3D"),
        get("field", maps, "fieldSelector=metadata.name%3Dn1"),
        get("bad-field", maps, "fieldSelector=spec.nothing%3Dx"),
        get("bad-token", maps, "limit=2&continue=nonsense"),
        get("bad-limit", maps, "limit=many"),
        get("rv-0", maps, f"resourceVersion=0&{mine}"),
        get("rv-word", maps, "resourceVersion=abc"),
        get("rv-exact-0", maps, "resourceVersion=0&resourceVersionMatch=Exact"),
        get("rv-match-alone", maps, "resourceVersionMatch=Exact"),
        get("rv-match-word", maps, "resourceVersion=1&resourceVersionMatch=Nearly"),
        get("empty", in_space(EXAMPLE, space, "widgets")),
        delete("collection", maps, query="labelSelector=even%3Dtrue"),
        get("left", maps, mine),
    ]


def watches(space: str) -> list[Step]:
    maps, mine = (
        in_space(CORE, space, "configmaps"),
        "fieldSelector=metadata.name!=kube-root-ca.crt",
    )
    since = "resourceVersion=${first.metadata.resourceVersion}"
    return [
        post("first", maps, config_map("first", {"on": "yes"})),
        post("second", maps, config_map("second")),
        patch("change", f"{maps}/first", {"data": {"a": "1"}}),
        patch("off", f"{maps}/first", {"metadata": {"labels": {"on": None}}}),
        delete("delete", f"{maps}/second"),
        watch("since", maps, f"{since}&{mine}"),
        watch("selected", maps, f"{since}&labelSelector=on"),
        watch("from-now", maps, mine),
        watch(
            "listed-first",
            maps,
            f"{mine}&sendInitialEvents=true&allowWatchBookmarks=true"
            "&resourceVersionMatch=NotOlderThan",
        ),
        watch("table", maps, f"{since}&{mine}", accept=TABLE),
        watch("partial", maps, f"{since}&{mine}", accept=PARTIAL),
        watch("match-alone", maps, "resourceVersion=1&resourceVersionMatch=NotOlderThan"),
        watch("word", maps, "resourceVersion=abc"),
        watch("first-without-match", maps, "sendInitialEvents=true"),
        watch("one", f"{maps}/first", ""),
        watch("selectable", f"{CORE}/namespaces", f"fieldSelector=metadata.name%3D{space}"),
    ]


def forms(space: str) -> list[Step]:
    """Content types of requests and representations of responses."""
    maps, widgets = in_space(CORE, space, "configmaps"), in_space(EXAMPLE, space, "widgets")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata: {a: 'b'}\n"
    mine = "fieldSelector=metadata.name!=kube-root-ca.crt"
    return [
        post("yaml", maps, text, content=YAML),
        post("widget", widgets, widget("one", size=3)),
        get("table", maps, mine, accept=TABLE),
        get("table-one", f"{maps}/yaml", accept=TABLE),
        get("table-custom", widgets, accept=TABLE),
        get("table-whole", widgets, "includeObject=Object", accept=TABLE),
        get("table-none", widgets, "includeObject=None", accept=TABLE),
        get("table-spaces", SPACES, f"fieldSelector=metadata.name%3D{space}", accept=TABLE),
        get("partial", f"{widgets}/one", accept=PARTIAL),
        get("partials", widgets, accept=PARTIALS),
        get("table-error", f"{maps}/none", accept=TABLE),
        get("unacceptable", maps, accept="text/html"),
        post("unsupported", maps, "a=b", content="application/x-www-form-urlencoded"),
        post("broken", maps, "{not json", content="application/json"),
        post("nothing", maps, "", content="application/json"),
        post("array", maps, "[]", content="application/json"),
        patch("unknown-patch", f"{maps}/yaml", "{}", kind="application/json"),
        Step("no-such-verb", "POST", f"{maps}/yaml", {}),
        Step("delete-all-spaces", "DELETE", SPACES),
    ]


def spaces(space: str) -> list[Step]:
    one = f"{SPACES}/{space}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "Bad.Name"}}
    return [
        post("bad-name", SPACES, made),
        patch("label", one, {"metadata": {"labels": {"a": "b"}}}),
        get("account", in_space(CORE, space, "serviceaccounts", "default"), until=200),
        post(
            "hold",
            in_space(CORE, space, "configmaps"),
            {**config_map("hold"), "metadata": {"name": "hold", "finalizers": ["a.b/c"]}},
        ),
        delete("delete", one),
        post("late", in_space(CORE, space, "configmaps"), config_map("late")),
        patch(
            "release",
            in_space(CORE, space, "configmaps", "hold"),
            {"metadata": {"finalizers": None}},
        ),
        get("gone", one, until=404),
    ]


def reading_the_server(space: str) -> list[Step]:
    return [
        get("core", "/api"),
        get("group", "/apis/networking.datumapis.com"),
        get("resources", "/apis/networking.datumapis.com/v1alpha"),
        get("example", EXAMPLE),
        get("no-group", "/apis/none.example.com"),
        get("no-version", "/apis/example.com/v9"),
        get("no-path", "/nothing/here"),
        get("no-kind", in_space(EXAMPLE, space, "gadgets")),
        get("ready", "/readyz"),
        get("live", "/livez"),
    ]


def who(space: str) -> list[Step]:
    reviews, access = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
    maps = in_space(CORE, space, "configmaps")
    may = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {"namespace": space, "verb": "get", "resource": "configmaps"}
        },
    }
    unprivileged = {"impersonate-user": "unprivileged"}
    json_ = {"content-type": "application/json"}
    return [
        Step("bad-token", "GET", maps, headers={"authorization": "Bearer nonsense"}),
        Step("anonymous", "GET", maps, token=False),
        Step("unprivileged", "GET", maps, headers=unprivileged),
        Step(
            "unprivileged-writes", "POST", maps, config_map("a"), headers={**unprivileged, **json_}
        ),
        Step(
            "unprivileged-may",
            "POST",
            f"{access}/selfsubjectaccessreviews",
            may,
            headers={**unprivileged, **json_},
        ),
        post("may", f"{access}/selfsubjectaccessreviews", may),
        Step(
            "whoami",
            "POST",
            f"{reviews}/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            headers={**unprivileged, **json_},
        ),
        Step("anonymous-reads-version", "GET", "/version", token=False),
    ]


def definitions(space: str) -> list[Step]:
    """Schemas of custom kinds. The servers reject them, or the sequence deletes them."""
    all_ = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

    def gadget(schema: Object, **version: Any) -> Object:
        whole = {"type": "object", "properties": {"spec": schema}}
        one = {"name": "v1", "served": True, "storage": True, **version}
        one["schema"] = {"openAPIV3Schema": whole}
        names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
        spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [one]}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        return {**head, "metadata": {"name": "gadgets.example.com"}, "spec": spec}

    number: Object = {"type": "integer", "maximum": 9223372036854775807}
    ruled = {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}
    gadget_path = f"{all_}/gadgets.example.com"
    return [
        post("no-type", all_, gadget({})),
        post("too-large", all_, gadget({**number, "default": 1})),
        post("default", all_, gadget({"type": "string", "default": 3})),
        post("pattern", all_, gadget({"type": "string", "pattern": "("})),
        post("list", all_, gadget({"type": "array"})),
        post("rules", all_, gadget(ruled), "dryRun=All"),
        post("not-stored", all_, gadget({"type": "string"}, storage=False)),
        post("define", all_, gadget({"type": "string"})),
        get("resource", "/apis/example.com/v1/gadgets", until=200),
        delete("delete", gadget_path),
        get("gone", gadget_path, until=404),
        get("no-resource", "/apis/example.com/v1/gadgets", until=404),
    ]
