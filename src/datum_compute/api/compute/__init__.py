"""Kinds of the group compute.datumapis.com, and the Server that a driver runs.

Start with workload.py (what users write), then deployment.py and instance.py.
"""
