"""Decisions about networks, subnets, prefixes and the addresses of instances.

Start with networks.py; prefixes.py keeps prefixes unique on the platform.
"""
