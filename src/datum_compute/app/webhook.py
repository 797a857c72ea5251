"""The admission webhook of a manager: answers AdmissionReviews of API servers.

``/validate`` and ``/mutate`` decide for the project in the claims of the user (Milo's
``iam.miloapis.com/parent-name``), else for the plane in the path (``/validate/project/<name>``),
else for the only project. A request without a valid AdmissionReview gets a 4xx status. Every
decision, also a refusal, has status 200.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from datum_compute.admission.queries import Answers, Query
from datum_compute.admission.review import Requester, Review, decode_review, deny
from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.admission.webhook import ClientLookups, Webhook
from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    UnsupportedMediaType,
)
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import PLATFORM, PlaneName, plane_role
from datum_compute.app.listener import PortHandler, open_tls_port
from datum_compute.app.settings.settings import TlsPortSettings
from datum_compute.client.client import Client
from datum_compute.server.encoding.body import as_object, decode_json
from datum_compute.server.encoding.request_options import content_type
from datum_compute.server.encoding.responses import error_response, json_response, text_response

PARENT_TYPE, PARENT_NAME = "iam.miloapis.com/parent-type", "iam.miloapis.com/parent-name"

# deploy/webhook creates a Service of this name.
SERVICE_NAME, SERVICE_NAMESPACE = "compute-webhook", "kube-system"
SERVICE_DNS_NAME = f"{SERVICE_NAME}.{SERVICE_NAMESPACE}.svc"

_HEALTH = ("/healthz", "/readyz", "/livez")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookDispatcher:
    """Answers the requests of the webhook port."""

    clients: Mapping[PlaneName, Client]
    unix_s: Callable[[], float]
    deprecation_grace_s: float = DEPRECATION_GRACE_S

    async def dispatch(self, request: Request) -> Response:
        await asyncio.sleep(
            0
        )  # the HTTP server creates a task only for requests that wait; timeouts need a task
        try:
            return await self._answer(request)
        except ApiError as error:
            return error_response(error)

    async def _answer(self, request: Request) -> Response:
        if request.path in _HEALTH and request.method in ("GET", "HEAD"):
            return text_response("ok")
        step, _, plane = request.path.removeprefix("/").partition("/")
        if step not in ("mutate", "validate"):
            raise NotFound(f"there is no {request.path}; there are /mutate and /validate")
        if request.method != "POST":
            raise MethodNotAllowed(f"{request.method} is not supported here; use POST")
        if content_type(request.headers) != JSON:
            raise UnsupportedMediaType(f"send an AdmissionReview as {JSON}")
        review = decode_review(as_object(decode_json(request.body)))
        return json_response(await self._verdict(step, plane, review))

    async def _verdict(self, step: str, plane: str, review: Review) -> JsonObject:
        try:
            webhook = self._webhook(plane, review.requester)
            if step == "mutate":
                return webhook.mutate(review)
            return await webhook.validate(review)
        except ApiError as error:
            return deny(review, error)
        except Exception:
            _log.exception("a review of %r failed", review.resource.resource)
            return deny(review, InternalError("the review failed; the log has details"))

    def _webhook(self, in_path: str, requester: Requester) -> Webhook:
        async def answer_queries(user: Requester, queries: Sequence[Query]) -> Answers:
            plane = reviewed_plane(tuple(self.clients), in_path, requester)
            lookups = ClientLookups(self.clients[plane], self.clients.get(PLATFORM))
            return await lookups.answer(user, queries)

        return Webhook(answer_queries, self.unix_s, self.deprecation_grace_s)


def open_webhook_port(
    settings: TlsPortSettings, dispatcher: WebhookDispatcher, state: Path
) -> AbstractAsyncContextManager[int]:
    """Serve the webhook while the block runs; yield the port number."""
    handler = PortHandler("webhook", dispatcher.dispatch, dispatcher.unix_s, (SERVICE_DNS_NAME,))
    return open_tls_port(settings, handler, state)


def reviewed_plane(planes: Sequence[PlaneName], in_path: str, requester: Requester) -> PlaneName:
    """Return the plane that a write is for. A missing plane is an error, never another plane."""
    wanted = _claimed_project(requester) or in_path
    if wanted:
        if wanted not in planes:
            message = f"this manager has no access to {wanted} (yet); try again"
            raise ServiceUnavailable(message, retry_after_s=1)
        return PlaneName(wanted)
    projects = [plane for plane in planes if plane_role(plane) == "project"]
    if len(projects) != 1:
        raise BadRequest(
            "the project of this write is unknown: add the project to the path of the webhook, as "
            "in /validate/project/<name>"
        )
    return projects[0]


def _claimed_project(requester: Requester) -> str:
    types = requester.extra.get(PARENT_TYPE, ("Project",))
    names = requester.extra.get(PARENT_NAME, ())
    return f"project/{names[0]}" if names and tuple(types) == ("Project",) else ""
