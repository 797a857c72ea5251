"""Uvicorn's HTTP protocol with two things it lacks: the client's certificate, and an end to
headers that never end."""

from __future__ import annotations

import asyncio
import ssl

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 128 * 1024


class ClientCertificateProtocol(HttpToolsProtocol):
    """Puts the certificate where the ASGI extension for TLS has it: ``client_cert_chain``."""

    _tls: dict[object, object]
    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        session = transport.get_extra_info("ssl_object")
        found = session.getpeercert(binary_form=True) if session is not None else None
        self._tls = {"client_cert_chain": [ssl.DER_cert_to_PEM_cert(found)] if found else []}

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if not (was_in_head and self._in_head):
            return  # a first piece may hold the end of another body; it is bounded anyway
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self.scope["extensions"] = {"tls": self._tls}

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
