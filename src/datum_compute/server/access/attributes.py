"""What a request needs permission for."""

from __future__ import annotations

import msgspec


class Attributes(msgspec.Struct, frozen=True):
    """A verb on a resource, or on a path outside of all resources.

    If ``path`` is set, the fields of a resource are empty. ``allowed_method`` is False if the route
    does not support the HTTP method; ``verb`` is then the method in lower case.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    label_selector: str = ""  # of a list, watch or deletecollection
    allowed_method: bool = True

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
