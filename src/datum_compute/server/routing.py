"""Resolves the path and the method of a request: which resource, which object, which verb.

``resolve_route`` returns the route of a path and the attributes that the caller needs permission
for. ``ApiRequest`` is the authorized request that verbs receive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from datum_compute.api.errors import NotFound, shorten
from datum_compute.api.http import Request
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.discovery.resources import ResourceRegistry, ServedResource
from datum_compute.server.encoding.request_options import parse_flag
from datum_compute.server.encoding.selectors import Selection, parse_selection
from datum_compute.server.flowcontrol.control import LoopWork
from datum_compute.store.journal import ObjectKey

_COLLECTION_VERBS = ("list", "watch", "deletecollection")
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_NAME_FIELD = "metadata.name"


class Route(msgspec.Struct, frozen=True):
    """What a path addresses: a resource and, if not empty, a namespace, an object and a
    subresource. ``namespace`` is also empty for a list over all namespaces."""

    resource: ServedResource
    # The methods that the route supports. The GET of a collection can also be a watch.
    verbs_by_method: Mapping[str, str]
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def resolve_route(
    registry: ResourceRegistry, request: Request, path: str
) -> tuple[Route | None, Attributes]:
    """Return the route of a request, None if the path names no resource, and its attributes."""
    route = find_route(registry, path)
    method = "GET" if request.method == "HEAD" else request.method
    if route is None:
        return None, Attributes(method.lower(), path=path)
    verb = route.verbs_by_method.get(method, "")
    if verb == "list" and request.method == "GET" and parse_flag(request.query, "watch"):
        verb = "watch"
    attributes = attributes_of(verb or method.lower(), route, request.query)
    return route, attributes if verb else replace(attributes, allowed_method=False)


def attributes_of(verb: str, route: Route, query: Mapping[str, str]) -> Attributes:
    name, label_selector = route.name, ""
    if verb in _COLLECTION_VERBS:
        label_selector = query.get("labelSelector", "")
        if not name and "fieldSelector" in query:
            name = _selected_name(query["fieldSelector"])
    kind = route.resource.kind
    return Attributes(
        verb,
        kind.group,
        kind.plural,
        route.subresource,
        # A namespace object lies in itself: the roles in it apply.
        route.name if route.resource.is_namespace else route.namespace,
        name,
        label_selector=label_selector,
    )


def attributes_to_authorize(attributes: Attributes, route: Route | None) -> Attributes:
    """Return what a caller must be allowed to do to receive a response other than 403.

    A path that matches no route needs only "get", because the response is 404 anyway. A method that
    the route does not support needs only "get" or "list", because the response is 405.
    """
    if route is not None:
        return replace(attributes, verb="get" if route.name else "list")
    if attributes.path.startswith(("/api/", "/apis/")):
        return replace(attributes, verb="get")
    return attributes


def _selected_name(selector: str) -> str:
    """Return the name to which a field selector limits a list, so that permission for that name is
    sufficient. The first such term decides, because further terms can only narrow the list."""
    for term in selector.split(","):
        field, _, value = term.partition("=")
        if field.strip() == _NAME_FIELD:
            return value.removeprefix("=").strip()
    return ""


def find_route(registry: ResourceRegistry, path: str) -> Route | None:
    """Return the resource that a path names; None for other paths, such as discovery."""
    # Every request passes here. Splitting takes half the time of a regular expression.
    start, *segments = path.split("/")
    if start or not segments or "" in segments:
        return None
    if segments[0] == "apis" and len(segments) > 3:
        _, group, version, *rest = segments
    elif segments[0] == "api" and len(segments) > 2:
        group, (_, version, *rest) = "", segments
    else:
        return None
    is_inside_namespace = len(rest) > 2 and rest[0] == "namespaces"
    if is_inside_namespace and not group and rest[2] in _NAMESPACE_SUBRESOURCES:
        is_inside_namespace = False
    if is_inside_namespace:
        _, namespace, plural, *object_path = rest
    else:
        namespace, (plural, *object_path) = "", rest
    resource = registry.by_path.get((group, version, plural))
    if resource is None or (namespace and not resource.kind.namespaced) or len(object_path) > 2:
        return None
    name = object_path[0] if object_path else ""
    subresource = object_path[1] if len(object_path) > 1 else ""
    if name and resource.kind.namespaced and not namespace:
        return None
    if subresource and subresource not in resource.subresources:
        return None
    if subresource:
        verbs = resource.methods.subresources[subresource]
    elif name:
        verbs = resource.methods.objects
    elif resource.kind.namespaced and not namespace:
        verbs = resource.methods.all_namespaces
    else:
        verbs = resource.methods.collection
    return Route(resource, verbs, namespace, name, subresource)


def check_subresource(registry: ResourceRegistry, path: str) -> None:
    """Raise NotFound for a subresource that the kind of an object does not have."""
    parent, _, subresource = path.rpartition("/")
    route = find_route(registry, parent)
    if route is None or not route.name or route.subresource:
        return
    if route.resource.is_namespace:
        return  # the last segment names a kind inside the namespace
    kind = route.resource.kind
    known = ", ".join(route.resource.subresources) or "none"
    hint = f" ({kind.scaled_by})" if subresource == "scale" and kind.scaled_by else ""
    raise NotFound(
        f'{kind.resource} "{shorten(route.name)}" has no '
        f'"{shorten(subresource)}"{hint}; the subresources of this kind: {known}',
        name=route.name,
        group=kind.group,
        kind=kind.plural,
    )


class ApiRequest(msgspec.Struct, frozen=True):
    """An authorized request for a resource."""

    user: User
    plane: PlaneName
    route: Route
    http: Request
    query: Mapping[str, str]  # of the HTTP request
    registry: ResourceRegistry  # of the plane
    resource: ServedResource  # of the route
    kind: KindInfo[Any]  # of the resource
    work: LoopWork  # charged for the time that the request uses on the loop

    def parse_selection(self) -> Selection:
        """Parse the selectors of a list, watch or deletecollection."""
        decode_record = self.resource.conversion.decode_served
        return parse_selection(self.kind, decode_record, self.query, self.route.namespace)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.kind.storage, self.route.namespace, self.route.name)
