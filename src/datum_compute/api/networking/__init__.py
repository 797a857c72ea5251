"""Kinds of the group networking.datumapis.com: networks and locations.

Start with network.py. Controllers create most of these objects; users create Networks.
"""
