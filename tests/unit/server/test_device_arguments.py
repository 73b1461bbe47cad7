"""The words of `python -m bluebridge.device`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.__main__ import parse_hca


@pytest.mark.parametrize(
    "path", ["/run/a.sock", "/run/x,y/a.sock", "a,b,,c", "/run/k=v,w/a", "/run/,nameless=1"]
)
def test_a_path_may_hold_commas(path: str) -> None:
    for text in (f"name=a,socket={path}", f"socket={path},name=a"):
        spec = parse_hca(text, 1)
        assert (spec.name, spec.socket, spec.mac[-1]) == ("a", Path(path), 2)
    spec = parse_hca(f"name=a,socket={path},mac=00:02:c9:01:02:03")
    assert (spec.socket, spec.mac) == (Path(path), bytes.fromhex("0002c9010203"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name=a", "name= and socket= are needed"),
        ("name=a,socket=", "'socket=' is not"),
        ("a,socket=x", "'a' is not name="),
        ("name=a,speed=40,socket=x", "no comma in a name"),
        ("name=a,socket=x,mac=01:00:00:00:00:00", "unicast"),
    ],
)
def test_nonsense_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_hca(text)
    assert "\n" not in str(caught.value)
