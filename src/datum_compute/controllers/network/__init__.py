"""Controllers of networks, subnets and IP allocations in a project and on the platform.

Start with networks.py.
"""
