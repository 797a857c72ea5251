"""Servers as containers of podman or Docker, through the Docker-compatible API of its socket.

One Server is one group of containers in one network namespace. Read ``driver.py`` first: it keeps
one ``Machine`` for each Server and lets ``steps.py`` (pure) say what to do next. Everything that
the engine is asked goes through ``engine.py``.

Rules kept here: the engine is the only truth about containers (labels say whose they are, names
make a second one impossible); what outlives a restart beside it is a small table of ends
(``records.py``); nothing of another platform is touched; no secret is logged or put into an error.
"""
