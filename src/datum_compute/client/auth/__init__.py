"""Authentication of a client: kubeconfig files, credentials and ways to renew them.

Start with connection.py (how to reach a plane as one user, as values), then kubeconfig.py.
"""
