"""Credentials that change while a program runs.

``current`` returns the current credential, and renews it first if it has expired. ``renewed`` is
called after the server rejected a credential (401). It returns a newer one, or the same if there is
none. Both raise Unauthorized if signing in fails. The message contains no secrets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Protocol

from msgspec.structs import replace

from datum_compute.api.errors import Unauthorized
from datum_compute.api.http import Request, Response
from datum_compute.client.auth.connection import (
    Connection,
    FileSignIn,
    HelperSignIn,
    validate_token,
)
from datum_compute.client.auth.kubeconfig_files import KubeconfigError
from datum_compute.client.transport.interface import CloseableTransport
from datum_compute.client.transport.tls import Certificate

_log = logging.getLogger(__name__)

REREAD_S = 60.0
# Renew a token this long before it expires, so that it does not expire in transit.
MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Credential:
    token: str = field(default="", repr=False)
    certificate: Certificate | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class AuthEnvironment:
    """The environment, terminal, clock and randomness of the process, as arguments."""

    environ: Mapping[str, str]
    is_terminal: bool  # a user can answer the prompts of a plugin
    unix_s: Callable[[], float]
    random: Random


class Credentials(Protocol):
    async def current(self) -> Credential: ...

    async def renew_rejected(self, rejected: Credential) -> Credential: ...


class CachedCredentials:
    """Credentials from a slow source. They are kept until they expire.

    ``obtain`` returns a credential and its expiry (None if unknown). Calls do not overlap.
    """

    def __init__(self, obtain: Obtain, unix_s: Callable[[], float]) -> None:
        self._obtain = obtain
        self._unix_s = unix_s
        self._lock = asyncio.Lock()
        self._credential: Credential | None = None
        self._expires_s: float | None = None

    async def current(self) -> Credential:
        async with self._lock:
            if self._credential is None or self._is_expired():
                return await self._renew()
            return self._credential

    async def renew_rejected(self, rejected: Credential) -> Credential:
        async with self._lock:
            # Of many concurrent requests that were rejected, only the first renews.
            if self._credential is None or self._credential == rejected:
                return await self._renew()
            return self._credential

    def _is_expired(self) -> bool:
        return self._expires_s is not None and self._unix_s() > self._expires_s - MARGIN_S

    async def _renew(self) -> Credential:
        self._credential, self._expires_s = await self._obtain()
        return self._credential


class Obtain(Protocol):
    async def __call__(self) -> tuple[Credential, float | None]: ...


class FileCredentials:
    """Credential files that another program updates.

    They are read once a minute and after a rejection. If a file cannot be read, the last credential
    stays in use.
    """

    def __init__(self, sign_in: FileSignIn, first: Credential) -> None:
        self._files = sign_in
        self._credential = first
        self._read_at_s: float | None = None

    async def current(self) -> Credential:
        now = asyncio.get_running_loop().time()
        if self._read_at_s is None or now - self._read_at_s >= REREAD_S:
            self._read(now)
        return self._credential

    async def renew_rejected(self, rejected: Credential) -> Credential:
        if self._credential == rejected:
            self._read(asyncio.get_running_loop().time())
        return self._credential

    def _read(self, now: float) -> None:
        self._read_at_s = now
        try:
            self._credential = Credential(self._token(), self._certificate())
        except (OSError, KubeconfigError) as error:
            _log.warning("cannot read new credentials, using the last ones: %s", error)

    def _token(self) -> str:
        if self._files.token is None:
            return self._credential.token
        text = self._files.token.read_bytes().decode("latin-1")
        return validate_token(text, f"the token in {self._files.token}")

    def _certificate(self) -> Certificate | None:
        if self._files.certificate is None:
            return self._credential.certificate
        certificate, key = self._files.certificate
        return Certificate(_bytes(certificate), _bytes(key))


def _bytes(file: Path) -> bytes:
    return file.read_bytes()


# --- A transport that signs in, and renews its credential when the server rejects it
# A rejected request (401) is sent once more with a renewed credential. A new client certificate
# needs new connections: the streams of the old ones end, and their readers resume them.


Connect = Callable[[Certificate | None], CloseableTransport]


class AuthenticatedTransport:
    def __init__(self, credentials: Credentials, connect: Connect) -> None:
        self._credentials = credentials
        self._connect = connect
        self._transport: CloseableTransport | None = None
        self._certificate: Certificate | None = None

    async def __aenter__(self) -> AuthenticatedTransport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def send(self, request: Request) -> Response:
        credential = await self._credentials.current()
        response = await self._send(request, credential)
        if response.status != 401:
            return response
        renewed = await self._credentials.renew_rejected(credential)
        return response if renewed == credential else await self._send(request, renewed)

    async def _send(self, request: Request, credential: Credential) -> Response:
        transport = await self._transport_for(credential.certificate)
        if credential.token:
            headers = {**request.headers, "authorization": f"Bearer {credential.token}"}
            request = replace(request, headers=headers)
        return await transport.send(request)

    async def _transport_for(self, certificate: Certificate | None) -> CloseableTransport:
        if self._transport is not None and certificate == self._certificate:
            return self._transport
        try:
            connected = self._connect(certificate)
        except ValueError as error:
            raise Unauthorized(f"cannot sign in: {error}") from None
        old, self._transport, self._certificate = self._transport, connected, certificate
        if old is not None:
            await old.aclose()
        return connected


# --- Tokens of a helper program, for commands that run longer than a token is valid


_LIMIT_S = 60.0


class TokenHelper:
    """Returns the first token of its configuration, and then runs the program for each new one."""

    def __init__(self, sign_in: HelperSignIn) -> None:
        self._sign_in = sign_in
        self._first = sign_in.first_token

    async def obtain(self) -> tuple[Credential, float | None]:
        token, self._first = self._first or await self._run(), ""
        return Credential(token), None

    async def _run(self) -> str:
        """Return the token that the program prints. Its stderr is shown to the user."""
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
            raise Unauthorized(f"{command} did not print a token within {_LIMIT_S:g} s") from None
        except OSError as error:
            raise Unauthorized(f"cannot run {command}: {error.strerror}") from None
        if process.returncode != 0:
            raise Unauthorized(f"{command} failed with exit code {process.returncode}")
        try:
            return validate_token(output.decode("latin-1"), f"the output of {command}")
        except KubeconfigError as error:
            raise Unauthorized(str(error)) from None


# --- The connection of a program that runs in a pod
# The directory contains the files of the service account. The caller reads host and port from the
# environment (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT).


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster_connection(directory: Path, host: str, port: str) -> Connection:
    address = f"[{host}]" if ":" in host else host
    token_file = directory / "token"
    token = validate_token(_read(token_file).decode("latin-1"), f"the token in {token_file}")
    namespace_file = directory / "namespace"
    namespace = _read(namespace_file).decode().strip() if namespace_file.is_file() else ""
    return Connection(
        server=f"https://{address}:{port}",
        path_prefix="",
        token=token,
        ca_pem=_read(directory / "ca.crt"),
        namespace=namespace or "default",
        context="in-cluster",
        sign_in=FileSignIn(token=token_file),
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f"the service account of this pod is incomplete: {file} cannot be read: "
            f"{error.strerror}"
        ) from error
