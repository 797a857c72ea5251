"""One authorised request for a resource: who asks what of which object on which plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from datum_compute.api.http import Request
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import User
from datum_compute.server.discovery.resources import Served
from datum_compute.server.flowcontrol.control import LoopWork
from datum_compute.server.routing import Route
from datum_compute.store.journal import ObjectKey


class Call(msgspec.Struct, frozen=True):
    user: User
    plane: PlaneName
    route: Route
    request: Request
    served: Served  # of the route; here because every step asks for them
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
