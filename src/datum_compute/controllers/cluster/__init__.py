"""Controllers that a Kubernetes cluster has of its own: garbage collection, namespaces, CRDs.

They run only on planes of the embedded server. Start with garbage_collector.py.
"""
