"""What the ingress publishes: its stored configuration, and the plan of its listeners.

The functions are pure. With the configuration alone the ingress can serve running machines while
the process of their cell does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Struct

from datum_compute.api.traffic import Backend
from datum_compute.ingress.protocol import DesiredOwner

FORMAT = 1

PortKey = tuple[str, str]  # owner and name


class ConfigurationError(Exception):
    """The content is not a configuration that this version can read."""


class StoredPort(Struct, frozen=True):
    number: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    backends: tuple[Backend, ...] = ()


class StoredOwner(Struct, frozen=True):
    """The ports of an owner. ``client`` identifies the cell process that publishes them."""

    client: str
    refused: bool = False
    ports: dict[str, StoredPort] = {}


class Configuration(Struct, frozen=True):
    format: int = FORMAT
    owners: dict[str, StoredOwner] = {}


def encode_configuration(
    owners: Mapping[str, StoredOwner], observe: Callable[[Backend], Backend]
) -> bytes:
    """Encode the owners. ``observe`` returns a backend with its current state."""
    observed = {
        owner: StoredOwner(
            stored.client,
            stored.refused,
            {
                name: StoredPort(port.number, tuple(map(observe, port.backends)))
                for name, port in stored.ports.items()
            },
        )
        for owner, stored in owners.items()
    }
    return msgspec.json.encode(Configuration(FORMAT, observed))


def decode_configuration(content: bytes) -> Configuration:
    try:
        found = msgspec.json.decode(content, type=Configuration)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(str(error)) from error
    if found.format != FORMAT:
        raise ConfigurationError(f"format {found.format} is not supported")
    return found


@dataclass(frozen=True, slots=True)
class ListenerPlan:
    """Listeners to open with their port numbers (0 for any free port), and listeners to close."""

    open: tuple[tuple[PortKey, int], ...] = ()
    close: tuple[PortKey, ...] = ()


def plan_listeners(desired: Mapping[PortKey, int], open_now: Mapping[PortKey, int]) -> ListenerPlan:
    """Plan the listeners. An open listener keeps its number, whatever number is desired."""
    return ListenerPlan(
        tuple((key, number) for key, number in desired.items() if key not in open_now),
        tuple(key for key in open_now if key not in desired),
    )


def desired_numbers(desired: DesiredOwner, open_now: Mapping[PortKey, int]) -> dict[PortKey, int]:
    """Return the port numbers of an owner: of its desired ports, and of open ports to keep."""
    kept = [key for key in open_now if key[0] == desired.owner and key[1] in desired.kept]
    found = {key: open_now[key] for key in kept}
    return found | {(desired.owner, name): port.last_port for name, port in desired.ports.items()}
