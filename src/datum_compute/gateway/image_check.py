"""Whether an image can be had, asked of a cell before anything is deployed.

People name pull secrets of their project; whoever may deploy there may ask. What the secrets hold
is read here, and goes to the cell (of this process, or as the hub to another) and to the registry
that they are for, nowhere else.
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
_IMAGE_MAX = 1024
_POLICIES = get_args(PullPolicy)
_is_image = compile_search(IMAGE)


class ImageQuestion(ApiStruct, frozen=True, kw_only=True):
    """``secrets`` are names, asked on a project; ``configs`` is what they hold, for a cell."""

    image: str
    policy: str = ""
    city: str = ""
    secrets: list[str] = []
    configs: list[str] = []  # base64


def read_question(request: Request, plane: PlaneName) -> ImageQuestion:
    """People ask with a query, which holds no secret; the hub with a body, because that does."""
    of_cell = plane_role(plane) == "cell"
    if request.method != ("POST" if of_cell else "GET"):
        raise MethodNotAllowed("images are asked about with GET, by the hub with POST")
    query = request.query
    try:
        if of_cell:
            asked = decode_as(request.body, ImageQuestion)
        else:
            asked = ImageQuestion(
                image=query.get("image", ""),
                policy=query.get("policy", ""),
                city=query.get("city", ""),
                secrets=decode_as(query.get("secrets", "[]").encode(), list[str]),
            )
    except DecodeError as error:
        raise BadRequest(f"the question about an image is not understood: {error}") from error
    if len(asked.image) > _IMAGE_MAX or not _is_image(asked.image):
        raise BadRequest(f"image must be {PATTERN_DESCRIPTIONS[IMAGE]}")
    if asked.policy not in _POLICIES:
        raise BadRequest(f"policy must be one of {', '.join(filter(None, _POLICIES))}, or empty")
    if any(dns_subdomain_problem(name) for name in asked.secrets):
        raise BadRequest("secrets must be names of Secrets")
    if len(asked.secrets) > SECRETS_MAX or len(asked.configs) > SECRETS_MAX:
        raise BadRequest(f"at most {SECRETS_MAX} secrets are tried")
    return asked


@dataclass(frozen=True, slots=True)
class ImageDesk:
    client_of: Callable[[PlaneName], Client]
    ways: CellEndpoints

    async def answer(self, plane: PlaneName, namespace: str, asked: ImageQuestion) -> ImageCheck:
        if plane_role(plane) == "cell":
            (way,) = self.ways.to(plane)
            return await way.check_image(asked.image, asked.policy, _decoded(asked.configs))
        configs = await self._configs(plane, namespace, asked.secrets)
        return await self._way(asked.city).check_image(asked.image, asked.policy, configs)

    def _way(self, city: str) -> CellEndpoint:
        """Of the city's own cell where its name tells, else of any: registries are the same."""
        try:
            plane = cell_plane(city.lower()) if city else None
        except ValueError:
            plane = None
        if plane is not None and self.ways.knows(plane):
            return self.ways.to(plane)[0]
        ways = self.ways.to(None)
        if not ways:
            raise gateway_not_found(GatewayReason.INSTANCES_SIMULATED)
        return ways[0]

    async def _configs(
        self, plane: PlaneName, namespace: str, names: list[str]
    ) -> tuple[bytes, ...]:
        """Of those secrets that there are; that others are missing is said elsewhere."""
        client, found = self.client_of(plane), []
        for name in names:
            try:
                secret = await client.get(SECRET, Ref(namespace, name))
            except NotFound:
                continue
            if config := secret.data.get(DOCKER_CONFIG_KEY):
                found.append(config)
        return _decoded(found)


def _decoded(configs: list[str]) -> tuple[bytes, ...]:
    try:
        return tuple(base64.b64decode(config) for config in configs)
    except binascii.Error as error:
        raise BadRequest("configs are base64") from error
