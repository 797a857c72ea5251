"""The Kubernetes API over the store: routes, admission chain, watch streams, discovery, OpenAPI.

May not enter: state that outlives a request (but for counts of what is under way, and what can be
worked out anew from the store at any time), controllers, wall clock, randomness, threads.
Reading order: ``apiserver.py`` (one request from start to end), then the file of a verb
(``create``, ``update``, ``patch``, ``delete``, ``read``, ``watch``). ``asgi.py`` puts it on a
socket.
To add: a patch type is a function listed in ``patch.py``; a body format one listed in
``document.py``; a way to show objects a class listed in ``representation.py``; a subresource a
function listed in ``update.py``. Who may do what is a matter of ``access``.
"""
