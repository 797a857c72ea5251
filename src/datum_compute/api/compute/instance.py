"""Instance: one replica of a Workload. The object on the cell is the original; the hub and the
project have copies.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from datum_compute.api.compute.data_sources import (
    EnvFromSource,
    EnvVarSource,
    PinnedSources,
    PullSecret,
    Volume,
    VolumeAttachments,
)
from datum_compute.api.compute.scale_to_zero import ScaleToZero, Wake
from datum_compute.api.conditions import UNKNOWN, Condition, Conditions, unknown_conditions
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import (
    DNS_LABEL,
    IMAGE,
    MAP_BY_NAME,
    Cpu,
    DnsLabel,
    IpFamily,
    Memory,
    NamespacedReference,
    Port,
    PortName,
    SecretText,
    ShortText,
    doc,
    map_by,
)
from datum_compute.api.meta.objects import ApiObject, KindInfo, TableColumn

# --- Probes, pull policy and security context of a container
# The fields are those of Kubernetes. Each has a default, so that a new field does not change the
# hash of existing templates.


# Number or name of a port of the same container.
ProbePort = Port | PortName
PullPolicy = Literal["", "Always", "IfNotPresent", "Never"]
UserId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
HeaderName = Annotated[str, Meta(pattern="^[-A-Za-z0-9!#$%&'*+.^_`|~]+$", max_length=253)]
UrlPath = Annotated[str, Meta(pattern="^/[!-~]*$", max_length=1024)]

GRACE_S = 30

_Seconds = Annotated[int, Meta(ge=1, le=3600)]
_Times = Annotated[int, Meta(ge=1, le=100)]


class HttpHeader(ApiStruct, frozen=True, kw_only=True):
    """A header of an HTTP request."""

    name: Annotated[HeaderName, doc("Name of the header.")]
    value: Annotated[
        Annotated[str, Meta(pattern="^[ -~]*$", max_length=1024)], doc("Value of the header.")
    ] = ""


class HttpGet(ApiStruct, frozen=True, kw_only=True):
    """An HTTP GET request. The probe succeeds if the response has a status from 200 to 399."""

    path: Annotated[UrlPath, doc("Path of the request.")] = "/"
    port: Annotated[
        ProbePort, doc("Port of the request, as a number or the name of a port of the container.")
    ]
    http_headers: Annotated[list[HttpHeader], doc("Headers of the request.")] = []


class TcpSocket(ApiStruct, frozen=True, kw_only=True):
    """A TCP connection. The probe succeeds if the connection is accepted."""

    port: Annotated[
        ProbePort,
        doc("Port of the connection, as a number or the name of a port of the container."),
    ]


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    """A command that runs in the container. The probe succeeds if the command exits with code 0."""

    command: Annotated[
        list[str], Meta(min_length=1, max_length=100), doc("The command and its arguments.")
    ]


class Probe(ApiStruct, frozen=True, kw_only=True):
    """A periodic check of a container. Exactly one of httpGet, tcpSocket and exec must be set."""

    http_get: Annotated[HttpGet | None, doc("HTTP request to send.")] = None
    tcp_socket: Annotated[TcpSocket | None, doc("TCP connection to open.")] = None
    exec_: Annotated[ExecAction | None, doc("Command to run in the container.")] = field(
        name="exec", default=None
    )
    initial_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=3600)],
        doc("Seconds from the start of the container to the first check."),
    ] = 0
    period_seconds: Annotated[_Seconds, doc("Seconds between checks.")] = 10
    timeout_seconds: Annotated[_Seconds, doc("Seconds after which a check fails.")] = 1
    success_threshold: Annotated[
        _Times,
        doc("Number of consecutive successes after which a failed probe counts as successful."),
    ] = 1
    failure_threshold: Annotated[
        _Times, doc("Number of consecutive failures after which the probe counts as failed.")
    ] = 3


class SecurityContext(ApiStruct, frozen=True, kw_only=True):
    """User and file system access of a container. It can only restrict privileges."""

    run_as_user: Annotated[
        UserId | None, doc("User ID of the process. Defaults to the user of the image.")
    ] = None
    run_as_group: Annotated[UserId | None, doc("Group ID of the process. Requires runAsUser.")] = (
        None
    )
    read_only_root_filesystem: Annotated[
        bool, doc("Whether the container can write only to /tmp, /run and /dev/shm.")
    ] = False


class ImageRecord(ApiStruct, frozen=True, kw_only=True):
    """Image that a container runs."""

    name: Annotated[ShortText, doc("Name of the container.")]
    image: Annotated[str, doc("Image name in the template.")]
    digest: Annotated[
        ShortText, doc("Digest of the image in the registry, or the ID of a local image.")
    ]


# --- Instance


InterfaceName = Annotated[str, Meta(pattern=DNS_LABEL, max_length=15)]
ImageReference = Annotated[str, Meta(pattern=IMAGE, max_length=1024)]


GraceSeconds = Annotated[
    Annotated[int, Meta(ge=0, le=3600)],
    doc("Seconds that containers have to stop after they received SIGTERM."),
]


class EnvVar(ApiStruct, frozen=True, kw_only=True):
    """An environment variable."""

    name: Annotated[str, Meta(min_length=1), doc("Name of the variable.")]
    value: Annotated[
        SecretText, doc("Value of the variable. References to other variables are not expanded.")
    ] = ""
    value_from: Annotated[
        EnvVarSource | None, doc("Source of the value. Cannot be combined with value.")
    ] = None


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port on which the container listens."""

    name: Annotated[PortName, doc("Name of the port, unique in the instance.")]
    port: Annotated[Port, doc("Number of the port.")]
    protocol: Annotated[Literal["TCP", "UDP"], doc("Protocol of the port.")] = "TCP"


class ResourceAmounts(ApiStruct, frozen=True, kw_only=True):
    """Amounts of CPU and memory."""

    cpu: Annotated[Cpu | None, doc("Number of CPUs, such as 2 or 500m.")] = None
    memory: Annotated[Memory | None, doc("Amount of memory, such as 2Gi or 512Mi.")] = None


class ContainerResources(ApiStruct, frozen=True, kw_only=True):
    """Resources of a container."""

    limits: Annotated[
        ResourceAmounts, doc("Upper limit of the resources that the container can use.")
    ] = ResourceAmounts()
    requests: Annotated[ResourceAmounts, doc("Resources that the container needs.")] = (
        ResourceAmounts()
    )


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container of the instance. command replaces the entry point of the image, and args replaces
    its arguments.
    """

    name: Annotated[DnsLabel, doc("Name of the container, unique in the instance.")]
    image: Annotated[ImageReference, doc("Name of the image, with a tag or a digest.")]
    command: Annotated[
        list[str],
        Meta(max_length=1000),
        doc("Command that replaces the entry point of the image."),
    ] = []
    args: Annotated[
        list[str], Meta(max_length=1000), doc("Arguments that replace those of the image.")
    ] = []
    env: Annotated[
        list[EnvVar], MAP_BY_NAME, Meta(max_length=1000), doc("Environment variables.")
    ] = []
    env_from: Annotated[
        list[EnvFromSource],
        Meta(max_length=100),
        doc(
            "Sources of further environment variables. If several define the same "
            "variable, the last source wins, and env wins over all sources."
        ),
    ] = []
    volume_attachments: VolumeAttachments = []
    ports: Annotated[
        list[ContainerPort],
        MAP_BY_NAME,
        Meta(max_length=100),
        doc("Ports on which the container listens."),
    ] = []
    resources: ContainerResources = ContainerResources()
    image_pull_policy: Annotated[
        PullPolicy,
        doc(
            "When the image is pulled. Always checks the registry, IfNotPresent "
            "uses a local image if there is one, Never only uses a local image. "
            "Defaults to Always for the tag latest and to IfNotPresent otherwise."
        ),
    ] = ""
    readiness_probe: Annotated[
        Probe | None,
        doc(
            "Probe that decides whether the instance is available. Without it, an "
            "instance is available while its TCP ports accept connections."
        ),
    ] = None
    liveness_probe: Annotated[
        Probe | None, doc("Probe that restarts the instance when it fails.")
    ] = None
    security_context: SecurityContext = SecurityContext()
    init: Annotated[
        bool,
        doc(
            "Whether the program runs under an init process that forwards signals "
            "and reaps child processes, if the driver supports it. Set it to false "
            "for an image that contains its own init process."
        ),
    ] = True


class Sandbox(ApiStruct, frozen=True, kw_only=True):
    """Containers that share a network address."""

    containers: Annotated[
        list[Container],
        MAP_BY_NAME,
        Meta(min_length=1, max_length=32),
        doc("Containers of the instance."),
    ]
    image_pull_secrets: Annotated[
        list[PullSecret],
        MAP_BY_NAME,
        Meta(max_length=32),
        doc("Secrets with the credentials of image registries."),
    ] = []
    termination_grace_period_seconds: GraceSeconds = GRACE_S


class RuntimeResources(ApiStruct, frozen=True, kw_only=True):
    """Size of the instance."""

    instance_type: Annotated[
        ShortText,
        Meta(min_length=1),
        doc("Name of the InstanceType, which defines the size of the instance."),
    ] = "datumcloud/d1-standard-2"
    requests: Annotated[
        ResourceAmounts,
        doc(
            "CPU and memory of the instance, instead of those of its instance type. "
            "Set both or none."
        ),
    ] = ResourceAmounts()


class Runtime(ApiStruct, frozen=True, kw_only=True):
    """Containers of the instance and its size."""

    sandbox: Sandbox
    resources: RuntimeResources = RuntimeResources()


class NetworkInterface(ApiStruct, frozen=True, kw_only=True):
    """A network interface of the instance."""

    name: Annotated[InterfaceName, doc("Name of the interface in the instance.")] = "eth0"
    network: Annotated[NamespacedReference, doc("Network of the interface.")]


class TemplateSpec(ApiStruct, frozen=True, kw_only=True):
    """Desired state of an instance."""

    runtime: Runtime
    network_interfaces: Annotated[
        list[NetworkInterface],
        MAP_BY_NAME,
        Meta(max_length=1),
        doc(
            "Network interfaces of the instance. Defaults to one interface in the Network default."
        ),
    ] = []
    volumes: Annotated[
        list[Volume],
        MAP_BY_NAME,
        Meta(max_length=100),
        doc("Volumes that containers can mount."),
    ] = []
    scale_to_zero: Annotated[
        ScaleToZero | None,
        doc(
            "When an instance without connections sleeps. The next connection wakes "
            "it. If unset, instances never sleep."
        ),
    ] = None


class TemplateMeta(ApiStruct, frozen=True, kw_only=True):
    """Labels and annotations of the instances. A change starts a rollout."""

    labels: Annotated[dict[str, str], doc("Labels of each instance.")] = {}
    annotations: Annotated[dict[str, str], doc("Annotations of each instance.")] = {}


class InstanceTemplate(ApiStruct, frozen=True, kw_only=True):
    """Template from which instances are created. A change starts a rollout."""

    spec: TemplateSpec
    metadata: TemplateMeta = TemplateMeta()


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """A condition that must be met before the instance gets a machine."""

    name: Annotated[str, doc("Name of the gate.")]


class InstanceControl(ApiStruct, frozen=True, kw_only=True):
    """State that the deployment controller stores with the instance."""

    template_hash: Annotated[
        str, doc("Hash of the template from which the instance was created.")
    ] = ""
    scheduling_gates: Annotated[
        list[SchedulingGate],
        MAP_BY_NAME,
        doc("Gates that are still open. The instance gets no machine until the list is empty."),
    ] = []
    suspended: Annotated[
        bool, doc("Whether the machine is stopped because the project is suspended.")
    ] = False
    stopped: Annotated[
        bool, doc("Whether the machine is stopped because the workload is stopped.")
    ] = False


class InstanceSpec(TemplateSpec, frozen=True, kw_only=True):
    """Template of the instance, and state that the platform adds."""

    controller: InstanceControl = InstanceControl()
    location: Annotated[
        NamespacedReference | None,
        doc("Location of the project in which the instance runs. Unset until it is known."),
    ] = None


class NetworkAssignments(ApiStruct, frozen=True, kw_only=True):
    """Addresses of the interface."""

    network_ip: Annotated[str, doc("Address of the instance in its network.")] = field(
        name="networkIP", default=""
    )
    external_ip: Annotated[str, doc("Public address of the instance, if it has one.")] = field(
        name="externalIP", default=""
    )


class InterfaceAddress(ApiStruct, frozen=True, kw_only=True):
    """An address of the interface and its network parameters."""

    family: Annotated[IpFamily, doc("Address family.")]
    address: Annotated[str, doc("The address, without a prefix length.")]
    prefix_length: Annotated[int, doc("Length of the prefix that contains the address.")]
    gateway: Annotated[str, doc("Address of the gateway of the prefix.")]


class NetworkInterfaceStatus(ApiStruct, frozen=True, kw_only=True):
    """Observed state of a network interface."""

    name: Annotated[str, doc("Name of the interface.")] = "eth0"
    assignments: NetworkAssignments = NetworkAssignments()
    addresses: Annotated[
        list[InterfaceAddress],
        map_by("family"),
        doc("Addresses of the interface. The first is the primary one."),
    ] = []
    mtu: Annotated[int, doc("Largest packet of the interface, in bytes.")] = 0


class InstanceControlStatus(ApiStruct, frozen=True, kw_only=True):
    """State that the machine reports to the deployment controller."""

    observed_template_hash: Annotated[
        str, doc("Hash of the template from which the machine was set up.")
    ] = ""


PROGRAMMED, AVAILABLE, READY = "Programmed", "Available", "Ready"
# Conditions of closed gates. planning/rollout/gates.py maps gates to conditions.
QUOTA_GRANTED, REFERENCED_DATA_READY, NETWORK_READY = (
    "QuotaGranted",
    "ReferencedDataReady",
    "NetworkReady",
)


QUOTA_UNDECIDED = Condition(
    type=QUOTA_GRANTED,
    status=UNKNOWN,
    reason="PendingEvaluation",
    message="The quota claim has not been decided yet",
)


Images = Annotated[
    list[ImageRecord], MAP_BY_NAME, doc("Image of each container, once its digest is known.")
]


class InstanceStatus(ApiStruct, frozen=True, kw_only=True):
    conditions: Conditions = []
    network_interfaces: Annotated[
        list[NetworkInterfaceStatus], doc("Network interfaces, in the order of the machine.")
    ] = []
    controller: InstanceControlStatus = InstanceControlStatus()
    referenced_data: PinnedSources = []
    images: Images = []
    resources: Annotated[
        ResourceAmounts,
        doc("CPU and memory limits of the machine. Quota is claimed for these amounts."),
    ] = ResourceAmounts()
    last_wake: Annotated[
        Wake | None, doc("Last time that the instance was woken. Unset if it never slept.")
    ] = None


class Instance(ApiObject, frozen=True, kw_only=True):
    """An Instance is one replica of a Workload in one city. The platform creates it from the
    template of its WorkloadDeployment.
    """

    spec: InstanceSpec
    status: InstanceStatus = InstanceStatus(
        conditions=[*unknown_conditions(PROGRAMMED, AVAILABLE, READY), QUOTA_UNDECIDED]
    )


INSTANCE = KindInfo(
    group="compute.datumapis.com",
    version="v1alpha",
    kind="Instance",
    plural="instances",
    model=Instance,
    short_names=("inst",),
    categories=("all", "compute"),
    columns=(
        TableColumn("Age", ".metadata.creationTimestamp", "date"),
        TableColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        TableColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        TableColumn("Network IP", ".status.networkInterfaces[0].assignments.networkIP"),
        TableColumn("External IP", ".status.networkInterfaces[0].assignments.externalIP"),
        TableColumn("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
        TableColumn("Quota", '.status.conditions[?(@.type=="QuotaGranted")].reason', wide=True),
    ),
)
