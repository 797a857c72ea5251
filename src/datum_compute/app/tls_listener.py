"""A TLS port of a manager, for those who are no API server of ours: the webhook's, the gateway's.
Every replica has its own, whoever leads.

Certificate and key are files. They are looked at again and again, and new ones count from the next
connection on; ones that do not fit together are left aside until they do. Without files a
certificate of one's own is made in the state directory, for trying things out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.settings.settings import TlsPortSettings
from datum_compute.app.state_directory import StateError, private_directory
from datum_compute.app.webhook import WebhookDispatcher
from datum_compute.server.http.connection import Dispatch
from datum_compute.server.http.listen import bind_listener, server_tls_context
from datum_compute.server.http.send_budget import PortLimits, fit_to_file_limit, raise_file_limit
from datum_compute.server.http.server import HttpServer

LOOK_AGAIN_S = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """What is behind the port: its name for people, and names for a certificate of its own."""

    name: str
    dispatch: Dispatch
    unix_s: Callable[[], float]
    server_names: tuple[str, ...] = ()


@asynccontextmanager
async def tls_port(settings: TlsPortSettings, served: Served, state: Path) -> AsyncIterator[int]:
    """Serve while the block runs; the port it listens on."""
    certificate, key = _certificate(settings, served, state)
    context = _tls_context(certificate, key, settings.client_authority)
    limits = fit_to_file_limit(PortLimits(), raise_file_limit())
    front = HttpServer(served.dispatch, served.unix_s, limits)
    with _listen(settings.address, served.name) as bound:
        await front.start(bound, context)
        following = asyncio.create_task(follow_certificate(context, certificate, key))
        try:
            yield bound.getsockname()[1]
        finally:
            following.cancel()
            await front.stop()


def _certificate(settings: TlsPortSettings, served: Served, state: Path) -> tuple[Path, Path]:
    if settings.certificate is not None and settings.key is not None:
        return settings.certificate, settings.key
    folder = private_directory(state / served.name)
    made = ensure_certificate(folder, datetime.now(UTC), names=served.server_names)
    _log.warning("the %s has a certificate of its own; trust %s", served.name, made.authority)
    return made.certificate, made.key


def _listen(address: tuple[str, int], name: str) -> socket.socket:
    host, port = address
    try:
        return bind_listener(port, host)
    except OSError as error:
        raise OSError(f"the {name} cannot listen: {error}") from error


def _tls_context(certificate: Path, key: Path, client_authority: Path | None) -> ssl.SSLContext:
    try:
        return server_tls_context(
            certificate, key, client_authority, client_certificates=ssl.CERT_REQUIRED
        )
    except OSError as error:  # ssl.SSLError is one
        files = [str(file) for file in (certificate, key, client_authority) if file is not None]
        raise StateError(
            f"{', '.join(files)} cannot be used ({error}); they must be a certificate, its key and "
            "an authority, as PEM"
        ) from error


async def follow_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path, every_s: float = LOOK_AGAIN_S
) -> None:
    """Take over new files as they come, for ever."""
    seen = _stamp(certificate, key)
    while True:
        await asyncio.sleep(every_s)
        found = _stamp(certificate, key)
        if found != seen and take_over(context, certificate, key):
            seen = found


def take_over(context: ssl.SSLContext, certificate: Path, key: Path) -> bool:
    """Whether the files are in use now. Half of a new pair leaves the old one in use."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        _log.warning("the new certificate %s is not used yet: %s", certificate, error)
        return False
    _log.info("the new certificate %s is in use", certificate)
    return True


def _stamp(*files: Path) -> tuple[tuple[int, int, int], ...]:
    """What changes when a file does; also behind a symbolic link, as in mounted secrets."""
    found = []
    for file in files:
        try:
            about = os.stat(file)
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((about.st_ino, about.st_mtime_ns, about.st_size))
    return tuple(found)


# --- The port of the webhook, under the name that deploy/webhook expects it to be reached by


SERVICE_NAME, SERVICE_NAMESPACE = "compute-webhook", "kube-system"
SERVICE_DNS = f"{SERVICE_NAME}.{SERVICE_NAMESPACE}.svc"


def webhook_port(
    settings: TlsPortSettings, dispatcher: WebhookDispatcher, state: Path
) -> AbstractAsyncContextManager[int]:
    """Serve while the block runs; the port it listens on."""
    served = Served("webhook", dispatcher.dispatch, dispatcher.unix_s, (SERVICE_DNS,))
    return tls_port(settings, served, state)
