"""What a real Kubernetes has beside its API server.

Garbage collection, emptying of namespaces and of custom kinds, and what every namespace holds.
These controllers run only beside the server of their planes and read what a plane holds from it
(``api/holdings.py``), so they need no cache of every kind and cost a settled plane no request.
"""
