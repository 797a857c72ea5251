"""From what lies on the hub back to the project it is from, by the two identity labels."""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.api import labels
from datum_compute.api.identity import decoded_project
from datum_compute.api.meta import Ref
from datum_compute.api.plane import project_plane
from datum_compute.runtime.key import Key


def upstream_key(identity: Mapping[str, str], name: str) -> Key | None:
    """The object of that name in the project and namespace the labels speak of, if they do."""
    project = decoded_project(identity.get(labels.UPSTREAM_CLUSTER, ""))
    namespace = identity.get(labels.UPSTREAM_NAMESPACE)
    if not project or not namespace:
        return None
    return Key(project_plane(project), Ref(namespace, name))
