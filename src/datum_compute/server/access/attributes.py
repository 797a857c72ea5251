"""What somebody wants to do: a verb on a resource, or on a path outside of all resources."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from datum_compute.server.routing import Route, namespace_of_request

_OF_COLLECTIONS = ("list", "watch", "deletecollection")
_NAME_FIELD = "metadata.name"


class Attributes(msgspec.Struct, frozen=True):
    """``path`` is set for requests outside of resources only, and then nothing else is."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    labels: str = ""  # the label selector of a list or a watch

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(
    verb: str, route: Route | None, path: str, query: Mapping[str, str]
) -> Attributes:
    if route is None:
        return Attributes(verb, path=path)
    name = route.name
    if not name and verb in _OF_COLLECTIONS and "fieldSelector" in query:
        name = _selected_name(query["fieldSelector"])
    kind = route.served.kind
    labels = query.get("labelSelector", "") if verb in _OF_COLLECTIONS else ""
    return Attributes(
        verb,
        kind.group,
        kind.plural,
        route.subresource,
        namespace_of_request(route),
        name,
        labels=labels,
    )


def _selected_name(selector: str) -> str:
    """The one name that a field selector lets through, if it names one: a rule for that name is
    then enough. The first such term decides; others can only narrow it further."""
    for term in selector.split(","):
        field, _, value = term.partition("=")
        if field.strip() == _NAME_FIELD:
            return value.removeprefix("=").strip()
    return ""
