"""Discovery: which groups, versions and kinds a plane serves, in the older form and the newer.

The older form is one document per group version; the newer one has everything in a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from datum_compute import __version__
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.discovery.resources import ResourceRegistry, ServedResource
from datum_compute.server.encoding.request_options import MediaType, preferred
from datum_compute.server.encoding.responses import json_answer, text_answer, with_newline

_AGGREGATED = MediaType(JSON, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")
SCALE_KIND = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_AGGREGATED_TYPE = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def discovery_answer(catalogue: ResourceRegistry, request: Request, path: str) -> Response | None:
    """The answer to a discovery path, or None if it is none."""
    accept = request.headers.get("accept", "")
    match path.rstrip("/").split("/"):
        case ["", "api"]:
            return _root(catalogue, accept, core=True)
        case ["", "apis"]:
            return _root(catalogue, accept, core=False)
        case ["", "apis", group] if group in catalogue.groups():
            return json_answer({"kind": "APIGroup", "apiVersion": "v1", **_group(catalogue, group)})
        case ["", "api", version] if version in catalogue.versions(""):
            return json_answer(_resources(catalogue, "", version))
        case ["", "apis", group, version] if group and version in catalogue.versions(group):
            return json_answer(_resources(catalogue, group, version))
        case _:
            return None


def _root(catalogue: ResourceRegistry, accept: str, *, core: bool) -> Response:
    if preferred(accept, (_AGGREGATED,)) == _AGGREGATED:
        body = with_newline(encode(_aggregated(catalogue, core=core)))
        headers = {"etag": f'"{hashlib.sha256(body).hexdigest()}"', "vary": "Accept"}
        return Response(200, body, _AGGREGATED_TYPE, headers)
    return json_answer(_core_versions(catalogue) if core else _groups(catalogue))


def _core_versions(catalogue: ResourceRegistry) -> JsonObject:
    return {
        "kind": "APIVersions",
        "versions": catalogue.versions(""),
        "serverAddressByClientCIDRs": [],
    }


def _groups(catalogue: ResourceRegistry) -> JsonObject:
    groups = [_group(catalogue, group) for group in catalogue.groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(catalogue: ResourceRegistry, group: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in catalogue.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(catalogue: ResourceRegistry, group: str, version: str) -> JsonObject:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            resource
            for served in catalogue.of_version(group, version)
            for resource in _resource_and_subresources(served)
        ],
    }


def _resource_and_subresources(served: ServedResource) -> list[JsonObject]:
    kind = served.kind
    resource = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": served.verbs,
        "shortNames": kind.short_names,
        "categories": kind.categories,
    }
    subresources: list[JsonObject] = [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_spoken(served, name),
            "verbs": verbs,
        }
        for name, verbs in served.subresources.items()
    ]
    return [resource, *subresources]


def _spoken(served: ServedResource, subresource: str) -> JsonObject:
    """The kind of a subresource; group and version where they are not those of the resource."""
    kind = _response_kind(served, subresource)
    own = _group_version_kind(served.kind)
    return {"kind": served.kind.kind} if kind == own else kind


def _response_kind(served: ServedResource, subresource: str) -> JsonObject:
    return (
        SCALE_KIND if subresource == "scale" else _group_version_kind(served.shown_as(subresource))
    )


def _group_version_kind(kind: KindInfo[Any]) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _aggregated(catalogue: ResourceRegistry, *, core: bool) -> JsonObject:
    groups = [""] if core else catalogue.groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(catalogue, group) for group in groups],
    }


def _aggregated_group(catalogue: ResourceRegistry, group: str) -> JsonObject:
    versions = [
        {
            "version": version,
            "freshness": "Current",
            "resources": [_aggregated_kind(s) for s in catalogue.of_version(group, version)],
        }
        for version in catalogue.versions(group)
    ]
    metadata = {"name": group} if group else {}
    return {"metadata": {**metadata, "creationTimestamp": None}, "versions": versions}


def _aggregated_kind(served: ServedResource) -> JsonObject:
    kind = served.kind
    return {
        "resource": kind.plural,
        "responseKind": _group_version_kind(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": served.verbs,
        "shortNames": kind.short_names,
        "categories": kind.categories,
        "subresources": [
            {
                "subresource": name,
                "responseKind": _response_kind(served, name),
                "verbs": verbs,
            }
            for name, verbs in served.subresources.items()
        ],
    }


# --- Health and version: the paths that answer without a token


# The Kubernetes release whose API this server speaks.
MAJOR, MINOR = "1", "34"

PATHS = ("/healthz", "/livez", "/readyz", "/version")


def health_answer(path: str, is_ready: Callable[[], bool], *, verbose: bool = False) -> Response:
    """Return the response for one of ``PATHS``. A failed or verbose check lists its parts in the
    form of kube-apiserver."""
    if path == "/version":
        return json_answer(version_info())
    checks = {"ping": ""}
    if path == "/readyz":
        checks["platform"] = "" if is_ready() else "the platform is starting or stopping"
    has_failed = any(checks.values())
    if not has_failed and not verbose:
        return text_answer("ok")
    lines = [
        f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok"
        for name, problem in checks.items()
    ]
    result = "failed" if has_failed else "passed"
    text = "\n".join([*lines, f"{path[1:]} check {result}", ""])
    return text_answer(text, status=503 if has_failed else 200)


def version_info() -> JsonObject:
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.0+datum-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
