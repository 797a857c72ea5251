"""Gateway: logs, usage, crash reports, commands and image checks of instances.

Start with ``gateway.py``: it serves the paths below ``/gateway`` on the planes of projects, and on
the planes of cells for the hub. ``authorizer.py`` checks access and writes the audit log,
``cells.py`` finds the cell of an instance, in this process or in another one. If the planes are
Kubernetes API servers, a manager serves the gateway (``app/gateway_server.py``).

To add an operation: a path in ``gateway.py``, a method of ``CellEndpoint``, and a rule in
``planes/roles.py`` for users and for the hub.
"""
