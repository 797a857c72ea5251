"""Kinds of Kubernetes that common clients ask for and of which this platform never has any.

Each is served as a list that is empty, for reading only: ``kubectl cluster-info`` lists Services
and ends with an error where there is no such kind. Whoever writes one, and whoever lists them all,
is told why there are none and what to use instead (``KindInfo.none_here``).
"""

from __future__ import annotations

from typing import Annotated, Any

from datum_compute.api.meta.fields import says
from datum_compute.api.meta.objects import ApiObject, KindInfo


class CoreService(ApiObject, frozen=True, kw_only=True):
    """A Service of Kubernetes: there are none on this platform."""

    spec: Annotated[dict[str, Any], says("Nothing: there are no Services here.")] = {}


CORE_SERVICE = KindInfo(
    group="",
    version="v1",
    kind="Service",
    plural="services",
    model=CoreService,
    has_status=False,
    built_in=True,
    none_here=(
        "there are no Kubernetes Services on this platform; the services of its catalogue are "
        "services.services.miloapis.com"
    ),
)

NOTHING_HERE: tuple[KindInfo[Any], ...] = (CORE_SERVICE,)
