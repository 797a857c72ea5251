"""Typed access to one plane: get, list, watch, create, apply, patch, delete, over any transport.

Start with ``client.py`` (requests), then ``watch.py`` (a watch that resumes after failures) and
``connect.py`` (from a connection to a transport with authentication and retries).

To add an authentication method: a value in ``auth/connection.py``, its parser in
``auth/kubeconfig.py``, and a case in ``connect.py``. This package must not cache objects, import
the server or read the environment.
"""
