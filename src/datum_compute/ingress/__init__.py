"""The ingress: a process that owns the published ports of a host, balances and holds connections.

Start with ``control.py``, which receives the desired ports from the processes of the cells
(``protocol.py``). ``proxy.py`` listens and forwards, ``balancer.py`` chooses the machine of a
connection, ``machines.py`` requests wakes, and ``configuration.py`` is what a restart starts from.
It never calls a driver, and imports ``api`` and ``server.http`` only.
"""
