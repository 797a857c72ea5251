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
    Verb(
        "deploy",
        "datum_compute.cli.commands.deploy",
        "Create or update a workload and wait for it.",
    ),
    Verb("diff", "datum_compute.cli.commands.diff", "Show what a file would change."),
    Verb(
        "status",
        "datum_compute.cli.commands.status",
        "Show the health of a workload, city by city.",
    ),
    Verb(
        "destroy",
        "datum_compute.cli.commands.destroy",
        "Delete a workload and wait until it is gone.",
    ),
    Verb(
        "scale", "datum_compute.cli.commands.scale", "Change how many instances run in each city."
    ),
    Verb("restart", "datum_compute.cli.commands.restart", "Replace every instance, in order."),
    Verb(
        "rollout",
        "datum_compute.cli.commands.rollout",
        "Follow, undo, restart, pause or resume a rollout.",
    ),
    Verb("workloads", "datum_compute.cli.commands.workloads", "List or describe workloads."),
    Verb("instances", "datum_compute.cli.commands.instances", "List or describe instances."),
    Verb("logs", "datum_compute.cli.commands.logs", "Show what a workload prints."),
    Verb("exec", "datum_compute.cli.commands.exec", "Run a command in an instance."),
    Verb(
        "open",
        "datum_compute.cli.commands.open",
        "Open a workload in a browser, or print its address.",
    ),
    Verb(
        "explain",
        "datum_compute.cli.commands.explain",
        "Say why a workload or instance is as it is.",
    ),
    Verb("doctor", "datum_compute.cli.commands.doctor", "Check everything a workload needs."),
    Verb("events", "datum_compute.cli.commands.events", "Show what happened to a workload lately."),
    Verb(
        "quota",
        "datum_compute.cli.commands.quota",
        "Show what the project uses and what it may use.",
    ),
    Verb("access", "datum_compute.cli.commands.access", "See or ask for access to compute."),
    Verb(
        "cities", "datum_compute.cli.commands.cities", "List the cities that workloads can run in."
    ),
    Verb(
        "instance-types",
        "datum_compute.cli.commands.instance_types",
        "List the sizes that instances can have.",
    ),
    Verb("export", "datum_compute.cli.commands.export", "Print a workload as a file to deploy."),
    Verb(
        "init", "datum_compute.cli.commands.init", "Write datum.toml, so that verbs need no name."
    ),
    Verb("cell", "datum_compute.cli.commands.cell", "Let cells join, drain them, let them leave."),
    Verb("local", "datum_compute.cli.local.up", "Run the whole platform on this machine."),
    Verb("version", "datum_compute.cli.commands.version", "Show the version."),
    Verb(
        "completion",
        "datum_compute.cli.commands.completion",
        "Print the completion script of a shell.",
    ),
)

# Words that people try as verbs, and the verb that has them.
INSIDE = {
    **dict.fromkeys(("history", "undo", "pause", "resume"), "rollout"),
    **dict.fromkeys(("up", "down", "backup", "restore", "reset"), "local"),
    **dict.fromkeys(("join", "drain", "undrain"), "cell"),
    "top": "instances",
    "describe": "workloads",
}
