"""The bearer token by which the hub reaches this cell, changed whenever the cell renews its own
credential.

A new one is on the disk of the cell, and good there, before the hub hears of it; the old one stays
good until a while after the hub has the new one. So neither a lost answer nor a crash in between
locks the hub out: asked again, the same new token is handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.cellidentity import HUB_USER
from datum_compute.api.meta.codec import encode
from datum_compute.api.planes import PlaneName
from datum_compute.app.state_credentials import HUB_TOKEN, NEXT_HUB_TOKEN, new_token, read_tokens
from datum_compute.app.state_directory import write_private
from datum_compute.server.access.authentication import Authenticator, User

# How long the hub may go on with the old token, in requests under way and watches that are open.
GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class HubToken:
    """``path`` is the file with the tokens of the cell."""

    path: Path
    plane: PlaneName
    authenticator: Authenticator

    def begin(self) -> str:
        """The token that the hub is to get."""
        tokens = read_tokens(self.path)
        if NEXT_HUB_TOKEN not in tokens:
            tokens[NEXT_HUB_TOKEN] = new_token()
            write_private(self.path, encode(tokens))
        found = tokens[NEXT_HUB_TOKEN]
        self.authenticator.admit(found, User(HUB_USER, (), frozenset({self.plane})))
        return found

    def settle(self) -> str:
        """The hub has it. Answers the old one, which is good until it is dismissed, or until the
        process ends."""
        tokens = read_tokens(self.path)
        old, tokens[HUB_TOKEN] = tokens[HUB_TOKEN], tokens.pop(NEXT_HUB_TOKEN)
        write_private(self.path, encode(tokens))
        return old

    def dismiss(self, token: str) -> None:
        self.authenticator.dismiss(token)
