"""CellJoin: a cell asks the hub for its credential, and hands over the hub's. Answered, not stored.

With a join token it makes the cell a member; with the credential of the cell itself it renews it.
"""

from __future__ import annotations

from typing import Annotated

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import says
from datum_compute.api.meta.objects import ApiObject, KindInfo


class CellJoinSpec(ApiStruct, frozen=True, kw_only=True):
    cell: Annotated[str, says("Name of the cell: a DNS label.")]
    request: Annotated[str, says("A certificate signing request (PEM) of the cell's own key.")]
    city: Annotated[str, says("The city that it serves.")] = ""
    endpoint: Annotated[str, says("Where the hub reaches the plane of the cell (https).")] = ""
    authority: Annotated[str, says("The authority (PEM) of that endpoint's certificate.")] = ""
    hub_token: Annotated[str, says("The bearer token of the hub on the plane of the cell.")] = ""

    def __repr__(self) -> str:
        return f"CellJoinSpec({self.cell})"


class CellJoinStatus(ApiStruct, frozen=True, kw_only=True):
    certificate: str = ""
    authority: str = ""
    expires_at: str = ""


class CellJoin(ApiObject, frozen=True, kw_only=True):
    spec: CellJoinSpec
    status: CellJoinStatus = CellJoinStatus()


CELL_JOIN = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="CellJoin",
    plural="celljoins",
    model=CellJoin,
    namespaced=False,
    has_status=False,
)
