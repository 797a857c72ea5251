"""Credentials that live: what to present now, and what to present after a refusal.

``current`` gives the present credential, renewed if it is known to have expired. ``renewed`` is
asked after the server refused one (401): it gives another one if there is another to be had, else
the same. Whoever cannot sign in raises Unauthorized, in words for people and without secrets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from datum_compute.client.auth.connection import Certificate, FileSignIn, checked_token
from datum_compute.client.auth.kubeconfig_files import KubeconfigError

_log = logging.getLogger(__name__)

REREAD_S = 60.0
# Renewed this long before the end, so that a token does not expire on its way.
MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Credential:
    token: str = field(default="", repr=False)
    certificate: Certificate | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Outside:
    """What signing in and trying again need of the process around them."""

    environ: Mapping[str, str]
    is_terminal: bool  # somebody is there who can answer a plugin
    unix_s: Callable[[], float]
    random: Random


class Credentials(Protocol):
    async def current(self) -> Credential: ...

    async def renewed(self, refused: Credential) -> Credential: ...


class Renewing:
    """Credentials from something slow: asked once at a time, kept until they expire.

    ``obtain`` gives a credential and the moment it expires (None: nobody knows).
    """

    def __init__(self, obtain: Obtain, unix_s: Callable[[], float]) -> None:
        self._obtain = obtain
        self._unix_s = unix_s
        self._lock = asyncio.Lock()
        self._kept: Credential | None = None
        self._expires_s: float | None = None

    async def current(self) -> Credential:
        async with self._lock:
            if self._kept is None or self._expired():
                return await self._renew()
            return self._kept

    async def renewed(self, refused: Credential) -> Credential:
        async with self._lock:
            # Of many requests that were refused together only the first renews.
            if self._kept is None or self._kept == refused:
                return await self._renew()
            return self._kept

    def _expired(self) -> bool:
        return self._expires_s is not None and self._unix_s() > self._expires_s - MARGIN_S

    async def _renew(self) -> Credential:
        self._kept, self._expires_s = await self._obtain()
        return self._kept


class Obtain(Protocol):
    async def __call__(self) -> tuple[Credential, float | None]: ...


class FileCredentials:
    """Files that somebody else renews; read again once a minute, and after a refusal.

    A file that cannot be read just now leaves us with what it held before.
    """

    def __init__(self, sign_in: FileSignIn, first: Credential) -> None:
        self._files = sign_in
        self._kept = first
        self._read_at_s: float | None = None

    async def current(self) -> Credential:
        now = asyncio.get_running_loop().time()
        if self._read_at_s is None or now - self._read_at_s >= REREAD_S:
            self._read(now)
        return self._kept

    async def renewed(self, refused: Credential) -> Credential:
        if self._kept == refused:
            self._read(asyncio.get_running_loop().time())
        return self._kept

    def _read(self, now: float) -> None:
        self._read_at_s = now
        try:
            self._kept = Credential(self._token(), self._certificate())
        except (OSError, KubeconfigError) as error:
            _log.warning("credentials stay as they were: %s", error)

    def _token(self) -> str:
        if self._files.token is None:
            return self._kept.token
        text = self._files.token.read_bytes().decode("latin-1")
        return checked_token(text, f"the token in {self._files.token}")

    def _certificate(self) -> Certificate | None:
        if self._files.certificate is None:
            return self._kept.certificate
        certificate, key = self._files.certificate
        return Certificate(_bytes(certificate), _bytes(key))


def _bytes(file: Path) -> bytes:
    return file.read_bytes()
