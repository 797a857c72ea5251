"""Decisions of what a Kubernetes cluster does on its own: garbage collection and namespaces.

Start with garbage_collector.py. They apply only to planes of the embedded server.
"""
