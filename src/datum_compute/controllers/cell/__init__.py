"""At a point of presence: deployments become instances, instances become servers and machines."""
