"""The gateway: what instances say, use and run on request, for those who may in their project.

It stands before the API server and takes the paths below ``/gateway`` of a project's plane, and of
a cell's plane for the hub. ``gateway.py`` answers them, ``doorkeeper.py`` decides who may and
keeps the trail, ``ways.py`` finds the cell, which is of this process or, by ``remote.py``, another
one; ``talk.py`` is a command under way. Where API servers are others a manager serves it
(``app/gateway_server.py``), and ``reviewing.py`` decides.

To add a question: a word in ``gateway.py``, a method of ``CellWay``, its rule in
``planes/roles.py`` for people and for the hub on its cells.
"""
