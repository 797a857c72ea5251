"""Two API servers that are asked the same: ours, in a process of its own, and kube-apiserver."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.differential.steps import Answer, Step, filled

PATIENCE_S = 30
_COMPARED_HEADERS = ("content-type", "warning", "retry-after")


@dataclass(frozen=True)
class ApiServer:
    name: str
    server: str
    token: str
    trust: ssl.SSLContext

    def run(self, steps: Iterable[Step]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for step in steps:
            answers[step.name] = self._until(step, answers)
        return answers

    def _until(self, step: Step, answers: dict[str, Answer]) -> Answer:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._ask(step, answers)
            if step.until in (0, answer.code) or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def _ask(self, step: Step, answers: dict[str, Answer]) -> Answer:
        host = urlsplit(self.server).netloc
        connection = http.client.HTTPSConnection(host, context=self.trust, timeout=PATIENCE_S)
        path, query = filled(step.path, answers), filled(step.query, answers)
        headers = {"User-Agent": "differential/1", **step.headers}
        if self.token and step.token:
            headers.setdefault("authorization", f"Bearer {self.token}")
        body = filled(step.body, answers)
        sent = body.encode() if isinstance(body, str) else json.dumps(body) if body else None
        try:
            connection.request(step.method, f"{path}?{query}" if query else path, sent, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        named = {name.lower(): value for name, value in answer.getheaders()}
        kept = {name: named[name] for name in _COMPARED_HEADERS if name in named}
        return Answer(answer.status, kept, _read(text, watch=step.watch))


def _read(text: str, *, watch: bool) -> Any:
    try:
        if watch:
            events = [json.loads(line) for line in text.splitlines()]
            # One is sent when the server likes, but for the end of the first state.
            return [e for e in events if e.get("type") != "BOOKMARK" or _ends_the_first(e)]
        return json.loads(text)
    except ValueError:
        return text


def _ends_the_first(event: Any) -> bool:
    annotations = event["object"]["metadata"].get("annotations") or {}
    return "k8s.io/initial-events-end" in annotations
