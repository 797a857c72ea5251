"""An API server in this process, for tests and benchmarks: no socket, no disk.

Start with running_server.py. ``granting.py`` creates roles, ``definitions.py`` custom kinds.
"""
