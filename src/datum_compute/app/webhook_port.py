"""The port of the webhook, under the name that deploy/webhook expects it to be reached by."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from datum_compute.app.settings.settings import TlsPortSettings
from datum_compute.app.tls_listener import Served, tls_port
from datum_compute.app.webhook import WebhookDispatcher

SERVICE_NAME, SERVICE_NAMESPACE = "compute-webhook", "kube-system"
SERVICE_DNS = f"{SERVICE_NAME}.{SERVICE_NAMESPACE}.svc"


def webhook_port(
    settings: TlsPortSettings, dispatcher: WebhookDispatcher, state: Path
) -> AbstractAsyncContextManager[int]:
    """Serve while the block runs; the port it listens on."""
    served = Served("webhook", dispatcher.dispatch, dispatcher.unix_s, (SERVICE_DNS,))
    return tls_port(settings, served, state)
