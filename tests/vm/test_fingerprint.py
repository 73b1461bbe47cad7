"""`bluebridge fingerprint` of both cards: stable, and the same as the script that owners run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.host_tools.fingerprint import document
from bluebridge.host_tools.fingerprint.fingerprint_command import FOLDER, SCRIPT
from tests.models.lab_commands import Commands
from tests.vm.conftest import BOOT_SECONDS

VENDOR_SYNDROMES = {
    "a message longer than the receive, sender": "REM_INV_REQ_ERR, vendor syndrome 0x8a",
    "a message longer than the receive, receiver": "LOC_LEN_ERR, vendor syndrome 0x68",
    "a request behind one that failed": "WR_FLUSH_ERR, vendor syndrome 0xf9",
    "a local key that is none": "LOC_PROT_ERR, vendor syndrome 0x52",
    "a remote key that is none": "REM_ACCESS_ERR, vendor syndrome 0x88",
    "no receive at the peer": "RNR_RETRY_EXC_ERR, vendor syndrome 0x87",
    "a peer that does not answer": "RETRY_EXC_ERR, vendor syndrome 0x81",
}


@pytest.mark.timeout(4 * BOOT_SECONDS)
def test_of_both_cards(bluebridge: Commands, tmp_path: Path) -> None:
    bluebridge.good(
        "up", "--card", "connectx5,connectx3", "--pro", "--driver", "kernel", "--quiet"
    )  # fmt: skip
    for guest, maximal in (("a", "QUERY_HCA_CAP 0000 020"), ("b", "Max QPs")):
        path = tmp_path / f"{guest}.txt"
        path.write_text(bluebridge.good("fingerprint", guest, "--reload"))
        taken = document.load(path)
        assert taken["errors"] == VENDOR_SYNDROMES
        assert maximal in taken["capabilities"]
        assert {"config", "rdma", "ethtool -k", "devlink dev info", "registers"} <= taken.keys()
        # Addresses are there again, and the script alone prints the same.
        own = tmp_path / f"{guest}-own.txt"
        own.write_text(bluebridge.good("run", guest, f"sh {FOLDER}/{SCRIPT} --reload"))
        told = bluebridge.good("fingerprint", "--from", str(path), "--compare", str(own))
        assert told.splitlines()[-1] == "no difference", told
    done = bluebridge.run("fingerprint", "--from", str(path), "--compare", str(tmp_path / "a.txt"))
    assert done.returncode == 1
    assert b"config: 0x000 Device: 15b3:1007" in done.stdout
    missing = bluebridge.run("fingerprint", "a", "--compare", str(tmp_path / "none"))
    assert (missing.returncode, missing.stderr.count(b"\n")) == (2, 1)
