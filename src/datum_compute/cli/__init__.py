"""The command line: ``datumctl compute <verb>``, also ``kubectl compute <verb>``.

``commands`` has one module per verb, ending in ``COMMAND = ...`` and listed in ``groups.py``. A
verb parses its options, talks to one plane through a client and prints: data on stdout, everything
else (plans, progress, prompts, errors) on stderr. Only ``environment.py`` reads the environment and
the clock; only ``connect/session.py`` starts the event loop.

This package must not contain logic that the API lacks, and must not import the store, the server
or controllers. Only ``local`` may import app.

To add a verb: a module in ``commands`` and a line in ``groups.py``. A shell imports this package at
each press of TAB, so libraries are imported in the modules that need them, never here.
"""

from __future__ import annotations


def main() -> int:
    """Run the console script. Return the exit code (table in ``errors.py``)."""
    from datum_compute.cli.entry import run
    from datum_compute.cli.environment import read_process_environment
    from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe

    environment, arguments = read_process_environment()
    return exit_on_broken_pipe(run)(arguments, environment)
