"""Which planes of projects a process works on, followed from what it can see: the projects of the
platform, or, on a cell, the homes of their namespaces on the hub. A process runs one of the two.
"""
