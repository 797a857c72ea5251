"""Who cells and those who want to become one are: users, groups, and the key they hold.

A cell is known by its certificate. What makes that certificate good is the ``Cluster`` on the hub,
which notes the digest of the cell's key: without the Cluster, or with another key, it opens
nothing.
"""

from __future__ import annotations

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
