"""A token that is refused is replaced by the next one of the helper, in the middle of a wait."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from datum_compute.api.errors import Unauthorized
from datum_compute.api.http import Request
from datum_compute.client.auth.connection import Connection, HelperSignIn
from datum_compute.client.connect import open_transport
from tests.client.serving import serving
from tests.client.test_sign_in import Door, World

GET = Request("GET", "/a")


def helper(tmp_path: Path, script: str) -> HelperSignIn:
    file = tmp_path / "helper.py"
    file.write_text(script)
    return HelperSignIn(sys.executable, (str(file), "auth", "get-token"), "old")


async def test_a_refused_token_is_renewed_once_and_kept(tmp_path: Path) -> None:
    door = Door({"new"})
    sign_in = helper(tmp_path, "print('new')")
    async with serving(door.handle) as server:
        connection = Connection(server, "", token="old", sign_in=sign_in)
        async with open_transport(connection, World().outside) as transport:
            assert (await transport.send(GET)).status == 200
            assert (await transport.send(GET)).status == 200
    assert door.knocked == ["old", "new", "new"]


async def test_a_helper_that_has_no_token_either_says_so_without_its_output(tmp_path: Path) -> None:
    door = Door(set())
    sign_in = helper(tmp_path, "import sys; print('s3cret'); sys.exit(4)")
    async with serving(door.handle) as server:
        connection = Connection(server, "", token="old", sign_in=sign_in)
        async with open_transport(connection, World().outside) as transport:
            with pytest.raises(Unauthorized, match="exit 4") as caught:
                await transport.send(GET)
    assert "s3cret" not in str(caught.value)
