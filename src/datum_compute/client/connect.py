"""Open the transport of a connection: socket, authentication and retries.

Modules that few commands need are imported where they are used, to keep the start of the command
line fast.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import assert_never

from datum_compute.client.auth.connection import (
    Connection,
    CredentialSource,
    ExecSignIn,
    FileSignIn,
    HelperSignIn,
    OidcSignIn,
)
from datum_compute.client.auth.credentials import (
    AuthenticatedTransport,
    AuthEnvironment,
    CachedCredentials,
    Credential,
    Credentials,
    FileCredentials,
    TokenHelper,
)
from datum_compute.client.auth.exec_plugin import ExecPlugin
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.client.transport.interface import CloseableTransport, Timeouts, Transport
from datum_compute.client.transport.retry import RetryingTransport
from datum_compute.client.transport.tls import Certificate


def open_transport(
    connection: Connection,
    environment: AuthEnvironment,
    wrap_transport: Callable[[Transport], Transport] | None = None,
) -> AbstractAsyncContextManager[Transport]:
    """Return the transport of a connection. Raise ValueError if its parameters are not usable.

    The transport connects when the first request is sent. ``wrap_transport`` wraps the transport
    below the retries, so the wrapper receives every attempt.
    """

    timeouts = Timeouts(read_s=connection.read_s) if connection.read_s else None

    def connect(certificate: Certificate | None) -> CloseableTransport:
        return Http1Transport(
            connection.server,
            ca_pem=connection.ca_pem,
            insecure=connection.insecure,
            certificate=certificate or connection.certificate,
            server_name=connection.tls_server_name,
            proxy=connection.proxy,
            timeouts=timeouts,
        )

    first = connect(None)
    if connection.sign_in is None:
        return _with_retries(first, environment.random, wrap_transport)
    credentials = _credentials(connection, connection.sign_in, environment)
    return _with_retries(
        AuthenticatedTransport(credentials, connect), environment.random, wrap_transport
    )


def _credentials(
    connection: Connection, sign_in: CredentialSource, environment: AuthEnvironment
) -> Credentials:
    match sign_in:
        case FileSignIn():
            return FileCredentials(sign_in, Credential(connection.token, connection.certificate))
        case ExecSignIn():
            return CachedCredentials(ExecPlugin(sign_in, environment).obtain, environment.unix_s)
        case OidcSignIn():
            from datum_compute.client.auth.oidc import OidcRefresh

            return CachedCredentials(OidcRefresh(sign_in, environment).obtain, environment.unix_s)
        case HelperSignIn():
            return CachedCredentials(TokenHelper(sign_in).obtain, environment.unix_s)
        case _:
            assert_never(sign_in)


@asynccontextmanager
async def _with_retries(
    inner: CloseableTransport | AuthenticatedTransport,
    random: Random,
    wrap_transport: Callable[[Transport], Transport] | None,
) -> AsyncIterator[Transport]:
    try:
        yield RetryingTransport(wrap_transport(inner) if wrap_transport else inner, random)
    finally:
        await inner.aclose()
