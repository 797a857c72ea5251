"""Labels, annotations, finalizers and tags: the words planes and controllers agree on."""

from __future__ import annotations

_COMPUTE = "compute.datumapis.com/"
_META = "meta.datumapis.com/"
_NETWORKING = "networking.datumapis.com/"
_IPAM = "ipam.miloapis.com/"
_QUOTA = "quota.miloapis.com/"
_MANAGER = "resourcemanager.miloapis.com/"
_SERVICES = "services.miloapis.com/"

# Labels on Instances (and WorkloadDeployments): self-describing on every plane.
WORKLOAD_UID = _COMPUTE + "workload-uid"
WORKLOAD_NAME = _COMPUTE + "workload-name"
DEPLOYMENT_NAME = _COMPUTE + "workload-deployment-name"
# The deployment's uid on the plane of whoever wrote it: it joins nothing across planes.
DEPLOYMENT_UID = _COMPUTE + "workload-deployment-uid"
PLACEMENT_NAME = _COMPUTE + "placement-name"
CITY_CODE = _COMPUTE + "city-code"
INSTANCE_INDEX = _COMPUTE + "instance-index"

# On the copies of an Instance: the cell that it runs on and that writes it.
CELL = _COMPUTE + "cell"

# Annotation of a template: a new value is a new template, and so replaces every instance.
RESTARTED_AT = _COMPUTE + "restartedAt"
# The same for one city: put into the template of its deployment, from spec.restarts.
CITY_RESTARTED_AT = _COMPUTE + "cityRestartedAt"

# Annotation of a Workload: shares that moved to fallback cities before then go back.
RETURNED_AT = _COMPUTE + "returned-at"
# Annotation of a project's WorkloadDeployment: the city whose share it has taken.
FALLBACK_FOR = _COMPUTE + "fallback-for"

# Annotation of a Workload: who changed its spec last, as the server knows it.
CHANGED_BY = _COMPUTE + "changed-by"

# Annotation of a Workload: the last deploy that came with a key (JSON), so that the same deploy
# can be told from another one when it is run again.
DEPLOY = _COMPUTE + "deploy"

# On a Project: the organization it belongs to, and (an annotation of the server's) who made it.
ORGANIZATION = _MANAGER + "organization-name"
CREATED_BY = _MANAGER + "created-by"
# On the namespace ``default`` of a project.
PROJECT_DEFAULT = "miloapis.com/project-default"

# On what an entitlement has made in its project: the name of the entitlement. On an entitlement
# that another one needs: the name of that other one.
ENTITLEMENT = _SERVICES + "entitlement"
DEPENDENCY_OF = _SERVICES + "dependency-of"
# Annotation of a grant: the limit it was made with; as long as it says that it follows the service.
DEFAULT_LIMIT = _SERVICES + "default-limit"
LIMIT = _SERVICES + "limit"  # the name of the limit, for those who look for its grant

# Annotation of a project's namespace ``default``: its plane is on its way out; make nothing anew.
REVOKED = _COMPUTE + "revoked"

# Routing: on the hub deployment and on the hub Cluster; policies match both.
TOPOLOGY_CITY = "topology.datum.net/city-code"

# On a Cluster that leaves: what its cell does not confirm is given up.
FORCED_LEAVE = _COMPUTE + "forced-leave"

# Identity of a hub namespace and of what lies in it.
UPSTREAM_NAMESPACE = _META + "upstream-namespace"
UPSTREAM_CLUSTER = _META + "upstream-cluster-name"

# On what a project has left behind on other planes, once its own plane is removed: nobody can be
# asked about it any more.
PROJECT_REMOVED = _META + "project-removed"

# Annotations that carry the project's generation to the cell and back.
SOURCE_GENERATION = _COMPUTE + "source-generation"
SOURCE_TEMPLATE_HASH = _COMPUTE + "source-template-hash"
FEDERATION_NAMESPACE = _COMPUTE + "federation-namespace"

# On deployments: what the project found of the ConfigMaps and Secrets they refer to. On the copies
# of those on hub and cells: that they are such copies, of which version, and for whom.
EXPECTED_DATA = _COMPUTE + "expected-referenced-data"
RESOLVED_DATA = _COMPUTE + "resolved-referenced-data"
REFERENCED_DATA = _COMPUTE + "referenced-data"
SOURCE_VERSION = _COMPUTE + "source-version"
REFERENCED_BY = _COMPUTE + "referenced-by"

# On ResourceClaims: the cell that asks, and the namespace of the Instance there.
SOURCE_CLUSTER = _COMPUTE + "source-cluster"
INSTANCE_NAMESPACE = _COMPUTE + "instance-namespace"

# On NetworkBindings: what they are about, so that they can be found by it.
NETWORK = _NETWORKING + "network"
LOCATION = _NETWORKING + "location"
NETWORK_CONTEXT = _NETWORKING + "network-context"
# On NetworkContexts: the last binding that used it (the reason is in planning/network/networks.py).
LAST_HOLDER = _NETWORKING + "last-holder"

# On IPAllocations: the pool, the project and the uid of whoever holds the prefix.
POOL = _IPAM + "pool"
HOLDER_PROJECT = _IPAM + "project"
HOLDER_UID = _IPAM + "holder-uid"

# On AllowanceBuckets: whose they are.
CONSUMER_KIND = _QUOTA + "consumer-kind"
CONSUMER_NAME = _QUOTA + "consumer-name"

# The tag that maps a Server back to its Instance: namespace/name/uid. The label carries the uid
# alone, so that all Servers of one Instance are found without a search.
INSTANCE_TAG = _COMPUTE + "instance"
INSTANCE_UID = _COMPUTE + "instance-uid"

# On the hub's copies of Instances: the cell and the uid there, as cell/uid.
COPY_OF = _COMPUTE + "copy-of"

# On those copies, if nobody can say whose they are: why, since when, and what they said.
QUARANTINE_REASON = _COMPUTE + "quarantine-reason"
QUARANTINE_MESSAGE = _COMPUTE + "quarantine-message"
QUARANTINE_FINGERPRINT = _COMPUTE + "quarantine-fingerprint"
QUARANTINED_AT = _COMPUTE + "quarantined-at"
QUARANTINE = (QUARANTINE_REASON, QUARANTINE_MESSAGE, QUARANTINE_FINGERPRINT, QUARANTINED_AT)

# On the hub's bindings: which clusters the policy holds, and no hold of the binding's own.
HELD_BY_POLICY = _COMPUTE + "held-by-policy"

# Finalizers, each named for the controller that releases it.
WORKLOAD_FINALIZER = _COMPUTE + "workload-controller"
FEDERATOR_FINALIZER = _COMPUTE + "federator"
REFERENCED_DATA_FINALIZER = _COMPUTE + "referenced-data-controller"
# Of instances of earlier versions only; it is taken off.
INSTANCE_FINALIZER = _COMPUTE + "instance-controller"
PROVISIONER_FINALIZER = _COMPUTE + "provisioner"
CLAIM_FINALIZER = "quota.compute.datumapis.com/claim-cleanup"
NETWORK_FINALIZER = _NETWORKING + "network-controller"
SUBNET_FINALIZER = _NETWORKING + "subnet-prefix-release"
PROJECT_FINALIZER = _MANAGER + "project-controller"
ENTITLEMENT_FINALIZER = _SERVICES + "service-entitlement"
# On a ServiceConsumer: workloads of the project may run.
CONSUMER_FINALIZER = _COMPUTE + "service-consumer"
DRIVER_FINALIZER = "region.datumapis.com/driver"
# Those that stand for a copy elsewhere; where there is no elsewhere, nobody takes them off.
FEDERATION_FINALIZERS = frozenset({FEDERATOR_FINALIZER, INSTANCE_FINALIZER})
BINDING_FINALIZER = "karmada.io/binding-controller"
EXECUTION_FINALIZER = "karmada.io/execution-controller"
CLUSTER_FINALIZER = "karmada.io/cluster-controller"

# Kubernetes' own: what is still to be done about the dependents of a terminating object.
FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"

# What the propagator stamps on the copies it manages (Karmada's own words).
MANAGED = "karmada.io/managed"
WORK_NAMESPACE = "work.karmada.io/namespace"
WORK_NAME = "work.karmada.io/name"
BINDING_ID = "resourcebinding.karmada.io/permanent-id"

# Marks objects that only our controllers make, so that only those are cleaned up.
MANAGED_BY = "app.kubernetes.io/managed-by"
PRODUCT = "datum-compute"
