"""``deploy`` with nothing named, on a terminal: asks what to deploy."""

from __future__ import annotations

from dataclasses import replace

from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.cli.commands.cities import city_of
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import UsageError
from datum_compute.cli.names import NAME_RULE, is_workload_name, parse_cities
from datum_compute.cli.render.prompt import ask
from datum_compute.cli.workload.edits import Flags

_INSTANCES_MAX = 1000


async def ask_flags(session: Session, flags: Flags) -> Flags:
    """The flags, with what they leave open answered."""
    surroundings = session.surroundings
    listed = await session.client.list(LOCATION_BINDING)
    cities = sorted(city_of(binding) for binding in listed.items)
    session.note(f"Deploying to {session.place}. Ctrl-C leaves without a change.")
    name = ask(
        surroundings,
        "Name of the workload",
        _default_name(surroundings.cwd.name),
        lambda answer: "" if is_workload_name(answer) else NAME_RULE,
    )
    image = flags.image or ask(surroundings, "Image, with its tag")
    chosen = flags.cities or parse_cities(
        (
            ask(
                surroundings,
                f"Cities, separated by commas ({', '.join(cities)})",
                cities[0] if cities else "",
                lambda answer: _unknown_city(answer, cities),
            ),
        )
    )
    minimum = flags.minimum or int(ask(surroundings, "Instances in each city", "1", _no_count))
    return replace(flags, name=name, image=image, cities=chosen, minimum=minimum)


def _default_name(directory: str) -> str:
    return directory if is_workload_name(directory) else ""


def _unknown_city(answer: str, cities: list[str]) -> str:
    try:
        asked = parse_cities((answer,))
    except UsageError as error:
        return error.message
    unknown = [city for city in asked if city not in cities]
    return f"{unknown[0]} is none of {', '.join(cities)}." if unknown else ""


def _no_count(answer: str) -> str:
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= _INSTANCES_MAX:
        return ""
    return f"Write a number from 1 to {_INSTANCES_MAX}."
