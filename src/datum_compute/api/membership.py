"""JoinToken: the right of one machine to become a cell, once, until it expires.

Only the digest of the token is kept, so that nobody who reads the hub can join with it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Time, says
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class JoinTokenSpec(ApiStruct, frozen=True, kw_only=True):
    token_hash: Annotated[
        str,
        Meta(pattern="^[0-9a-f]{64}$", max_length=64),
        says("The sha256 of the token, in hexadecimal digits."),
    ]
    expires_at: Annotated[Time, says("From when on it is refused (RFC 3339).")]
    cell: Annotated[
        str,
        says("The only cell that may use it; it may also take the place of one of that name."),
    ] = ""


class JoinTokenStatus(ApiStruct, frozen=True, kw_only=True):
    used_by: Annotated[str, says("The cell that joined with it.")] = ""
    key_hash: Annotated[str, says("The sha256 of the public key of that cell.")] = ""
    used_at: Annotated[Time | None, says("When that was (RFC 3339).")] = None


class JoinToken(ApiObject, frozen=True, kw_only=True):
    """JoinToken: the right of one machine to become a cell, once, until it expires."""

    spec: JoinTokenSpec
    status: JoinTokenStatus = JoinTokenStatus()


JOIN_TOKEN = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="JoinToken",
    plural="jointokens",
    model=JoinToken,
    namespaced=False,
    columns=(
        Column("Cell", ".spec.cell"),
        Column("Expires", ".spec.expiresAt"),
        Column("Used By", ".status.usedBy"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
