"""Tokens of a program that prints one at a time, for those who wait longer than a token lives."""

from __future__ import annotations

import asyncio

from datum_compute.api.errors import Unauthorized
from datum_compute.client.auth.connection import HelperSignIn, checked_token
from datum_compute.client.auth.credentials import Credential
from datum_compute.client.auth.kubeconfig_files import KubeconfigError

_LIMIT_S = 60.0


class TokenHelper:
    """Gives the token it was made with first; the program is asked for every one after that."""

    def __init__(self, sign_in: HelperSignIn) -> None:
        self._sign_in = sign_in
        self._first = sign_in.first_token

    async def obtain(self) -> tuple[Credential, float | None]:
        token, self._first = self._first or await self._asked(), ""
        return Credential(token), None

    async def _asked(self) -> str:
        """Its stderr goes to the user, its stdout nowhere."""
        command = self._sign_in.command
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *self._sign_in.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(_LIMIT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise Unauthorized(f"{command} gave no new token in {_LIMIT_S:g} s") from None
        except OSError as error:
            raise Unauthorized(f"{command} cannot be run: {error.strerror}") from None
        if process.returncode != 0:
            raise Unauthorized(f"{command} gave no new token (exit {process.returncode})")
        try:
            return checked_token(output.decode("latin-1"), f"the answer of {command}")
        except KubeconfigError as error:
            raise Unauthorized(str(error)) from None
