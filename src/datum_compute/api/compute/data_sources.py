"""How a template takes data from ConfigMaps and Secrets of its namespace: as single variables, as
all variables of a source, and as files.

The words are those of Kubernetes, so that what people know holds here. Of an ``optional`` source
nothing is asked: without it the variable or file is left out. ``api/compute/referenced_data.py``
finds all of them in a template; a new way to refer to a source needs a line there.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import DnsLabel, DnsName, ShortText, doc, keyed

SourceKind = Literal["ConfigMap", "Secret"]
DataKey = Annotated[str, Meta(pattern="^[-._a-zA-Z0-9]+$", max_length=253)]
FileMode = Annotated[int, Meta(ge=0, le=0o777)]
MountPath = Annotated[str, Meta(pattern="^/[^:]*$", max_length=1024)]
FilePath = Annotated[str, Meta(pattern="^[^/:][^:]*$", max_length=1024)]
FILE_MODE = 0o644
# A key of a whole source that can become a variable, with its prefix; others are left out.
VARIABLE_FROM_KEY = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

_OPTIONAL = doc("Go on without it if the source or the key is not there.")
_MODE = doc("Permissions of the files, such as 420 (octal 644).")


class KeySelector(ApiStruct, frozen=True, kw_only=True):
    """One key of a ConfigMap or Secret."""

    name: Annotated[DnsName, doc("Name of the source, in the namespace of the workload.")]
    key: Annotated[DataKey, doc("The key to take.")]
    optional: Annotated[bool, _OPTIONAL] = False


class EnvVarSource(ApiStruct, frozen=True, kw_only=True):
    """Where the value of a variable comes from: exactly one of these."""

    config_map_key_ref: Annotated[KeySelector | None, doc("A key of a ConfigMap.")] = None
    secret_key_ref: Annotated[KeySelector | None, doc("A key of a Secret.")] = None


class WholeSource(ApiStruct, frozen=True, kw_only=True):
    """All keys of a ConfigMap or Secret."""

    name: Annotated[DnsName, doc("Name of the source, in the namespace of the workload.")]
    optional: Annotated[bool, doc("Go on without it if the source is not there.")] = False


class EnvFromSource(ApiStruct, frozen=True, kw_only=True):
    """Every key of a source as a variable; keys that cannot be a variable are left out."""

    prefix: Annotated[
        Annotated[str, Meta(max_length=253)], doc("Put before each key; may be empty.")
    ] = ""
    config_map_ref: Annotated[WholeSource | None, doc("A ConfigMap.")] = None
    secret_ref: Annotated[WholeSource | None, doc("A Secret.")] = None


class KeyToPath(ApiStruct, frozen=True, kw_only=True):
    """A key and the file it becomes."""

    key: Annotated[DataKey, doc("The key to take.")]
    path: Annotated[FilePath, doc("Path of the file, relative to where the volume is mounted.")]
    mode: Annotated[FileMode | None, doc("Permissions of this file, if other than usual.")] = None


KeyPaths = Annotated[list[KeyToPath], doc("Keys to take and their paths; without any, all keys.")]


class ConfigMapVolume(ApiStruct, frozen=True, kw_only=True):
    """The keys of a ConfigMap as files."""

    name: Annotated[DnsName, doc("Name of the ConfigMap, in the namespace of the workload.")]
    items: KeyPaths = []
    default_mode: Annotated[FileMode, _MODE] = FILE_MODE
    optional: Annotated[bool, _OPTIONAL] = False


class SecretVolume(ApiStruct, frozen=True, kw_only=True):
    """The keys of a Secret as files."""

    secret_name: Annotated[DnsName, doc("Name of the Secret, in the namespace of the workload.")]
    items: KeyPaths = []
    default_mode: Annotated[FileMode, _MODE] = FILE_MODE
    optional: Annotated[bool, _OPTIONAL] = False


class Volume(ApiStruct, frozen=True, kw_only=True):
    """Files for the containers, from exactly one source."""

    name: Annotated[DnsLabel, doc("Name of the volume, unique in the instance.")]
    config_map: Annotated[ConfigMapVolume | None, doc("From a ConfigMap.")] = None
    secret: Annotated[SecretVolume | None, doc("From a Secret.")] = None


class VolumeAttachment(ApiStruct, frozen=True, kw_only=True):
    """A volume as a container sees it; the files are there to be read, not written."""

    name: Annotated[DnsLabel, doc("Name of the volume.")]
    mount_path: Annotated[MountPath, doc("Folder in which its files appear.")]


class PullSecret(ApiStruct, frozen=True, kw_only=True):
    """A Secret of type kubernetes.io/dockerconfigjson."""

    name: Annotated[DnsName, doc("Name of the Secret, in the namespace of the workload.")]


class PinnedData(ApiStruct, frozen=True, kw_only=True):
    """A ConfigMap or Secret that was taken; its content is not copied."""

    kind: Annotated[SourceKind, doc("Kind of the source.")]
    name: Annotated[ShortText, doc("Name of the source.")]
    resource_version: Annotated[ShortText, doc("Version of the source at the time.")]


PinnedSources = Annotated[
    list[PinnedData],
    keyed("kind", "name"),
    doc("Versions of the ConfigMaps and Secrets that the machine was started with."),
]
VolumeAttachments = Annotated[
    list[VolumeAttachment],
    keyed("mountPath"),
    Meta(max_length=100),
    doc("Volumes that it sees, by folder."),
]
