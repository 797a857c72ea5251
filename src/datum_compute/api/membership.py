"""JoinToken: the right of one machine to become a cell, once, until it expires.

Only the digest of the token is kept, so that nobody who reads the hub can join with it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Time, doc
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo


class JoinTokenSpec(ApiStruct, frozen=True, kw_only=True):
    token_hash: Annotated[
        str,
        Meta(pattern="^[0-9a-f]{64}$", max_length=64),
        doc("The sha256 of the token, in hexadecimal digits."),
    ]
    expires_at: Annotated[Time, doc("From when on it is refused (RFC 3339).")]
    cell: Annotated[
        str,
        doc("The only cell that may use it; it may also take the place of one of that name."),
    ] = ""


class JoinTokenStatus(ApiStruct, frozen=True, kw_only=True):
    used_by: Annotated[str, doc("The cell that joined with it.")] = ""
    key_hash: Annotated[str, doc("The sha256 of the public key of that cell.")] = ""
    used_at: Annotated[Time | None, doc("When that was (RFC 3339).")] = None


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


# --- CellJoin: a cell asks the hub for its credential, and hands over the hub's. Answered, not
# stored With a join token it makes the cell a member; with the credential of the cell itself it
# renews it.


class CellJoinSpec(ApiStruct, frozen=True, kw_only=True):
    cell: Annotated[str, doc("Name of the cell: a DNS label.")]
    request: Annotated[str, doc("A certificate signing request (PEM) of the cell's own key.")]
    city: Annotated[str, doc("The city that it serves.")] = ""
    endpoint: Annotated[str, doc("Where the hub reaches the plane of the cell (https).")] = ""
    authority: Annotated[str, doc("The authority (PEM) of that endpoint's certificate.")] = ""
    hub_token: Annotated[str, doc("The bearer token of the hub on the plane of the cell.")] = ""

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


# --- Who cells and those who want to become one are: users, groups, and the key they hold
# A cell is known by its certificate. What makes that certificate good is the ``Cluster`` on the
# hub, which notes the digest of the cell's key: without the Cluster, or with another key, it opens
# nothing.


CELLS_GROUP = "system:cells"
JOINERS_GROUP = "system:joiners"  # who holds a join token, and nothing else yet
HUB_USER = "system:hub"  # the hub, on the plane of a cell

# The digest (sha256) of the public key: among the extras of a user, and on the Cluster of a cell.
KEY_HASH = "compute.datumapis.com/key-sha256"

# The taint that keeps new work away from a cell.
DRAINED = "compute.datumapis.com/drained"

_CELL = "system:cell:"
_JOINER = "system:joiner:"


def cell_user_of(cell: str) -> str:
    return _CELL + cell


def cell_named_by(user: str) -> str:
    """The cell that a user is; empty for any other."""
    return user.removeprefix(_CELL) if user.startswith(_CELL) else ""


def joiner_of(token: str) -> str:
    """The user of a join token, by the token's name."""
    return _JOINER + token


def token_named_by(user: str) -> str:
    return user.removeprefix(_JOINER) if user.startswith(_JOINER) else ""


# --- the text of a join token: its name, which may be known, and the secret behind it

_SEPARATOR = "."


def token_text(name: str, secret: str) -> str:
    return f"{name}{_SEPARATOR}{secret}"


def name_of_token(text: str) -> str:
    name, separator, secret = text.partition(_SEPARATOR)
    return name if separator and secret else ""
