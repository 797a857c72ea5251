"""What a user may do. For now: everything on the planes it may reach, nothing elsewhere.

The answer does not depend on whether the plane or the object exists, so that nobody can find
out what lies on a plane they may not reach.
"""

from __future__ import annotations

from datum_compute.api.errors import Forbidden
from datum_compute.api.plane import PlaneName
from datum_compute.server.authentication import User
from datum_compute.server.route import Route, namespace_of_request


def authorize(user: User, plane: PlaneName, verb: str, route: Route | None, path: str) -> None:
    if user.may_reach(plane):
        return
    why = f'the user has no access to plane "{plane}"'
    if route is None:
        raise Forbidden(f'forbidden: User "{user.name}" cannot {verb} path "{path}": {why}')
    kind, resource = route.served.kind, route.served.kind.plural
    if route.subresource:
        resource += f"/{route.subresource}"
    namespace = namespace_of_request(route)
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    subject = f'{kind.resource} "{route.name}"' if route.name else kind.resource
    raise Forbidden(
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource "{resource}" '
        f'in API group "{kind.group}" {where}: {why}',
        name=route.name,
        group=kind.group,
        kind=kind.plural,
    )
