"""Directories: one bad entry spoils no other, and no server keeps a user waiting, fills memory or leads elsewhere."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from swarm_entries import NOW, directory, over, send, serving, signed, signed_badly

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.invitations.entry import DAY
from shoal_host.directory import listing
from shoal_host.directory.listing import (
    MAX_BYTES,
    MAX_ENTRIES,
    download,
    known_directories,
    read_directories,
    read_directory,
)

ADA, EVE = Identity.generate(), Identity.generate()
SOON = 3.0
"""Seconds for a download: a machine may be busy."""


def written(path: Path, *entries: bytes) -> str:
    path.write_bytes(b'{"version": 1, "entries": [' + b", ".join(entries) + b"]}")
    return str(path)


def test_bad_entries_are_left_out_with_a_line_each(tmp_path: Path) -> None:
    good = msgspec.json.encode(signed(ADA))
    bad = {
        "lagoon": good.replace(b'"reef"', b'"lagoon"'),
        "late": signed_badly(ADA, name="late", expires=NOW - 1, signed=NOW - DAY),
        "early": signed_badly(ADA, name="early", signed=NOW + DAY, expires=NOW + 2 * DAY),
        "other": good.replace(b'"version":1', b'"version":7').replace(b'"name":"reef"', b'"name":"other"'),
    }
    source = written(tmp_path / "list.json", b"5", *bad.values(), b"{}", good, b'"\xff"')
    found = read_directory(source, NOW)
    assert [one.entry.name for one in found.entries] == ["reef"]
    assert [one.what for one in found.unusable] == ["entry 1", *bad, "entry 6", "entry 8"]
    reasons = [
        "malformed",
        "bad signature",
        "expired",
        "from the future",
        "unknown version 7",
        "malformed",
        "malformed",
    ]
    assert all(one.why.startswith(reason) for one, reason in zip(found.unusable, reasons, strict=True))


def test_a_name_in_a_bad_entry_is_cut(tmp_path: Path) -> None:
    bad = msgspec.json.encode({"entry": {"name": "\x1b[2J" + "a" * 5000, "version": 1}})
    [one] = read_directory(written(tmp_path / "list.json", bad), NOW).unusable
    assert len(one.what) <= 32
    assert "\x1b" not in one.what


NO_DIRECTORY = {
    "nothing": b"",
    "no json": b"<html>",
    "a list": b"[]",
    "entries that are none": b'{"version": 1, "entries": 5}',
    "no version": b'{"entries": []}',
    "nested": b'{"version": 1, "entries": [' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", NO_DIRECTORY)
def test_what_is_no_directory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(NO_DIRECTORY[name])
    with pytest.raises(UserError, match="is no directory of swarms"):
        read_directory(str(path), NOW)


def test_other_versions_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'{"version": 2, "entries": {}, "comets": []}'.replace(b"{}", b"[]"))
    with pytest.raises(UserError, match="a directory of version 2"):
        read_directory(str(path), NOW)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_directory(str(tmp_path / "none.json"), NOW)
    with pytest.raises(UserError, match="cannot be read"):
        read_directory(str(tmp_path), NOW)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not an ordinary file"):
        read_directory("/dev/zero", NOW)
    (tmp_path / "big.json").write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(UserError, match="more than 1,048,576 bytes"):
        read_directory(str(tmp_path / "big.json"), NOW)


def test_of_many_entries_the_first_are_read(tmp_path: Path) -> None:
    found = read_directory(written(tmp_path / "list.json", *[b"0"] * (MAX_ENTRIES + 5)), NOW)
    assert len(found.unusable) == MAX_ENTRIES + 1
    assert found.unusable[-1].what == "5 more"


def test_the_entry_that_was_signed_last_counts(tmp_path: Path) -> None:
    old, new = signed(ADA, signed=NOW - 3 * DAY), signed(ADA, signed=NOW - 2 * DAY, relays=("new.example.org:1",))
    sources = []
    for name, entries in (("a", (new,)), ("b", (old, signed(EVE)))):
        path = tmp_path / f"{name}.json"
        path.write_bytes(directory(*entries))
        sources.append(str(path))
    for order in (sources, sources[::-1]):
        found = {one.entry.key: one.entry for one in read_directories(order, NOW).entries}
        assert found == {ADA.id: new.entry, EVE.id: signed(EVE).entry}


def test_a_directory_that_is_away_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "here.json").write_bytes(directory(signed(ADA)))
    found = read_directories([str(tmp_path / "away.json"), str(tmp_path / "here.json")], NOW)
    assert len(found.entries) == 1
    assert "No such file" in found.unusable[0].why
    with pytest.raises(UserError, match=r"away\.json cannot be read"):
        read_directories([str(tmp_path / "away.json")], NOW)


def test_too_many_directories_are_said() -> None:
    with pytest.raises(UserError, match="17 directories: at most 16"):
        read_directories(["a.json"] * 17, NOW)


def test_slow_directories_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these answers once all of them were asked."""
    together = threading.Barrier(8)

    def respond(handler: BaseHTTPRequestHandler) -> None:
        together.wait(60)
        send(handler, directory(signed(ADA)))

    monkeypatch.setattr(listing, "PATIENCE", 60.0)
    with serving(respond) as url:
        assert len(read_directories([f"{url}?{n}" for n in range(8)], NOW).entries) == 1


def test_directories_are_the_lines_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    assert known_directories() == []
    (tmp_path / "directories").write_text("# mine\nhttps://example.org/swarms.json\n\n  /srv/swarms.json \n")
    assert known_directories() == ["https://example.org/swarms.json", "/srv/swarms.json"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=200))
def test_no_file_raises_anything_else(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "list.json").write_bytes(data)
    with pytest.raises(UserError):
        read_directory(str(tmp_path / "list.json"), NOW)


# Servers


def test_a_directory_at_a_url() -> None:
    with serving(lambda handler: send(handler, directory(signed(ADA)))) as url:
        assert [one.entry.name for one in read_directory(url, NOW).entries] == ["reef"]


def redirects(handler: BaseHTTPRequestHandler) -> None:
    assert handler.path == "/swarms.json", "a redirect was followed"
    handler.send_response(302)
    handler.send_header("Location", "/elsewhere.json")
    handler.end_headers()


def is_endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not over(handler).is_set():
        handler.wfile.write(b" " * 65_536)


def says_a_huge_length(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(2**50))
    handler.end_headers()
    is_endless(handler)


def hangs(handler: BaseHTTPRequestHandler) -> None:
    over(handler).wait()


def drips(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not over(handler).wait(0.05):
        handler.wfile.write(b" ")


def drips_headers(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
    while not over(handler).wait(0.05):
        handler.wfile.write(b"X-A: a\r\n")


def speaks_something_else(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff SSH-2.0\r\n\r\n")


SERVERS = {
    "redirects": (redirects, "it leads to /elsewhere.json"),
    "is missing": (lambda handler: send(handler, b"", 404), "HTTP 404"),
    "is endless": (is_endless, "more than 1,048,576 bytes"),
    "says a huge length": (says_a_huge_length, "more than 1,048,576 bytes"),
    "hangs": (hangs, None),
    "drips": (drips, None),
    "drips headers": (drips_headers, None),
    "hangs up": (lambda handler: handler.connection.close(), None),
    "speaks something else": (speaks_something_else, None),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_bad_server_is_one_error_in_time(name: str) -> None:
    respond, right = SERVERS[name]
    patience = 10 * SOON if right else SOON / 3
    with serving(respond) as url:
        begun = time.monotonic()
        with pytest.raises(OSError, match=right) as caught:
            download(url, patience)
        assert time.monotonic() - begun < patience + 10 * SOON
        assert caught.value.strerror or str(caught.value)


def test_nobody_there() -> None:
    with pytest.raises(UserError, match=r"cannot be read: .*refused"):
        read_directory("http://127.0.0.1:9/swarms.json", NOW)


@pytest.mark.parametrize("url", ["http://", "http://[", "https://exa mple.org", "http://a:b:c/", "HTTP://\x00"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_directory(url, NOW)
