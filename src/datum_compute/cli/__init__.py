"""The command line: ``datumctl compute <verb>``, also ``kubectl compute <verb>``.

One file per verb, ending in ``COMMAND = ...`` and listed by hand in ``commands.py``. A verb reads
its options, talks to one plane through a client and prints: data on stdout, everything else
(plans, progress, prompts, errors) on stderr. ``context.py`` alone knows the environment and the
wall clock; ``session.py`` alone starts the event loop.

May not enter: logic that the API lacks; the store, the server, controllers. Only ``local.py`` may
know the app room.

To add a verb: write ``cli/<verb>.py`` and add its line to ``commands.py``. Importing this package
must stay cheap, because a shell starts it at every press of TAB: import libraries in the modules
that need them, never here.
"""

from __future__ import annotations


def main() -> int:
    """Console script; the exit code is the answer (table in ``errors.py``)."""
    from datum_compute.cli.context import process_surroundings
    from datum_compute.cli.entry import run
    from datum_compute.telemetry.broken_pipe import quiet_when_unread

    surroundings, arguments = process_surroundings()
    return quiet_when_unread(run)(arguments, surroundings)
