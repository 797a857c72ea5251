"""Process entry points and wiring: everything is constructed here, by hand, top to bottom.

Start with ``local_server.py`` (all planes in one process), then ``platform.py`` and ``process.py``.
Only this package reads the clock, randomness and the environment, and passes them to the others.
This package must not contain decisions of controllers.
"""
