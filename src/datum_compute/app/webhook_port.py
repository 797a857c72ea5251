"""The TLS port of the webhook. Every replica of a manager has it, whoever leads.

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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from datum_compute.app.files import StateError, private_directory
from datum_compute.app.front.port import Front
from datum_compute.app.settings import WebhookSettings
from datum_compute.app.tls import ensure_certificate
from datum_compute.app.webhook import WebhookDispatcher

# The name under which deploy/webhook expects the port to be reached.
SERVICE_NAME, SERVICE_NAMESPACE = "compute-webhook", "kube-system"
SERVICE_DNS = f"{SERVICE_NAME}.{SERVICE_NAMESPACE}.svc"
LOOK_AGAIN_S = 10.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def webhook_port(
    settings: WebhookSettings, dispatcher: WebhookDispatcher, state: Path
) -> AsyncIterator[int]:
    """Serve while the block runs; the port it listens on."""
    certificate, key = _certificate(settings, state)
    context = _context(certificate, key, settings.client_authority)
    front = Front(dispatcher.dispatch, dispatcher.unix_s)
    with _bound(settings.address) as bound:
        await front.start(bound, context)
        following = asyncio.create_task(follow_certificate(context, certificate, key))
        try:
            yield bound.getsockname()[1]
        finally:
            following.cancel()
            await front.stop()


def _certificate(settings: WebhookSettings, state: Path) -> tuple[Path, Path]:
    if settings.certificate is not None and settings.key is not None:
        return settings.certificate, settings.key
    folder = private_directory(state / "webhook")
    made = ensure_certificate(folder, datetime.now(UTC), names=(SERVICE_DNS,))
    _log.warning("the webhook has a certificate of its own; trust %s", made.authority)
    return made.certificate, made.key


def _bound(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(f"the webhook cannot listen on {host}:{port}: {error.strerror}") from error
    return bound


def _context(certificate: Path, key: Path, client_authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        if client_authority is not None:
            context.load_verify_locations(client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # ssl.SSLError is one
        files = [str(file) for file in (certificate, key, client_authority) if file is not None]
        raise StateError(
            f"{', '.join(files)} cannot be used ({error}); they must be a certificate, its key and "
            "an authority, as PEM"
        ) from error
    return context


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
        _log.warning("the new certificate of the webhook is not used yet: %s", error)
        return False
    _log.info("the webhook has a new certificate")
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
