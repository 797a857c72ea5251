"""The HTTP/1.1 server: from a socket to the dispatch function of the server and back.

Start with ``server.py`` (accepts connections, enforces deadlines, stops), then ``connection.py``
(one connection), ``request_parser.py`` and ``response_writer.py``. ``connection_table.py`` and
``send_budget.py`` apply limits and choose the connection to close at a limit. ``memory.py`` returns
freed memory to the system.

Rules: responses are sent in the order of their requests. The server buffers at most one body and
one read of the socket for each client. Every wait for a client has a deadline. Invalid HTTP gets a
400 and the connection is closed; a transfer encoding other than chunked gets a 501.

This package does not depend on what a request means. A request may have an Upgrade header. If the
response is 101, the connection belongs to the responder until it ends. Otherwise that request is
the last one of its connection.
"""
