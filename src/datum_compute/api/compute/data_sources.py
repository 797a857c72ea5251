"""Data of ConfigMaps and Secrets in a template: as environment variables and as files.

The fields are those of Kubernetes. If an ``optional`` source or key does not exist, the variable or
file is left out. ``referenced_data.py`` finds all references of a template; a new kind of reference
needs a line there.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import DnsLabel, DnsName, ShortText, doc, map_by

SourceKind = Literal["ConfigMap", "Secret"]
DataKey = Annotated[str, Meta(pattern="^[-._a-zA-Z0-9]+$", max_length=253)]
FileMode = Annotated[int, Meta(ge=0, le=0o777)]
MountPath = Annotated[str, Meta(pattern="^/[^:]*$", max_length=1024)]
FilePath = Annotated[str, Meta(pattern="^[^/:][^:]*$", max_length=1024)]
FILE_MODE = 0o644
# Keys, with their prefix, that can be the name of a variable. Other keys are skipped.
VARIABLE_FROM_KEY = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

_OPTIONAL = doc("Whether instances start without the object or key if it does not exist.")
_MODE = doc("Permissions of the files as a number, such as 420 (octal 644).")


class KeySelector(ApiStruct, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret."""

    name: Annotated[
        DnsName, doc("Name of the ConfigMap or Secret, in the namespace of the workload.")
    ]
    key: Annotated[DataKey, doc("Key of the value.")]
    optional: Annotated[bool, _OPTIONAL] = False


class EnvVarSource(ApiStruct, frozen=True, kw_only=True):
    """Source of the value of an environment variable. Exactly one field must be set."""

    config_map_key_ref: Annotated[KeySelector | None, doc("Key of a ConfigMap.")] = None
    secret_key_ref: Annotated[KeySelector | None, doc("Key of a Secret.")] = None


class WholeSource(ApiStruct, frozen=True, kw_only=True):
    """A ConfigMap or Secret of which all keys are used."""

    name: Annotated[
        DnsName, doc("Name of the ConfigMap or Secret, in the namespace of the workload.")
    ]
    optional: Annotated[
        bool, doc("Whether instances start without the object if it does not exist.")
    ] = False


class EnvFromSource(ApiStruct, frozen=True, kw_only=True):
    """A ConfigMap or Secret of which each key becomes an environment variable. Keys that are not
    valid variable names are skipped.
    """

    prefix: Annotated[
        Annotated[str, Meta(max_length=253)], doc("Text that is put before each key.")
    ] = ""
    config_map_ref: Annotated[WholeSource | None, doc("The ConfigMap.")] = None
    secret_ref: Annotated[WholeSource | None, doc("The Secret.")] = None


class KeyToPath(ApiStruct, frozen=True, kw_only=True):
    """A key and the file that it becomes."""

    key: Annotated[DataKey, doc("Key of the value.")]
    path: Annotated[FilePath, doc("Path of the file, relative to the mount path of the volume.")]
    mode: Annotated[
        FileMode | None, doc("Permissions of this file. Defaults to defaultMode of the volume.")
    ] = None


KeyPaths = Annotated[
    list[KeyToPath], doc("Keys and the paths of their files. If empty, each key is a file.")
]


class ConfigMapVolume(ApiStruct, frozen=True, kw_only=True):
    """Files from the keys of a ConfigMap."""

    name: Annotated[DnsName, doc("Name of the ConfigMap, in the namespace of the workload.")]
    items: KeyPaths = []
    default_mode: Annotated[FileMode, _MODE] = FILE_MODE
    optional: Annotated[bool, _OPTIONAL] = False


class SecretVolume(ApiStruct, frozen=True, kw_only=True):
    """Files from the keys of a Secret."""

    secret_name: Annotated[DnsName, doc("Name of the Secret, in the namespace of the workload.")]
    items: KeyPaths = []
    default_mode: Annotated[FileMode, _MODE] = FILE_MODE
    optional: Annotated[bool, _OPTIONAL] = False


class Volume(ApiStruct, frozen=True, kw_only=True):
    """Files that containers can mount. Exactly one source must be set."""

    name: Annotated[DnsLabel, doc("Name of the volume, unique in the instance.")]
    config_map: Annotated[ConfigMapVolume | None, doc("ConfigMap that contains the files.")] = None
    secret: Annotated[SecretVolume | None, doc("Secret that contains the files.")] = None


class VolumeAttachment(ApiStruct, frozen=True, kw_only=True):
    """A mount of a volume in a container. The files are read-only."""

    name: Annotated[DnsLabel, doc("Name of the volume.")]
    mount_path: Annotated[MountPath, doc("Directory that contains the files of the volume.")]


class PullSecret(ApiStruct, frozen=True, kw_only=True):
    """A Secret of the type kubernetes.io/dockerconfigjson."""

    name: Annotated[DnsName, doc("Name of the Secret, in the namespace of the workload.")]


class PinnedData(ApiStruct, frozen=True, kw_only=True):
    """A version of a ConfigMap or Secret. Its content is not copied."""

    kind: Annotated[SourceKind, doc("Kind of the object.")]
    name: Annotated[ShortText, doc("Name of the object.")]
    resource_version: Annotated[ShortText, doc("Resource version of the object when it was used.")]


PinnedSources = Annotated[
    list[PinnedData],
    map_by("kind", "name"),
    doc("Versions of the ConfigMaps and Secrets with which the machine was started."),
]
VolumeAttachments = Annotated[
    list[VolumeAttachment],
    map_by("mountPath"),
    Meta(max_length=100),
    doc("Volumes that are mounted into the container."),
]
