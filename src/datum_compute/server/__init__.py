"""The Kubernetes API over the store: routes, admission chain, watch streams, discovery, OpenAPI.

May not enter: state that outlives a request (but for counts of what is under way), controllers,
wall clock, randomness, threads.
What a plane serves is in ``catalogues.py``; custom kinds come from ``definitions.py`` (their life)
and ``customkinds.py`` (what they look like).
Reading order: ``apiserver.py`` (one request from start to end), then the file of a verb
(``create``, ``update``, ``patch``, ``apply``, ``delete``, ``read``, ``watch``). ``ownership``
works out who owns which field, ``protobuf`` reads what typed Go clients send. ``http`` puts it
all on a socket.
To add: a patch type is a function listed in ``patch.py``; a body format one listed in
``document.py``; a way to show objects a class listed in ``representation.py``; a subresource a
function listed in ``update.py``. Who may do what is a matter of ``access``.
"""
