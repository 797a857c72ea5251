"""Transports: they send a Request to a server and return its Response.

interface.py is the protocol. http1.py sends over a socket and in_process.py to a server in the same
process. retry.py and faults.py wrap another transport.
"""
