"""Discovery: the groups, versions and kinds of a plane, and the health of the server.

Clients can request one document per group version, or one aggregated document.
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
from datum_compute.server.encoding.request_options import MediaType, choose_media_type
from datum_compute.server.encoding.responses import json_response, text_response, with_newline

_AGGREGATED = MediaType(JSON, "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2")
SCALE_KIND = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_AGGREGATED_TYPE = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def discovery_response(registry: ResourceRegistry, request: Request, path: str) -> Response | None:
    """Return the response for a discovery path; None for other paths."""
    accept = request.headers.get("accept", "")
    match path.rstrip("/").split("/"):
        case ["", "api"]:
            return _root(registry, accept, core=True)
        case ["", "apis"]:
            return _root(registry, accept, core=False)
        case ["", "apis", group] if group in registry.groups():
            return json_response(
                {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, group)}
            )
        case ["", "api", version] if version in registry.versions(""):
            return json_response(_resources(registry, "", version))
        case ["", "apis", group, version] if group and version in registry.versions(group):
            return json_response(_resources(registry, group, version))
        case _:
            return None


def _root(registry: ResourceRegistry, accept: str, *, core: bool) -> Response:
    if choose_media_type(accept, (_AGGREGATED,)) == _AGGREGATED:
        body = with_newline(encode(_build_aggregated(registry, core=core)))
        headers = {"etag": f'"{hashlib.sha256(body).hexdigest()}"', "vary": "Accept"}
        return Response(200, body, _AGGREGATED_TYPE, headers)
    return json_response(_core_versions(registry) if core else _groups(registry))


def _core_versions(registry: ResourceRegistry) -> JsonObject:
    return {
        "kind": "APIVersions",
        "versions": registry.versions(""),
        "serverAddressByClientCIDRs": [],
    }


def _groups(registry: ResourceRegistry) -> JsonObject:
    groups = [_group(registry, group) for group in registry.groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(registry: ResourceRegistry, group: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for version in registry.versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(registry: ResourceRegistry, group: str, version: str) -> JsonObject:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            document
            for served in registry.of_version(group, version)
            for document in _resource_and_subresources(served)
        ],
    }


def _resource_and_subresources(resource: ServedResource) -> list[JsonObject]:
    kind = resource.kind
    document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": resource.verbs,
        "shortNames": kind.short_names,
        "categories": kind.categories,
    }
    subresources: list[JsonObject] = [
        {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_subresource_kind(resource, name),
            "verbs": verbs,
        }
        for name, verbs in resource.subresources.items()
    ]
    return [document, *subresources]


def _subresource_kind(resource: ServedResource, subresource: str) -> JsonObject:
    """Return the kind of a subresource. Group and version are omitted if they are those of the
    resource."""
    kind = _response_kind(resource, subresource)
    own = _group_version_kind(resource.kind)
    return {"kind": resource.kind.kind} if kind == own else kind


def _response_kind(resource: ServedResource, subresource: str) -> JsonObject:
    return (
        SCALE_KIND
        if subresource == "scale"
        else _group_version_kind(resource.subresource_kind(subresource))
    )


def _group_version_kind(kind: KindInfo[Any]) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _build_aggregated(registry: ResourceRegistry, *, core: bool) -> JsonObject:
    groups = [""] if core else registry.groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(registry, group) for group in groups],
    }


def _aggregated_group(registry: ResourceRegistry, group: str) -> JsonObject:
    versions = [
        {
            "version": version,
            "freshness": "Current",
            "resources": [_aggregated_kind(s) for s in registry.of_version(group, version)],
        }
        for version in registry.versions(group)
    ]
    metadata = {"name": group} if group else {}
    return {"metadata": {**metadata, "creationTimestamp": None}, "versions": versions}


def _aggregated_kind(resource: ServedResource) -> JsonObject:
    kind = resource.kind
    return {
        "resource": kind.plural,
        "responseKind": _group_version_kind(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": resource.verbs,
        "shortNames": kind.short_names,
        "categories": kind.categories,
        "subresources": [
            {
                "subresource": name,
                "responseKind": _response_kind(resource, name),
                "verbs": verbs,
            }
            for name, verbs in resource.subresources.items()
        ],
    }


# --- Health and version, which respond without credentials


# The Kubernetes release whose API this server speaks.
MAJOR, MINOR = "1", "34"

HEALTH_PATHS = ("/healthz", "/livez", "/readyz", "/version")


def health_response(path: str, is_ready: Callable[[], bool], *, verbose: bool = False) -> Response:
    """Return the response for one of ``HEALTH_PATHS``. A failed or verbose check lists its parts in
    the form of kube-apiserver."""
    if path == "/version":
        return json_response(version_info())
    checks = {"ping": ""}
    if path == "/readyz":
        checks["platform"] = "" if is_ready() else "the platform is starting or stopping"
    has_failed = any(checks.values())
    if not has_failed and not verbose:
        return text_response("ok")
    lines = [
        f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok"
        for name, problem in checks.items()
    ]
    result = "failed" if has_failed else "passed"
    text = "\n".join([*lines, f"{path[1:]} check {result}", ""])
    return text_response(text, status=503 if has_failed else 200)


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
