"""Typed access to one plane: get, list, watch, create, patch, delete, over any transport.

May not enter: caches, the server, decisions.
A ``Transport`` carries a Request and gives a Response: over a socket (``http.py``) or straight to
the server's dispatch in the same process (``inprocess.py``).
"""
