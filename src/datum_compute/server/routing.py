"""What a path inside a plane addresses: a kind, perhaps a namespace, an object, a subresource."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from datum_compute.api.errors import NotFound
from datum_compute.api.http import Request
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import User
from datum_compute.server.discovery.resources import ResourceRegistry, ServedResource, is_namespace
from datum_compute.server.encoding.responses import shortened
from datum_compute.server.flowcontrol.control import LoopWork
from datum_compute.store.journal import ObjectKey


class Route(msgspec.Struct, frozen=True):
    """``namespace`` is empty for cluster-scoped kinds and for all namespaces together."""

    served: ServedResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def verbs_by_method(self) -> dict[str, str]:
        """The methods this route answers; GET of a collection may also be a watch."""
        if self.subresource:
            return _subresource_methods(self.served.subresources[self.subresource])
        if not self.served.stored:
            addressed = not self.name and bool(self.namespace) is self.served.kind.namespaced
            return {"POST": "create"} if addressed else {}
        if self.name:
            return _object_methods(self.served.verbs)
        if self.served.kind.namespaced and not self.namespace:
            return {"GET": "list"}
        return _collection_methods(self.served.verbs)


_OF_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_SUBRESOURCE = {**_OF_OBJECT, "POST": "create"}
_OF_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


@cache
def _object_methods(verbs: tuple[str, ...]) -> dict[str, str]:
    return {m: v for m, v in _OF_OBJECT.items() if v in verbs}


@cache
def _subresource_methods(verbs: tuple[str, ...]) -> dict[str, str]:
    return {m: v for m, v in _OF_SUBRESOURCE.items() if v in verbs}


@cache
def _collection_methods(verbs: tuple[str, ...]) -> dict[str, str]:
    return {m: v for m, v in _OF_COLLECTION.items() if v in verbs}


def find_route(catalogue: ResourceRegistry, path: str) -> Route | None:
    """The resource a path names, or None when it names none (discovery, health, unknown)."""
    # Every request comes through here; patterns would be easier to read and cost twice as much.
    start, *segments = path.split("/")
    if start or not segments or "" in segments:
        return None
    if segments[0] == "apis" and len(segments) > 3:
        _, group, version, *rest = segments
    elif segments[0] == "api" and len(segments) > 2:
        group, (_, version, *rest) = "", segments
    else:
        return None
    if len(rest) > 2 and rest[0] == "namespaces" and not _is_own_subresource(group, rest[2]):
        _, namespace, plural, *more = rest
        return _resolved(catalogue.find(group, version, plural), namespace, more)
    return _resolved(catalogue.find(group, version, rest[0]), "", rest[1:])


def _is_own_subresource(group: str, segment: str) -> bool:
    """``/namespaces/x/status`` is part of the namespace, not a kind inside it."""
    return not group and segment in ("status", "finalize")


def _resolved(served: ServedResource | None, namespace: str, more: list[str]) -> Route | None:
    if served is None or (namespace and not served.kind.namespaced) or len(more) > 2:
        return None
    name = more[0] if more else ""
    subresource = more[1] if len(more) > 1 else ""
    if name and served.kind.namespaced and not namespace:
        return None
    if subresource and subresource not in served.subresources:
        return None
    return Route(served, namespace, name, subresource)


def check_subresource(catalogue: ResourceRegistry, path: str) -> None:
    """Raise NotFound for a subresource that the kind of an object does not have."""
    parent, _, subresource = path.rpartition("/")
    route = find_route(catalogue, parent)
    if route is None or not route.name or route.subresource:
        return
    kind = route.served.kind
    if is_namespace(kind):
        return  # what follows a namespace is a kind inside it
    known = ", ".join(route.served.subresources) or "none"
    instead = f" ({kind.scaled_by})" if subresource == "scale" and kind.scaled_by else ""
    raise NotFound(
        f'{kind.resource} "{shortened(route.name)}" has no '
        f'"{shortened(subresource)}"{instead}; the subresources of this kind: {known}',
        name=route.name,
        group=kind.group,
        kind=kind.plural,
    )


def namespace_of_request(route: Route) -> str:
    """The namespace a request is about, for the words of an authorisation error."""
    return route.name if is_namespace(route.served.kind) else route.namespace


# --- One authorised request for a resource: who asks what of which object on which plane


class ResourceRequest(msgspec.Struct, frozen=True):
    user: User
    plane: PlaneName
    route: Route
    request: Request
    served: ServedResource  # of the route; here because every step asks for them
    kind: KindInfo[Any]
    work: LoopWork  # charged for the time that the request uses on the loop

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def key(self) -> ObjectKey:
        return self.key_of(self.route.name)

    def key_of(self, name: str) -> ObjectKey:
        return ObjectKey(self.kind.storage, self.route.namespace, name)
