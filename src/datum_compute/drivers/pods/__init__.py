"""Servers as pods of the cluster that is the cell.

Start with ``driver.py``. ``pod_spec.py`` builds pods and ``status.py`` computes the state of a
machine from one; both are pure. The application implements the protocols on a client.

ConfigMaps and Secrets are in the namespace of the Server under their own names: the pod refers to
them, and the kubelet reads them. No secret passes through this process.
"""
