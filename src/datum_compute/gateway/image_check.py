"""Image check: a cell checks whether an image can be pulled, before anything is deployed.

Users who can deploy in a project can check images, with the names of pull secrets of the project.
The gateway reads the secrets and sends their content only to the cell, which sends it only to the
registry of the secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from datum_compute.api.compute.instance import PullPolicy
from datum_compute.api.compute.referenced_data import DOCKER_CONFIG_KEY
from datum_compute.api.errors import BadRequest, MethodNotAllowed, NotFound
from datum_compute.api.gateway import GatewayReason, gateway_not_found
from datum_compute.api.http import Request
from datum_compute.api.kinds import SECRET
from datum_compute.api.meta.codec import ApiStruct, DecodeError, decode_as
from datum_compute.api.meta.fields import IMAGE, PATTERN_DESCRIPTIONS
from datum_compute.api.meta.names import dns_subdomain_problem
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PlaneName, cell_plane, plane_role
from datum_compute.api.schema.regex import compile_search
from datum_compute.client.client import Client
from datum_compute.drivers.queries import ImageCheck
from datum_compute.gateway.cells import CellEndpoint, CellEndpoints

SECRETS_MAX = 20
_IMAGE_CHARS_MAX = 1024
_POLICIES = get_args(PullPolicy)
_is_image = compile_search(IMAGE)


class ImageCheckRequest(ApiStruct, frozen=True, kw_only=True):
    """``secrets`` are names of Secrets of a project. ``configs`` are their contents, for a cell."""

    image: str
    policy: str = ""
    city: str = ""
    secrets: list[str] = []
    configs: list[str] = []  # base64


def decode_image_request(request: Request, plane: PlaneName) -> ImageCheckRequest:
    """Decode the query of a user, or the body of the hub, which contains secrets."""
    of_cell = plane_role(plane) == "cell"
    if request.method != ("POST" if of_cell else "GET"):
        raise MethodNotAllowed("image checks use GET; the hub uses POST")
    query = request.query
    try:
        if of_cell:
            image_request = decode_as(request.body, ImageCheckRequest)
        else:
            image_request = ImageCheckRequest(
                image=query.get("image", ""),
                policy=query.get("policy", ""),
                city=query.get("city", ""),
                secrets=decode_as(query.get("secrets", "[]").encode(), list[str]),
            )
    except DecodeError as error:
        raise BadRequest(f"the image check is invalid: {error}") from error
    if len(image_request.image) > _IMAGE_CHARS_MAX or not _is_image(image_request.image):
        raise BadRequest(f"image must be {PATTERN_DESCRIPTIONS[IMAGE]}")
    if image_request.policy not in _POLICIES:
        raise BadRequest(f"policy must be one of {', '.join(filter(None, _POLICIES))}, or empty")
    if any(dns_subdomain_problem(name) for name in image_request.secrets):
        raise BadRequest("secrets must be names of Secrets")
    if max(len(image_request.secrets), len(image_request.configs)) > SECRETS_MAX:
        raise BadRequest(f"use at most {SECRETS_MAX} secrets")
    return image_request


@dataclass(frozen=True, slots=True)
class ImageChecker:
    client_of: Callable[[PlaneName], Client]
    endpoints: CellEndpoints

    async def check(
        self, plane: PlaneName, namespace: str, request: ImageCheckRequest
    ) -> ImageCheck:
        if plane_role(plane) == "cell":
            (endpoint,) = self.endpoints.select(plane)
            configs = _decode_configs(request.configs)
        else:
            configs = await self._read_configs(plane, namespace, request.secrets)
            endpoint = self._find_endpoint(request.city)
        return await endpoint.check_image(request.image, request.policy, configs)

    def _find_endpoint(self, city: str) -> CellEndpoint:
        """Return the cell that has the name of the city, else any: all use the same registries."""
        try:
            plane = cell_plane(city.lower()) if city else None
        except ValueError:
            plane = None
        if plane is not None and self.endpoints.has_cell(plane):
            return self.endpoints.select(plane)[0]
        endpoints = self.endpoints.select(None)
        if not endpoints:
            raise gateway_not_found(GatewayReason.INSTANCES_SIMULATED)
        return endpoints[0]

    async def _read_configs(
        self, plane: PlaneName, namespace: str, names: list[str]
    ) -> tuple[bytes, ...]:
        """Read the existing secrets. Controllers report missing ones."""
        client, found = self.client_of(plane), []
        for name in names:
            try:
                secret = await client.get(SECRET, Ref(namespace, name))
            except NotFound:
                continue
            if config := secret.data.get(DOCKER_CONFIG_KEY):
                found.append(config)
        return _decode_configs(found)


def _decode_configs(configs: list[str]) -> tuple[bytes, ...]:
    try:
        return tuple(base64.b64decode(config) for config in configs)
    except binascii.Error as error:
        raise BadRequest("configs are base64") from error
