"""Instance: one running copy of a template, what users see. Its truth lives on the cell."""

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
from datum_compute.api.conditions import UNKNOWN, Condition, Conditions, undecided
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
    keyed,
)
from datum_compute.api.meta.objects import ApiObject, Column, KindInfo

# --- How a container is looked after and confined: probes, pull policy and what it may do
# The words are those of Kubernetes, so that what people know holds here. Every field has a default:
# a template that says nothing about them hashes as it did before they were there.


# A number, or the name of a port of the same container.
ProbePort = Port | PortName
PullPolicy = Literal["", "Always", "IfNotPresent", "Never"]
UserId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
HeaderName = Annotated[str, Meta(pattern="^[-A-Za-z0-9!#$%&'*+.^_`|~]+$", max_length=253)]
UrlPath = Annotated[str, Meta(pattern="^/[!-~]*$", max_length=1024)]

GRACE_S = 30

_Seconds = Annotated[int, Meta(ge=1, le=3600)]
_Times = Annotated[int, Meta(ge=1, le=100)]


class HttpHeader(ApiStruct, frozen=True, kw_only=True):
    """A header of a request."""

    name: Annotated[HeaderName, doc("Name of the header.")]
    value: Annotated[
        Annotated[str, Meta(pattern="^[ -~]*$", max_length=1024)], doc("Its value.")
    ] = ""


class HttpGet(ApiStruct, frozen=True, kw_only=True):
    """A request that must be answered with 200 to 399."""

    path: Annotated[UrlPath, doc("Path of the request.")] = "/"
    port: Annotated[ProbePort, doc("Port to ask, by number or by name.")]
    http_headers: Annotated[list[HttpHeader], doc("Headers of the request.")] = []


class TcpSocket(ApiStruct, frozen=True, kw_only=True):
    """A connection that must be accepted."""

    port: Annotated[ProbePort, doc("Port to connect to, by number or by name.")]


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    """A command in the container that must end with 0."""

    command: Annotated[
        list[str], Meta(min_length=1, max_length=100), doc("The command and its arguments.")
    ]


class Probe(ApiStruct, frozen=True, kw_only=True):
    """A question that is asked again and again: exactly one of httpGet, tcpSocket and exec."""

    http_get: Annotated[HttpGet | None, doc("Ask over HTTP.")] = None
    tcp_socket: Annotated[TcpSocket | None, doc("Ask for a connection.")] = None
    exec_: Annotated[ExecAction | None, doc("Run a command.")] = field(name="exec", default=None)
    initial_delay_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=3600)], doc("Seconds from the start to the first question.")
    ] = 0
    period_seconds: Annotated[_Seconds, doc("Seconds between questions.")] = 10
    timeout_seconds: Annotated[_Seconds, doc("Seconds until a question counts as failed.")] = 1
    success_threshold: Annotated[_Times, doc("Good answers in a row after bad ones.")] = 1
    failure_threshold: Annotated[_Times, doc("Bad answers in a row that count.")] = 3


class SecurityContext(ApiStruct, frozen=True, kw_only=True):
    """As whom it runs and what it may write. Privileges can only be given up, never gained."""

    run_as_user: Annotated[UserId | None, doc("User to run as; else as the image says.")] = None
    run_as_group: Annotated[UserId | None, doc("Group to run as; needs runAsUser.")] = None
    read_only_root_filesystem: Annotated[
        bool, doc("Nothing but /tmp, /run and /dev/shm can be written.")
    ] = False


class ImageRecord(ApiStruct, frozen=True, kw_only=True):
    """What a container really runs."""

    name: Annotated[ShortText, doc("Name of the container.")]
    image: Annotated[str, doc("The image as it was asked for.")]
    digest: Annotated[ShortText, doc("Digest that the registry gave, or the id of a local one.")]


# --- instance


InterfaceName = Annotated[str, Meta(pattern=DNS_LABEL, max_length=15)]
ImageReference = Annotated[str, Meta(pattern=IMAGE, max_length=1024)]


GraceSeconds = Annotated[
    Annotated[int, Meta(ge=0, le=3600)],
    doc("Seconds between asking the containers to end and ending them."),
]


class EnvVar(ApiStruct, frozen=True, kw_only=True):
    """An environment variable."""

    name: Annotated[str, Meta(min_length=1), doc("Name of the variable.")]
    value: Annotated[SecretText, doc("Its value, taken as it is.")] = ""
    value_from: Annotated[
        EnvVarSource | None, doc("Where its value comes from, instead of value.")
    ] = None


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port that the container listens on."""

    name: Annotated[PortName, doc("Name of the port, unique over all containers.")]
    port: Annotated[Port, doc("Number of the port.")]
    protocol: Annotated[Literal["TCP", "UDP"], doc("Protocol spoken on it.")] = "TCP"


class ResourceAmounts(ApiStruct, frozen=True, kw_only=True):
    """Processors and memory."""

    cpu: Annotated[Cpu | None, doc("Processors, such as 2 or 500m.")] = None
    memory: Annotated[Memory | None, doc("Memory, such as 2Gi or 512Mi.")] = None


class ContainerResources(ApiStruct, frozen=True, kw_only=True):
    """What a container may use."""

    limits: Annotated[ResourceAmounts, doc("What it may use at most.")] = ResourceAmounts()
    requests: Annotated[ResourceAmounts, doc("What it needs at least.")] = ResourceAmounts()


class Container(ApiStruct, frozen=True, kw_only=True):
    """command replaces ENTRYPOINT, args replace CMD; without both the image decides."""

    name: Annotated[DnsLabel, doc("Name of the container, unique in the instance.")]
    image: Annotated[ImageReference, doc("Image to run, with tag or digest.")]
    command: Annotated[
        list[str],
        Meta(max_length=1000),
        doc("What to run instead of the image's own entry point."),
    ] = []
    args: Annotated[
        list[str], Meta(max_length=1000), doc("Arguments instead of the image's own.")
    ] = []
    env: Annotated[
        list[EnvVar], MAP_BY_NAME, Meta(max_length=1000), doc("Environment variables.")
    ] = []
    env_from: Annotated[
        list[EnvFromSource],
        Meta(max_length=100),
        doc("Sources of more variables; a later one wins over an earlier, and env over all."),
    ] = []
    volume_attachments: VolumeAttachments = []
    ports: Annotated[
        list[ContainerPort], MAP_BY_NAME, Meta(max_length=100), doc("Ports it listens on.")
    ] = []
    resources: ContainerResources = ContainerResources()
    image_pull_policy: Annotated[
        PullPolicy,
        doc("When to ask the registry; empty: always for the tag latest, else if not present."),
    ] = ""
    readiness_probe: Annotated[
        Probe | None,
        doc(
            "The instance is available only while this succeeds; without it, only while its TCP "
            "ports accept connections."
        ),
    ] = None
    liveness_probe: Annotated[
        Probe | None, doc("The instance is started again when this is not answered well.")
    ] = None
    security_context: SecurityContext = SecurityContext()
    init: Annotated[
        bool,
        doc(
            "Run the program under an init process that forwards signals and reaps children, where "
            "the driver has one. Set to false for an image that brings its own."
        ),
    ] = True


class Sandbox(ApiStruct, frozen=True, kw_only=True):
    """Containers that share one address."""

    containers: Annotated[
        list[Container],
        MAP_BY_NAME,
        Meta(min_length=1, max_length=32),
        doc("What runs in the instance."),
    ]
    image_pull_secrets: Annotated[
        list[PullSecret],
        MAP_BY_NAME,
        Meta(max_length=32),
        doc("Secrets by which registries let the images be read."),
    ] = []
    termination_grace_period_seconds: GraceSeconds = GRACE_S


class RuntimeResources(ApiStruct, frozen=True, kw_only=True):
    """How large the instance is."""

    instance_type: Annotated[
        ShortText, Meta(min_length=1), doc("Name of the size of the instance.")
    ] = "datumcloud/d1-standard-2"
    requests: Annotated[
        ResourceAmounts,
        doc("How large the instance is, instead of what its size says; both amounts or none."),
    ] = ResourceAmounts()


class Runtime(ApiStruct, frozen=True, kw_only=True):
    """What runs, and on how large a machine."""

    sandbox: Sandbox
    resources: RuntimeResources = RuntimeResources()


class NetworkInterface(ApiStruct, frozen=True, kw_only=True):
    """An interface of the instance and the network that it is in."""

    name: Annotated[InterfaceName, doc("Name of the interface inside the instance.")] = "eth0"
    network: Annotated[NamespacedReference, doc("The network.")]


class TemplateSpec(ApiStruct, frozen=True, kw_only=True):
    """The instances as they should be."""

    runtime: Runtime
    network_interfaces: Annotated[
        list[NetworkInterface],
        MAP_BY_NAME,
        Meta(max_length=1),
        doc("Its interface; without one it is in the network called default."),
    ] = []
    volumes: Annotated[
        list[Volume],
        MAP_BY_NAME,
        Meta(max_length=100),
        doc("Files from ConfigMaps and Secrets; containers attach them."),
    ] = []
    scale_to_zero: Annotated[
        ScaleToZero | None,
        doc("Instances without connections sleep, and the next one wakes them; else never."),
    ] = None


class TemplateMeta(ApiStruct, frozen=True, kw_only=True):
    """Labels and annotations of the instances; a change of them is a rollout too."""

    labels: Annotated[dict[str, str], doc("Labels given to every instance.")] = {}
    annotations: Annotated[dict[str, str], doc("Annotations given to every instance.")] = {}


class InstanceTemplate(ApiStruct, frozen=True, kw_only=True):
    """What every instance is made from; a change of it rolls all instances."""

    spec: TemplateSpec
    metadata: TemplateMeta = TemplateMeta()


class SchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """Something that must happen first."""

    name: Annotated[str, doc("What is waited for.")]


class InstanceControl(ApiStruct, frozen=True, kw_only=True):
    """What the deployment controller keeps on the instance."""

    template_hash: Annotated[str, doc("Identity of the template it was made from.")] = ""
    scheduling_gates: Annotated[
        list[SchedulingGate],
        MAP_BY_NAME,
        doc("What it waits for; no machine is asked for while any is left."),
    ] = []


class InstanceSpec(TemplateSpec, frozen=True, kw_only=True):
    """Everything that the template says, and what the platform keeps beside it."""

    controller: InstanceControl = InstanceControl()
    location: Annotated[
        NamespacedReference | None, doc("The project's location that it runs in, once known.")
    ] = None


class NetworkAssignments(ApiStruct, frozen=True, kw_only=True):
    """Addresses that were given to the interface."""

    network_ip: Annotated[str, doc("Address that it is reached at, from inside.")] = field(
        name="networkIP", default=""
    )
    external_ip: Annotated[str, doc("Address for the outside, if it has one.")] = field(
        name="externalIP", default=""
    )


class InterfaceAddress(ApiStruct, frozen=True, kw_only=True):
    """An address of the interface, and what a machine must know to use it."""

    family: Annotated[IpFamily, doc("Address family.")]
    address: Annotated[str, doc("The address, without a prefix length.")]
    prefix_length: Annotated[int, doc("Length of the prefix that it is from.")]
    gateway: Annotated[str, doc("The way out of the prefix.")]


class NetworkInterfaceStatus(ApiStruct, frozen=True, kw_only=True):
    """One network interface."""

    name: Annotated[str, doc("Name of the interface.")] = "eth0"
    assignments: NetworkAssignments = NetworkAssignments()
    addresses: Annotated[
        list[InterfaceAddress], keyed("family"), doc("Its addresses, primary first.")
    ] = []
    mtu: Annotated[int, doc("Largest packet that it carries, in bytes.")] = 0


class InstanceControlStatus(ApiStruct, frozen=True, kw_only=True):
    """What the machine reports back to the deployment controller."""

    observed_template_hash: Annotated[
        str, doc("Identity of the template that the machine was set up from.")
    ] = ""


PROGRAMMED, AVAILABLE, READY = "Programmed", "Available", "Ready"
# Conditions that gates leave behind; planning/rollout/gates.py states how a gate and its condition
# belong.
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
    list[ImageRecord], MAP_BY_NAME, doc("What each container really runs, once it is known.")
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
        doc("The most that its machine may use, which is what its quota was claimed for."),
    ] = ResourceAmounts()
    last_wake: Annotated[Wake | None, doc("The last time that it was woken, if ever.")] = None


class Instance(ApiObject, frozen=True, kw_only=True):
    """Instance: one running copy of a template, what users see. Its truth lives on the cell."""

    spec: InstanceSpec
    status: InstanceStatus = InstanceStatus(
        conditions=[*undecided(PROGRAMMED, AVAILABLE, READY), QUOTA_UNDECIDED]
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
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        Column("Network IP", ".status.networkInterfaces[0].assignments.networkIP"),
        Column("External IP", ".status.networkInterfaces[0].assignments.externalIP"),
        Column("Message", '.status.conditions[?(@.type=="Ready")].message', wide=True),
        Column("Quota", '.status.conditions[?(@.type=="QuotaGranted")].reason', wide=True),
    ),
)
