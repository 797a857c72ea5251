"""Ports of a manager: webhook, gateway, metrics and health. Each is an ``HttpServer``.

Every replica serves its ports, also while another replica leads.

A TLS port loads its certificate from files and polls them: a new pair applies to new connections,
and a pair that does not match is ignored until it does. Without files the port gets a self-signed
certificate in the state directory, for trials.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.settings.settings import Address, TlsPortSettings
from datum_compute.app.state_directory import StateError, ensure_private_directory
from datum_compute.server.http.connection import Dispatch
from datum_compute.server.http.listen import bind_listener, server_tls_context
from datum_compute.server.http.send_budget import PortLimits, fit_to_file_limit, raise_file_limit
from datum_compute.server.http.server import HttpServer

CERTIFICATE_POLL_S = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PortHandler:
    """The handler of the requests to a port. ``name`` appears in log lines and error messages."""

    name: str
    dispatch: Dispatch
    unix_s: Callable[[], float]
    server_names: tuple[str, ...] = ()  # in a self-signed certificate


@asynccontextmanager
async def open_port(
    address: Address, handler: PortHandler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; yield the port number."""
    limits = fit_to_file_limit(PortLimits(), raise_file_limit())
    server = HttpServer(handler.dispatch, handler.unix_s, limits)
    with _bind(address, handler.name) as bound:
        await server.start(bound, tls)
        port = bound.getsockname()[1]
        scheme = "http" if tls is None else "https"
        _log.info("%s on %s://%s:%d", handler.name, scheme, address[0], port)
        try:
            yield port
        finally:
            await server.stop()


@asynccontextmanager
async def open_tls_port(
    settings: TlsPortSettings, handler: PortHandler, state: Path
) -> AsyncIterator[int]:
    """Serve over TLS while the block runs; yield the port number."""
    certificate, key = _certificate_files(settings, handler, state)
    context = _tls_context(certificate, key, settings.client_authority)
    async with open_port(settings.address, handler, context) as port:
        reloading = asyncio.create_task(reload_certificate(context, certificate, key))
        try:
            yield port
        finally:
            reloading.cancel()


def _bind(address: Address, name: str) -> socket.socket:
    host, port = address
    try:
        return bind_listener(port, host)
    except OSError as error:
        raise OSError(f"{name}: cannot listen: {error}") from error


def _certificate_files(
    settings: TlsPortSettings, handler: PortHandler, state: Path
) -> tuple[Path, Path]:
    if settings.certificate is not None and settings.key is not None:
        return settings.certificate, settings.key
    folder = ensure_private_directory(state / handler.name)
    created = ensure_certificate(folder, datetime.now(UTC), names=handler.server_names)
    _log.warning("the %s has a self-signed certificate; trust %s", handler.name, created.authority)
    return created.certificate, created.key


def _tls_context(certificate: Path, key: Path, client_authority: Path | None) -> ssl.SSLContext:
    try:
        return server_tls_context(
            certificate, key, client_authority, client_certificates=ssl.CERT_REQUIRED
        )
    except OSError as error:  # includes ssl.SSLError
        files = [str(file) for file in (certificate, key, client_authority) if file is not None]
        raise StateError(
            f"{', '.join(files)} cannot be used ({error}); they must be a certificate, its key and "
            "an authority, as PEM"
        ) from error


async def reload_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path, every_s: float = CERTIFICATE_POLL_S
) -> None:
    """Load changed files until cancelled."""
    loaded = _fingerprint(certificate, key)
    while True:
        await asyncio.sleep(every_s)
        found = _fingerprint(certificate, key)
        if found != loaded and load_certificate(context, certificate, key):
            loaded = found


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> bool:
    """Load the files into the context. Return False and keep the old pair if they do not match."""
    try:
        server_tls_context(certificate, key)  # raises if the files do not match
        context.load_cert_chain(certificate, key)
    except OSError as error:  # includes ssl.SSLError
        _log.warning("cannot use the new certificate %s yet: %s", certificate, error)
        return False
    _log.info("using the new certificate %s", certificate)
    return True


def _fingerprint(*files: Path) -> tuple[tuple[int, int, int], ...]:
    """Return values that change with the files, also behind a symbolic link of a mounted secret."""
    found = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)
