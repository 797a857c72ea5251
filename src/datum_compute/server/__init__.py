"""The Kubernetes API over the store: routes, admission chain, watch streams, discovery, OpenAPI.

Start with docs/internals/life-of-a-post.md and ``api_server.py`` (one request from start to end),
then the module of a verb in ``verbs``. ``discovery`` has the resources of each plane, ``access``
authenticates and authorizes, ``http`` connects the server to sockets.

To add a patch type, list a function in ``verbs/patch.py``; for a body format, in
``encoding/body.py``; for a form of responses, a class in ``encoding/representation.py``.

This package must not call controllers, the wall clock, randomness or threads. No state outlives a
request, except caches and the counts of requests in flight.
"""
