"""The TLS port: HTTP/1.1 from the socket to the server's dispatch and back.

``port.py`` starts and stops, ``acceptor.py`` accepts, ``connection.py`` is one connection,
``reader.py`` parses its bytes into requests, ``heads.py`` parses request heads, ``answers.py``
and ``outgoing.py`` answer, ``eager.py`` runs a request as far as it goes without waiting,
``switched.py`` is a connection that has left HTTP. ``limits.py`` has the limits. At a limit,
``connection_table.py`` and ``send_budget.py`` choose the connection to close. ``memory.py`` returns
freed memory to the system.

Rules kept: answers go out in the order of their requests; nothing a client sends makes the server
keep more than one body and one read of the socket for it; every wait for a client ends; what is
not HTTP is answered with 400 and the connection closed, never with a 5xx. Only a transfer encoding
other than chunked is answered with 501.

May not enter: what a request means. A request may ask to leave HTTP; if it is answered with 101,
the connection belongs to whoever answered (``switched.py``) until that ends. If it is not, it was
the last request of its connection.
"""
