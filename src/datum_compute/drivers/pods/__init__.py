"""Machines that are pods of the cluster that the cell is.

- ``making.py``: a Server as a pod. Pure.
- ``state.py``: a pod as the state of a machine. Pure.
- ``port.py``: what is asked of the cluster; the process that has a client fills it in.
- ``driver.py``: the driver itself.

ConfigMaps and Secrets lie beside the Server, in its namespace, under their own names: the pod
refers to them as the template does, and the kubelet reads them. Nothing secret passes through here.
"""
