"""Controllers that copy deployments, instances and referenced objects between planes.

Start with deployment.py. They are the same on the embedded hub and on Karmada.
"""
