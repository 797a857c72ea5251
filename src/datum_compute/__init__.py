"""Run instances in many cities from one declarative, Kubernetes-compatible API."""

__version__ = "0.1.0"
