"""The type of a hostile request, and helpers to build one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api.http import JSON, Request
from datum_compute.api.meta.codec import encode

PROJECT_PREFIX = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/demo/control-plane"
PROJECT_TOKEN = "token-of-the-project"

Build = Callable[[], Sequence[Request]]


def no_requests() -> Sequence[Request]:
    return ()


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """Requests of a project user, and the expected response.

    The requests of ``setup`` are sent first and must succeed. ``requests`` are measured together:
    each response must have ``status``, and the message of the last one must contain ``mentions``.
    Both are built before the measurement starts. Streams stay open and unread until it ends.
    """

    name: str
    requests: Build
    status: int
    mentions: str = ""
    setup: Build = no_requests


def project_request(
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = JSON,
    accept: str = JSON,
    **query: str,
) -> Request:
    """A request of a project user to the plane of the project; ``path`` starts below the plane."""
    sent = body if isinstance(body, bytes) else b"" if body is None else encode(body)
    authorization = f"Bearer {PROJECT_TOKEN}"
    headers = {"authorization": authorization, "content-type": content_type, "accept": accept}
    return Request(method, PROJECT_PREFIX + path, query, headers, sent)
