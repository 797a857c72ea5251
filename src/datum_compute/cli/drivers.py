"""What runs the instances of the cells, as the platform tells it: the driver, whose engine, and
whether that answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datum_compute.api.errors import ApiError
from datum_compute.api.gateway import drivers_path
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.output import one_line
from datum_compute.cli.planegateway import PlaneGateway
from datum_compute.client.client import Client


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver that some cells have in common.

    ``words`` name the engine, or the reason why it does not answer. ``without_init`` counts the
    containers of these cells for which the engine had no init process.
    """

    driver: str
    why: str
    engine: str
    answers: bool
    words: str
    cells: tuple[str, ...] = ()
    without_init: int = 0

    @property
    def sentence(self) -> str:
        if self.driver == "simulated":
            told = "simulated, nothing really runs"
        elif self.driver == "pods":
            told = "pods of the cluster that their cell is"
        elif self.driver != "containers":
            told = f"not known: {self.words.rstrip('.')}"
        elif self.answers:
            told = f"containers of {self.words} at {self.engine}"
        else:
            told = (
                f"containers, but {self.words.rstrip('.')}; what runs goes on, nothing new starts"
            )
        return f"{told} ({self.why})" if self.why else told

    @property
    def document(self) -> JsonObject:
        return {
            "cells": list(self.cells),
            "driver": self.driver,
            "why": self.why,
            "engine": self.engine or None,
            "answers": self.answers,
            "words": self.words,
            "withoutInit": self.without_init,
        }


async def read_drivers(client: Client | PlaneGateway, namespace: str) -> list[Driver]:
    """None of a platform that does not tell."""
    try:
        items = (await client.ask(drivers_path(namespace)))["items"]
    except (ApiError, KeyError):
        return []
    merged: dict[Driver, Driver] = {}
    for item in items:
        found = _driver(item)
        known = merged.get(found, found)
        cells = (*known.cells, str(item.get("cell", "")))
        without_init = known.without_init + int(item.get("withoutInit", 0))
        merged[found] = replace(known, cells=cells, without_init=without_init)
    return list(merged.values())


def sentences(drivers: Sequence[Driver]) -> list[str]:
    """One for each driver; cells are named where they differ."""
    if len(drivers) == 1:
        return [f"Instances are {drivers[0].sentence}."]
    return [f"Instances of {', '.join(d.cells)} are {d.sentence}." for d in drivers]


def _driver(item: JsonObject) -> Driver:
    return Driver(
        driver=str(item.get("driver", "")),
        why=one_line(str(item.get("why", ""))),
        engine=str(item.get("engine", "")),
        answers=bool(item.get("answers")),
        words=one_line(str(item.get("words", ""))),
    )
