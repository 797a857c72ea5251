"""Every verb, by hand: its name, the module that ends in ``COMMAND = ...``, and one line of help.

The line stands here, and not only in the module, so that ``--help`` imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    module: str
    summary: str


VERBS: tuple[Verb, ...] = (
    Verb("deploy", "datum_compute.cli.deploy", "Create or update a workload and wait for it."),
    Verb("status", "datum_compute.cli.status", "Show the health of a workload, city by city."),
    Verb("destroy", "datum_compute.cli.destroy", "Delete a workload and wait until it is gone."),
    Verb("local", "datum_compute.cli.local", "Run the whole platform on this machine."),
    Verb("version", "datum_compute.cli.version", "Show the version."),
    Verb("completion", "datum_compute.cli.completion", "Print the completion script of a shell."),
)
