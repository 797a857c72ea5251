"""The hub's token on a cell is changed without a moment in which the hub has none."""

from __future__ import annotations

from pathlib import Path

from datum_compute.api.membership import HUB_USER
from datum_compute.api.planes import cell_plane
from datum_compute.app.cell_membership import HubToken
from datum_compute.app.state_credentials import Credentials, ensure_credentials
from datum_compute.server.access.authentication import StaticTokens

PLANE = cell_plane("dfw")


def started(folder: Path) -> tuple[Credentials, StaticTokens, HubToken]:
    """A process of the cell, and what it knows at its start."""
    path = folder / "tokens.json"
    credentials = ensure_credentials(path, (PLANE,), of_cell=True)
    authenticator = credentials.authenticator()
    return credentials, authenticator, HubToken(path, PLANE, authenticator)


def opens(authenticator: StaticTokens, token: str) -> bool:
    user = authenticator.user_of(token)
    return user is not None and user.name == HUB_USER and user.planes == {PLANE}


def test_both_tokens_are_good_until_the_old_one_is_dismissed(tmp_path: Path) -> None:
    credentials, authenticator, token = started(tmp_path)
    new = token.begin()
    assert new not in ("", credentials.hub)
    assert opens(authenticator, new)
    assert opens(authenticator, credentials.hub)
    assert token.settle() == credentials.hub
    assert opens(authenticator, credentials.hub), "requests under way are not broken off"
    token.dismiss(credentials.hub)
    assert not opens(authenticator, credentials.hub)
    again, authenticator, _ = started(tmp_path)
    assert again.hub == new
    assert opens(authenticator, new)
    assert not opens(authenticator, credentials.hub)


def test_a_crash_after_the_hub_was_told_locks_nobody_out(tmp_path: Path) -> None:
    before, _, token = started(tmp_path)
    new = token.begin()  # the hub may have it, or not
    _, authenticator, token = started(tmp_path)
    assert opens(authenticator, new)
    assert opens(authenticator, before.hub)
    assert token.begin() == new, "the same is handed over again"


def test_no_token_is_shown(tmp_path: Path) -> None:
    credentials, _, token = started(tmp_path)
    new = token.begin()
    assert new not in repr(credentials) + repr(token)
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
