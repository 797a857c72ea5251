"""Whether the images of a workload can be had, asked of the platform before it is deployed.

An image that its registry does not have, or does not give away, is a problem; a registry that
nobody reaches is only told: the cell may reach it later.
"""

from __future__ import annotations

import json

from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.workload import Workload
from datum_compute.api.errors import ApiError, NotFound, ServiceUnavailable
from datum_compute.api.gateway import NO_PROCESS, images_path
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.errors import ForbiddenError, MissingError, UsageError
from datum_compute.cli.output import one_line
from datum_compute.cli.session import Session

NOT_CHECKED = "not checked: nothing here can ask a registry about it"
NOTHING_PULLED = "instances are simulated here, no image is pulled"
_HINT = "Correct the reference or the pull secret, or deploy all the same with --skip-checks."


async def checked_images(session: Session, after: Workload) -> tuple[list[str], list[UsageError]]:
    """A line for each image, and what would keep the workload from running."""
    lines: dict[str, None] = {}
    problems: list[UsageError] = []
    for index, container in enumerate(after.spec.template.spec.runtime.sandbox.containers):
        verdict = await _verdict(session, after, container)
        line = f"{container.image}: {_told(verdict)}"
        refused = verdict.get("outcome") in ("missing", "denied")
        if refused and line not in lines:
            field = f"spec.template.spec.runtime.sandbox.containers[{index}].image"
            error = MissingError if verdict["outcome"] == "missing" else ForbiddenError
            problems.append(error(f"{field} names {line}.", _HINT, field=field))
        lines[line] = None
    return list(lines), problems


def _told(verdict: JsonObject) -> str:
    match verdict.get("outcome"):
        case "found":
            digest, words = verdict.get("digest", ""), verdict.get("words", "")
            return ", ".join(part for part in ("found", words, digest) if part)
        case "missing":
            return f"not found: {verdict['words']}"
        case "denied":
            return f"denied: {verdict['words']}"
        case "unknown":
            return f"not checked: {verdict['words']}"
        case _:
            return NOT_CHECKED


async def _verdict(session: Session, after: Workload, container: Container) -> JsonObject:
    """Empty where nobody can or may ask; who cannot be asked now is told."""
    sandbox = after.spec.template.spec.runtime.sandbox
    cities = [city for placement in after.spec.placements for city in placement.city_codes]
    query = {
        "image": container.image,
        "policy": container.image_pull_policy,
        "city": cities[0] if cities else "",
        "secrets": json.dumps([secret.name for secret in sandbox.image_pull_secrets]),
    }
    try:
        return await session.gateway.ask(images_path(session.namespace), query)
    except ServiceUnavailable as error:
        return {"outcome": "unknown", "words": one_line(error.message)}
    except NotFound as error:
        simulated = NO_PROCESS in error.message
        return {"outcome": "unknown", "words": NOTHING_PULLED} if simulated else {}
    except ApiError:
        return {}
