"""The file of a container image: what engines read in it, by the specification of OCI."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bluebridge.images import container, oci
from bluebridge.images.report import ImageError


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image of two layers."""
    for number, name in enumerate(("lower", "upper")):
        tree = tmp_path / name
        (tree / "usr/bin").mkdir(parents=True)
        (tree / f"usr/bin/{name}").write_text(name * 1000)
        (tree / f"usr/bin/{name}").chmod(0o755)
        (tree / f"link{number}").symlink_to("usr/bin")
        os.utime(tree / f"usr/bin/{name}", (5, 5))
    layers = [oci.layer(tmp_path / name, tmp_path / f"{name}.gz") for name in ("lower", "upper")]
    oci.write(tmp_path / "image", "localhost/x:1", layers, {"Cmd": ["sh"]})
    return tmp_path / "image"


def _read(image: Path) -> dict[str, bytes]:
    with tarfile.open(image) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
        return {name: stream.read() for name, stream in members.items() if stream}


def _blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor, whose digest and size must be right."""
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return content


def test_the_layout_leads_to_the_layers(image: Path) -> None:
    """From the index by digests to the contents, each with its digest before compression."""
    files = _read(image)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "localhost/x:1"
    manifest = json.loads(_blob(files, entry))
    config = json.loads(_blob(files, manifest["config"]))
    assert config["config"] == {"Cmd": ["sh"]}
    contents = [gzip.decompress(_blob(files, each)) for each in manifest["layers"]]
    digests = [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in contents]
    assert config["rootfs"]["diff_ids"] == digests
    with tarfile.open(fileobj=io.BytesIO(contents[1])) as layer:
        file = layer.getmember("usr/bin/upper")
        assert (file.mode, file.uid, file.gid, file.mtime) == (0o755, 0, 0, 5)
        assert layer.getmember("link1").linkname == "usr/bin"


def test_an_image_is_not_made_of_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs would not run with that system's libraries."""
    told = {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 42"}
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: told)
    with pytest.raises(ImageError, match="this is Fedora Linux 42; to mend it: make it on Debian"):
        container.release()
