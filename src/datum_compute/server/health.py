"""Health and version: the paths that answer without a token."""

from __future__ import annotations

from collections.abc import Callable

from datum_compute import __version__
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.encoding.responses import json_answer, text_answer

# The Kubernetes release whose API this server speaks.
MAJOR, MINOR = "1", "34"

PATHS = ("/healthz", "/livez", "/readyz", "/version")


def health_answer(path: str, is_ready: Callable[[], bool]) -> Response:
    if path == "/version":
        return json_answer(version_info())
    if path == "/readyz" and not is_ready():
        return text_answer("not ready: the platform is starting or stopping", status=503)
    return text_answer("ok")


def version_info() -> JsonObject:
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.0+datum-{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
