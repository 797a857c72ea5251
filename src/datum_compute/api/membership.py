"""How a machine joins as a cell: join tokens, join requests and the identity of cells.

A JoinToken stores only the hash of its token, so that readers of the hub cannot join with it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import Time, doc
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn


class JoinTokenSpec(ApiStruct, frozen=True, kw_only=True):
    token_hash: Annotated[
        str,
        Meta(pattern="^[0-9a-f]{64}$", max_length=64),
        doc("SHA-256 hash of the token, in hexadecimal digits."),
    ]
    expires_at: Annotated[Time, doc("Time from which the token is refused (RFC 3339).")]
    cell: Annotated[
        str,
        doc(
            "The only cell that can use the token. It can also replace an existing "
            "cell of this name."
        ),
    ] = ""


class JoinTokenStatus(ApiStruct, frozen=True, kw_only=True):
    used_by: Annotated[str, doc("Cell that joined with the token.")] = ""
    key_hash: Annotated[str, doc("SHA-256 hash of the public key of that cell.")] = ""
    used_at: Annotated[Time | None, doc("Time when the cell joined (RFC 3339).")] = None


class JoinToken(ApiObject, frozen=True, kw_only=True):
    """A JoinToken allows one machine to join the platform as a cell. It can be used once, until it
    expires.
    """

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
        TableColumn("Cell", ".spec.cell"),
        TableColumn("Expires", ".spec.expiresAt"),
        TableColumn("Used By", ".status.usedBy"),
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
    ),
)


# --- CellJoin
# A cell requests its client certificate and sends the credential of the hub. With a join token the
# cell becomes a member. With its own certificate the cell renews that certificate.


class CellJoinSpec(ApiStruct, frozen=True, kw_only=True):
    cell: Annotated[str, doc("Name of the cell. It must be a DNS label.")]
    request: Annotated[str, doc("Certificate signing request (PEM) for the key of the cell.")]
    city: Annotated[str, doc("City that the cell serves.")] = ""
    endpoint: Annotated[
        str, doc("HTTPS address at which the hub reaches the plane of the cell.")
    ] = ""
    authority: Annotated[str, doc("CA certificate (PEM) of that endpoint.")] = ""
    hub_token: Annotated[str, doc("Bearer token of the hub for the plane of the cell.")] = ""

    def __repr__(self) -> str:
        return f"CellJoinSpec({self.cell})"


class CellJoinStatus(ApiStruct, frozen=True, kw_only=True):
    certificate: Annotated[str, doc("Issued client certificate (PEM).")] = ""
    authority: Annotated[str, doc("CA certificate (PEM) of the hub.")] = ""
    expires_at: Annotated[str, doc("Time when the certificate expires (RFC 3339).")] = ""


class CellJoin(ApiObject, frozen=True, kw_only=True):
    """A CellJoin requests the client certificate of a cell. The server answers it and does not
    store it.
    """

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


# --- Users and groups of cells
# A cell authenticates with its certificate. The ``Cluster`` on the hub contains the hash of the key
# of the cell. A certificate without a Cluster, or with another key, gives no access.


CELLS_GROUP = "system:cells"
JOINERS_GROUP = "system:joiners"  # users with a join token
HUB_USER = "system:hub"  # user name of the hub on the plane of a cell

# SHA-256 hash of the public key: an extra attribute of a user, and an annotation of a Cluster.
KEY_HASH = "compute.datumapis.com/key-sha256"

# Taint that keeps new instances away from a cell.
DRAINED = "compute.datumapis.com/drained"

_CELL = "system:cell:"
_JOINER = "system:joiner:"


def cell_user_of(cell: str) -> str:
    return _CELL + cell


def cell_of_user(user: str) -> str:
    """Return the cell of a user name, or the empty string."""
    return user.removeprefix(_CELL) if user.startswith(_CELL) else ""


def join_token_user(token: str) -> str:
    """Return the user name for the name of a join token."""
    return _JOINER + token


def join_token_of_user(user: str) -> str:
    """Return the name of the join token of a user name, or the empty string."""
    return user.removeprefix(_JOINER) if user.startswith(_JOINER) else ""


# --- The text of a join token: the public name of the JoinToken, and a secret

_SEPARATOR = "."


def token_text(name: str, secret: str) -> str:
    return f"{name}{_SEPARATOR}{secret}"


def join_token_name(text: str) -> str:
    name, separator, secret = text.partition(_SEPARATOR)
    return name if separator and secret else ""
