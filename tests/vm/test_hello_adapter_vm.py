"""docs/hello_adapter.py in a guest, on the HCA that stands there."""

from __future__ import annotations

import pytest

from bluebridge.host_tools.machine.vm import Vm
from tests.vm.conftest import ROOT

pytestmark = pytest.mark.shared_pair


@pytest.mark.brief
def test_it_says_hello_in_a_guest(guest_a: Vm) -> None:
    guest_a.agent.put(ROOT / "docs/hello_adapter.py", "/tmp/")
    said = guest_a.agent.run("python3 /tmp/hello_adapter.py --guest", timeout=60, check=True)
    assert said.text.splitlines()[-1] == "hello, adapter"
