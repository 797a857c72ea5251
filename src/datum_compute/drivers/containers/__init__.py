"""Servers as containers of podman or Docker, through the Docker-compatible API of the socket.

A Server is a group of containers in one network namespace. Start with ``driver.py``: it keeps one
``Machine`` for each Server, and ``steps.py`` (pure) decides the next step. All requests to the
engine go through ``engine.py``.

- The engine is the only source of truth about containers. Labels record their owner, and names
  derived from the machine prevent duplicates. Only exits and sleep are kept in a file of our own.
- Containers of other platforms are never changed.
- Secrets are never logged or part of an error.
"""
