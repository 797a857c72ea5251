"""``compute-manager``: the controllers without the planes, against any Kubernetes-like APIs.

The planes are the contexts of a kubeconfig: ``platform``, ``hub``, ``project/<name>``,
``cell/<name>``. Each group of controllers runs only if its flag is given.
"""

from __future__ import annotations
