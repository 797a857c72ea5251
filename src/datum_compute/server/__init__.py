"""The Kubernetes API over the store: routes, admission chain, watch streams, discovery, OpenAPI.

May not enter: state of its own, controllers.
"""
