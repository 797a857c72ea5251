"""The TLS port: uvicorn in front of the server's ASGI app, inside our own event loop."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn

from datum_compute.app.protocol import ClientCertificateProtocol
from datum_compute.app.tls import ServerCertificate
from datum_compute.server.asgi import AsgiApp

HOST = "127.0.0.1"
STOP_S = 3


class EmbeddedServer(uvicorn.Server):
    """Leaves the process's signals alone: stopping is the owner's decision."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening_socket(port: int) -> socket.socket:
    """Bound to loopback; the address can be used again right after a restart."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except OSError as error:
        bound.close()
        raise OSError(
            f"port {port} of {HOST} cannot be used ({error.strerror}); "
            "choose another, or 0 for any free one"
        ) from error
    bound.set_inheritable(False)
    return bound


def build_front(app: AsgiApp, certificate: ServerCertificate) -> EmbeddedServer:
    config = uvicorn.Config(
        app,
        ssl_certfile=str(certificate.certificate),
        ssl_keyfile=str(certificate.key),
        # A client may show a certificate; one that our authority did not sign ends the handshake.
        ssl_ca_certs=str(certificate.authority),
        ssl_cert_reqs=ssl.CERT_OPTIONAL,
        http=ClientCertificateProtocol,
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nobody stands before us, so nobody's word about the caller counts
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_S,
    )
    return EmbeddedServer(config)
