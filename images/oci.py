"""Writes a container image as one file, without a registry or a container engine.

An OCI image layout in a tar archive, which `podman load` and `docker load` read (OCI Image Format
1.0: image-layout.md, manifest.md, config.md, layer.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_TYPE = "application/vnd.oci.image"


@dataclass(frozen=True)
class Layer:
    """A compressed layer in a file, with the digest of its contents before compression."""

    path: Path
    contents: str


def layer(tree: Path, file: Path) -> Layer:
    """Write everything below `tree` to `file` as a layer, owned by root. Raises OSError."""
    with open(file, "wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed:
        contents = _Digesting(packed)
        with tarfile.open(fileobj=contents, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(tree.rglob("*")):
                name = path.relative_to(tree).as_posix()
                archive.add(path, name, recursive=False, filter=_of_root)
    return Layer(file, contents.digest)


def write(file: Path, name: str, layers: Sequence[Layer], config: Mapping[str, Any]) -> None:
    """Write the image `name` of these layers, the lowest first, to `file`. Raises OSError.

    `config` has what containers start with: `Env`, `Entrypoint`, `Cmd`, `WorkingDir`.
    """
    image = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [each.contents for each in layers]},
    }
    blobs: dict[str, bytes | Path] = {}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _blob(blobs, f"{_TYPE}.config.v1+json", _json(image)),
        "layers": [_blob(blobs, f"{_TYPE}.layer.v1.tar+gzip", each.path) for each in layers],
    }
    entry = _blob(blobs, f"{_TYPE}.manifest.v1+json", _json(manifest))
    # The first is the name to podman, the second to Docker.
    names = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
    index = {"schemaVersion": 2, "manifests": [{**entry, "annotations": names}]}
    with tarfile.open(file, "w") as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json(index))
        for digest, content in blobs.items():
            _add(archive, f"blobs/{digest.replace(':', '/')}", content)


def _blob(blobs: dict[str, bytes | Path], media: str, content: bytes | Path) -> dict[str, Any]:
    """Add a blob; return its descriptor."""
    if isinstance(content, Path):
        with open(content, "rb") as stream:
            digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        size = content.stat().st_size
    else:
        digest, size = f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)
    blobs[digest] = content
    return {"mediaType": media, "digest": digest, "size": size}


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    if isinstance(content, Path):
        archive.add(content, name, filter=_of_root)
        return
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


class _Digesting(io.RawIOBase):
    """Passes on what is written, and adds up its digest."""

    def __init__(self, to: IO[bytes] | gzip.GzipFile) -> None:
        self._to = to
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._to.write(data)
