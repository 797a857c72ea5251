"""What a real Kubernetes has beside its API server: garbage collection and namespace removal."""
