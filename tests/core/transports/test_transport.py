"""Endpoints and options, before anything is opened. Real sessions are in tests/core/integration/test_network.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.transports.zenoh.session import TransportOptions, node_config, parse_endpoint


@pytest.mark.parametrize(
    ("text", "zenoh"),
    [
        ("relay.example.org:7447", "tcp/relay.example.org:7447"),
        ("tls/10.0.0.1:1", "tls/10.0.0.1:1"),
        (" tls/[::1]:7447 ", "tls/[::1]:7447"),
    ],
)
def test_endpoints(text: str, zenoh: str) -> None:
    assert parse_endpoint(text) == zenoh


@pytest.mark.parametrize(
    "text", ["", "relay", "tcp://relay:7447", "relay:0", "relay:65536", "udp/a:1", "tls/a:1#root_ca_certificate=/x"]
)
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(UserError, match="HOST:PORT"):
        TransportOptions(connect=(text,))


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.write_text("no certificate")
    for options, message in [
        ({"connect": ["a:1"], "ca": pem}, "no encryption"),
        ({"connect": ["tls/a:1"], "ca": tmp_path / "absent"}, "No such file"),
        ({"connect": ["tls/a:1"], "ca": pem}, "not usable"),
        ({"connect": ["tls/a:1"], "certificate": pem}, "go together"),
        ({"listen": ["tls/a:1"]}, "takes a certificate"),
        ({"listen": ["tls/a:1"], "certificate": pem, "key": pem, "mutual": True}, "authority"),
    ]:
        with pytest.raises(UserError, match=message):
            TransportOptions(**options)  # type: ignore[arg-type]


def test_how_a_node_takes_part() -> None:
    assert TransportOptions().lan
    assert TransportOptions().mode == "peer"
    assert TransportOptions(connect=("a:1",)).mode == "client"
    assert not TransportOptions(connect=("a:1",)).lan
    assert TransportOptions(listen=("b:1",)).mode == "peer"
    with pytest.raises(UserError, match="not both"):  # a relay can
        node_config(TransportOptions(connect=("a:1",), listen=("b:1",)))
    assert TransportOptions(connect=("tls/a:1",)).protocols == ["tls"]
