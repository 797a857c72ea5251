"""Labels, annotations, finalizers and tags that planes and controllers share."""

from __future__ import annotations

_COMPUTE = "compute.datumapis.com/"
_META = "meta.datumapis.com/"
_NETWORKING = "networking.datumapis.com/"
_IPAM = "ipam.miloapis.com/"
_QUOTA = "quota.miloapis.com/"
_MANAGER = "resourcemanager.miloapis.com/"
_SERVICES = "services.miloapis.com/"

# Labels of Instances and WorkloadDeployments. They are the same on every plane.
WORKLOAD_UID = _COMPUTE + "workload-uid"
WORKLOAD_NAME = _COMPUTE + "workload-name"
DEPLOYMENT_NAME = _COMPUTE + "workload-deployment-name"
# UID of the deployment on the plane of the writer. It does not match objects of other planes.
DEPLOYMENT_UID = _COMPUTE + "workload-deployment-uid"
PLACEMENT_NAME = _COMPUTE + "placement-name"
CITY_CODE = _COMPUTE + "city-code"
INSTANCE_INDEX = _COMPUTE + "instance-index"

# Label of a copy of an Instance: the cell that runs and writes the original.
CELL = _COMPUTE + "cell"

# Annotation of a template. A new value changes the template, so it replaces each instance.
RESTARTED_AT = _COMPUTE + "restartedAt"
# The same for one city. It is set in the template of its deployment, from spec.restarts.
CITY_RESTARTED_AT = _COMPUTE + "cityRestartedAt"

# Annotation of a Workload: placements that moved to fallback cities before this time move back.
RETURNED_AT = _COMPUTE + "returned-at"
# Annotation of a WorkloadDeployment in a project: the failed city that it replaces.
FALLBACK_FOR = _COMPUTE + "fallback-for"

# Annotation of a Workload: the user who last changed its spec, set by the server.
CHANGED_BY = _COMPUTE + "changed-by"

# Annotation of a Workload: the last deploy with an idempotency key, as JSON. A retry with the same
# key does not deploy again.
DEPLOY = _COMPUTE + "deploy"
# Annotation of a Workload: the last ``rollout undo``, as JSON: ``restores`` is the revision whose
# template it restored, ``replaces`` the newest revision at that time.
ROLLBACK = _COMPUTE + "rollback"

# Label of a Project: its organization. Annotation of a Project: its creator, set by the server.
ORGANIZATION = _MANAGER + "organization-name"
CREATED_BY = _MANAGER + "created-by"
# Label of the namespace ``default`` of a project.
PROJECT_DEFAULT = "miloapis.com/project-default"

# Label of objects that an entitlement created: its name. Label of an entitlement that another one
# requires: the name of that one.
ENTITLEMENT = _SERVICES + "entitlement"
DEPENDENCY_OF = _SERVICES + "dependency-of"
# Annotation of a grant: the default limit with which it was created. While it equals the grant, the
# grant follows the default limit of the service.
DEFAULT_LIMIT = _SERVICES + "default-limit"
LIMIT = _SERVICES + "limit"  # label of a grant: the name of its limit

# Annotation of the namespace ``default`` of a project: the plane is being deleted, create nothing.
REVOKED = _COMPUTE + "revoked"

# Label of a hub deployment and of a Cluster. Policies match both.
TOPOLOGY_CITY = "topology.datum.net/city-code"

# Annotation of a Cluster that leaves: do not wait for confirmations of the cell.
FORCED_LEAVE = _COMPUTE + "forced-leave"

# Labels of a hub namespace and its objects: the original namespace and project.
UPSTREAM_NAMESPACE = _META + "upstream-namespace"
UPSTREAM_CLUSTER = _META + "upstream-cluster-name"

# Label of objects that remain on other planes after the plane of their project was removed.
PROJECT_REMOVED = _META + "project-removed"

# Annotations that pass the generation of the project to the cell and back.
SOURCE_GENERATION = _COMPUTE + "source-generation"
SOURCE_TEMPLATE_HASH = _COMPUTE + "source-template-hash"
FEDERATION_NAMESPACE = _COMPUTE + "federation-namespace"

# Annotations of deployments: the referenced ConfigMaps and Secrets, and their state in the project.
# Labels and annotations of the copies of these: that they are copies, their version and users.
EXPECTED_DATA = _COMPUTE + "expected-referenced-data"
RESOLVED_DATA = _COMPUTE + "resolved-referenced-data"
REFERENCED_DATA = _COMPUTE + "referenced-data"
SOURCE_VERSION = _COMPUTE + "source-version"
REFERENCED_BY = _COMPUTE + "referenced-by"

# Labels of ResourceClaims: the cell of the claim, and the namespace of the Instance there.
SOURCE_CLUSTER = _COMPUTE + "source-cluster"
INSTANCE_NAMESPACE = _COMPUTE + "instance-namespace"

# Labels of NetworkBindings: the network, location and context.
NETWORK = _NETWORKING + "network"
LOCATION = _NETWORKING + "location"
NETWORK_CONTEXT = _NETWORKING + "network-context"
# Annotation of NetworkContexts: the last binding (planning/network/networks.py).
LAST_HOLDER = _NETWORKING + "last-holder"

# Labels of IPAllocations: the pool, and the project and UID of the holder.
POOL = _IPAM + "pool"
HOLDER_PROJECT = _IPAM + "project"
HOLDER_UID = _IPAM + "holder-uid"

# Labels of AllowanceBuckets: the consumer.
CONSUMER_KIND = _QUOTA + "consumer-kind"
CONSUMER_NAME = _QUOTA + "consumer-name"

# Tag that maps a Server to its Instance, as namespace/name/uid. The label contains only the UID, so
# that the Servers of an Instance can be selected.
INSTANCE_TAG = _COMPUTE + "instance"
INSTANCE_UID = _COMPUTE + "instance-uid"

# Annotation of a copy of an Instance on the hub: cell and UID of the original, as cell/uid.
COPY_OF = _COMPUTE + "copy-of"

# Annotations of copies that cannot be assigned to a project: reason, message, fingerprint and time.
QUARANTINE_REASON = _COMPUTE + "quarantine-reason"
QUARANTINE_MESSAGE = _COMPUTE + "quarantine-message"
QUARANTINE_FINGERPRINT = _COMPUTE + "quarantine-fingerprint"
QUARANTINED_AT = _COMPUTE + "quarantined-at"
QUARANTINE = (QUARANTINE_REASON, QUARANTINE_MESSAGE, QUARANTINE_FINGERPRINT, QUARANTINED_AT)

# Annotation of a binding on the hub: clusters to which the policy suspends propagation.
HELD_BY_POLICY = _COMPUTE + "held-by-policy"

# Finalizers. Each is named after the controller that removes it.
WORKLOAD_FINALIZER = _COMPUTE + "workload-controller"
FEDERATOR_FINALIZER = _COMPUTE + "federator"
REFERENCED_DATA_FINALIZER = _COMPUTE + "referenced-data-controller"
# Only instances of earlier versions have it. It is removed.
INSTANCE_FINALIZER = _COMPUTE + "instance-controller"
PROVISIONER_FINALIZER = _COMPUTE + "provisioner"
CLAIM_FINALIZER = "quota.compute.datumapis.com/claim-cleanup"
NETWORK_FINALIZER = _NETWORKING + "network-controller"
SUBNET_FINALIZER = _NETWORKING + "subnet-prefix-release"
PROJECT_FINALIZER = _MANAGER + "project-controller"
ENTITLEMENT_FINALIZER = _SERVICES + "service-entitlement"
# Finalizer of a ServiceConsumer: workloads of the project may be running.
CONSUMER_FINALIZER = _COMPUTE + "service-consumer"
DRIVER_FINALIZER = "region.datumapis.com/driver"
# Finalizers for copies on other planes. On a plane without copies no controller removes them.
FEDERATION_FINALIZERS = frozenset({FEDERATOR_FINALIZER, INSTANCE_FINALIZER})
BINDING_FINALIZER = "karmada.io/binding-controller"
EXECUTION_FINALIZER = "karmada.io/execution-controller"
CLUSTER_FINALIZER = "karmada.io/cluster-controller"

# Finalizers of Kubernetes for foreground and orphan deletion.
FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"

# All finalizers that the platform removes. A test checks that the list is complete.
PLATFORM_FINALIZERS = frozenset(
    {
        WORKLOAD_FINALIZER,
        FEDERATOR_FINALIZER,
        REFERENCED_DATA_FINALIZER,
        INSTANCE_FINALIZER,
        PROVISIONER_FINALIZER,
        CLAIM_FINALIZER,
        NETWORK_FINALIZER,
        SUBNET_FINALIZER,
        PROJECT_FINALIZER,
        ENTITLEMENT_FINALIZER,
        CONSUMER_FINALIZER,
        DRIVER_FINALIZER,
        BINDING_FINALIZER,
        EXECUTION_FINALIZER,
        CLUSTER_FINALIZER,
        FOREGROUND_FINALIZER,
        ORPHAN_FINALIZER,
    }
)

# Labels and annotations of Karmada on the copies that the propagator manages.
MANAGED = "karmada.io/managed"
WORK_NAMESPACE = "work.karmada.io/namespace"
WORK_NAME = "work.karmada.io/name"
BINDING_ID = "resourcebinding.karmada.io/permanent-id"

# Label of objects that only controllers of the platform create. Only these are cleaned up.
MANAGED_BY = "app.kubernetes.io/managed-by"
PRODUCT = "datum-compute"
