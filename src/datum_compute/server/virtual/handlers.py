"""The handlers for creates of kinds that are not stored, and the handler of token requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import Cause, MethodNotAllowed
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import SERVICE_ACCOUNT
from datum_compute.api.membership import CELL_JOIN
from datum_compute.api.meta.codec import JsonObject, decode, from_json
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.reviews import REVIEWS, TOKEN_REQUEST, TokenRequestSpec
from datum_compute.server.access.client_certificates import Certify
from datum_compute.server.access.request_authenticator import RequestAuthenticator
from datum_compute.server.access.service_accounts import ISSUER, Account, ServiceAccountTokens
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import build_review_resource
from datum_compute.server.encoding.request_options import parse_dry_run
from datum_compute.server.encoding.responses import conflict, json_response, not_found
from datum_compute.server.routing import ApiRequest
from datum_compute.server.virtual.cell_join import CellJoinHandler
from datum_compute.server.virtual.reviews import ReviewHandler, read_review

VirtualHandler = Callable[[ApiRequest], Awaitable[Response]]


class VirtualKinds:
    """The handlers of creates, by the resource and the subresource of their routes.

    ``send_as_registrar`` runs a request with the permissions to register cells.
    """

    def __init__(
        self,
        context: ServerContext,
        authenticator: RequestAuthenticator,
        service_accounts: ServiceAccountTokens | None,
        certify: Certify | None,
        send_as_registrar: Callable[[Request], Awaitable[Response]],
    ) -> None:
        reviews = ReviewHandler(authenticator, context.authorizer)
        joins = CellJoinHandler(context.store, context.clock, send_as_registrar, certify)
        handlers: dict[tuple[str, str], VirtualHandler] = {
            (kind.resource, ""): reviews.handle for kind in REVIEWS
        }
        handlers[CELL_JOIN.resource, ""] = joins.handle
        handlers[SERVICE_ACCOUNT.resource, "token"] = partial(
            create_token, context, service_accounts
        )
        self._handlers = handlers

    def create(self, request: ApiRequest) -> Awaitable[Response]:
        """Respond to a create whose object is not stored."""
        return self._handlers[request.kind.resource, request.route.subresource](request)


# --- POST to ``serviceaccounts/NAME/token``: issues a token for a service account


LIFETIME_MIN_S, LIFETIME_MAX_S = 600, 24 * 3600
_AUDIENCES_MAX = 16
_RESOURCE = build_review_resource(TOKEN_REQUEST)


async def create_token(
    context: ServerContext, tokens: ServiceAccountTokens | None, request: ApiRequest
) -> Response:
    """``tokens`` is None if the server has no key to sign tokens with."""
    if tokens is None:
        raise MethodNotAllowed("this server has no key to sign tokens with")
    obj, headers = read_review(request, _RESOURCE)
    spec = from_json(obj.get("spec", {}), TokenRequestSpec)
    causes = _validate(spec)
    if causes:
        raise invalid(TOKEN_REQUEST, request.route.name, causes)
    account = _find_account(context, request)
    audiences = spec.audiences or [ISSUER]
    status: JsonObject = {"token": "", "expirationTimestamp": None}
    if not parse_dry_run(request.query):
        token, until_s = tokens.issue(
            account, audiences, spec.expiration_seconds, context.new_uid()
        )
        status = {"token": token, "expirationTimestamp": timestamp(until_s)}
    response = {
        "kind": TOKEN_REQUEST.kind,
        "apiVersion": TOKEN_REQUEST.api_version,
        "metadata": {
            "name": account.name,
            "namespace": account.namespace,
            "creationTimestamp": timestamp(context.clock()),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": spec.expiration_seconds,
            "boundObjectRef": None,
        },
        "status": status,
    }
    return json_response(response, status=201, headers=headers)


def _find_account(context: ServerContext, request: ApiRequest) -> Account:
    record = context.store.get(request.plane, request.key)
    if record is None:
        raise not_found(request.kind, request.route.name)
    if "deletionTimestamp" in decode(record.body)["metadata"]:
        raise conflict(request.kind, request.route.name, "the service account is being deleted")
    return Account(request.plane, record.key.namespace, record.key.name, record.uid)


def _validate(spec: TokenRequestSpec) -> list[Cause]:
    causes = []
    seconds = spec.expiration_seconds
    if not LIFETIME_MIN_S <= seconds <= LIFETIME_MAX_S:
        why = f"must be between {LIFETIME_MIN_S} (10 minutes) and {LIFETIME_MAX_S} (24 hours)"
        causes.append(Cause.invalid("spec.expirationSeconds", why, str(seconds)))
    if spec.bound_object_ref is not None:
        why = "tokens are bound to their service account only"
        causes.append(Cause.forbidden("spec.boundObjectRef", why))
    if len(spec.audiences) > _AUDIENCES_MAX or not all(spec.audiences):
        why = f"must be at most {_AUDIENCES_MAX} names, none of them empty"
        causes.append(Cause.invalid("spec.audiences", why, str(len(spec.audiences))))
    return causes
