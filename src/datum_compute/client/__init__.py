"""Typed access to one plane: get, list, watch, create, apply, patch, delete, over any transport.

May not enter: caches, the server, decisions, the environment.
A ``Transport`` carries a Request and gives a Response: over a socket (``http.py``) or straight to
the server's dispatch in the same process (``inprocess.py``). Others go around it: ``retrying.py``
tries again, ``authenticated.py`` signs in; ``connecting.py`` puts them together for a connection.
Start reading with ``client.py``, then ``watching.py`` (how a watch is kept alive for ever).
To add a way to sign in: a SignIn value in ``connection.py``, read in ``kubeconfig_users.py``, made
alive in a file of its own and listed in ``connecting.py``.
"""
