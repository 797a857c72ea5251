"""A client that sends the steps of a sequence to an API server."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.differential.steps import Response, Step, fill_references

TIMEOUT_S = 30
_COMPARED_HEADERS = ("content-type", "warning", "retry-after")


@dataclass(frozen=True)
class ApiServer:
    name: str
    server: str
    token: str
    trust: ssl.SSLContext

    def run(self, steps: Iterable[Step]) -> dict[str, Response]:
        responses: dict[str, Response] = {}
        for step in steps:
            responses[step.name] = self._send_until_expected(step, responses)
        return responses

    def _send_until_expected(self, step: Step, responses: dict[str, Response]) -> Response:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            response = self._send(step, responses)
            if step.until in (0, response.code) or time.monotonic() > deadline:
                return response
            time.sleep(0.1)

    def _send(self, step: Step, responses: dict[str, Response]) -> Response:
        host = urlsplit(self.server).netloc
        connection = http.client.HTTPSConnection(host, context=self.trust, timeout=TIMEOUT_S)
        path, query = fill_references(step.path, responses), fill_references(step.query, responses)
        headers = {"User-Agent": "differential/1", **step.headers}
        if self.token and step.token:
            headers.setdefault("authorization", f"Bearer {self.token}")
        body = fill_references(step.body, responses)
        sent = body.encode() if isinstance(body, str) else json.dumps(body) if body else None
        try:
            connection.request(step.method, f"{path}?{query}" if query else path, sent, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        named = {name.lower(): value for name, value in response.getheaders()}
        kept = {name: named[name] for name in _COMPARED_HEADERS if name in named}
        return Response(response.status, kept, _parse_body(text, watch=step.watch))


def _parse_body(text: str, *, watch: bool) -> Any:
    try:
        if watch:
            events = [json.loads(line) for line in text.splitlines()]
            # Servers choose when to send bookmarks, except the one after the initial events.
            return [e for e in events if e.get("type") != "BOOKMARK" or _ends_initial_events(e)]
        return json.loads(text)
    except ValueError:
        return text


def _ends_initial_events(event: Any) -> bool:
    annotations = event["object"]["metadata"].get("annotations") or {}
    return "k8s.io/initial-events-end" in annotations
