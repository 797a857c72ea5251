"""Fakes: in-memory replacements for a Kubernetes pod API, a kubelet and a failing journal.

Unit tests use them instead of the simulator. A fake must pass the conformance suite of its seam, if
there is one.
"""
