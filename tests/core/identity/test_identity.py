"""A node's key: made once, kept from others, never lost; and the readable name of it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import UserError
from shoal.identity.keys import ADJECTIVES, ANIMALS, Identity, identity_path, name_of, verify, write_new

posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the identity lies; nothing is there yet."""
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "identity"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_once_and_stays(path: Path) -> None:
    made = Identity.load_or_create(path)
    again = Identity.load_or_create(path)
    assert (again.public, again.id, again.name) == (made.public, made.id, made.name)
    assert len(made.public) == 32
    assert made.id == made.public.hex()
    assert [entry.name for entry in path.parent.iterdir()] == ["identity"]
    assert Identity.generate().public != Identity.generate().public


@posix
def test_nobody_else_may_ever_read_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (seen.append(stat.S_IMODE(os.fstat(file).st_mode)), fsync(file))[1])
    old = os.umask(0)
    try:
        Identity.load_or_create(path)
    finally:
        os.umask(old)
    assert seen == [0o600]
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


@posix
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_read_is_refused(path: Path, bits: int) -> None:
    Identity.load_or_create(path)
    path.chmod(bits)
    with pytest.raises(UserError, match=f"chmod 600 {path}"):
        Identity.load_or_create(path)
    path.chmod(0o400)
    Identity.load_or_create(path)


def other_kind() -> bytes:
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 40, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", other_kind()],
    ids=["empty", "zeros", "cut", "another kind"],
)
def test_a_broken_file_is_named_and_left_alone(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(UserError, match=str(path)):
        Identity.load_or_create(path)
    assert path.read_bytes() == data


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot"):
        Identity.load_or_create(tmp_path / "file" / "identity")
    with pytest.raises(UserError, match="cannot read"):
        Identity.load_or_create(tmp_path)


def test_processes_that_start_at_once_get_the_same(path: Path) -> None:
    found: list[str] = []
    start = threading.Barrier(16)

    def first_use() -> None:
        start.wait()
        found.append(Identity.load_or_create(path).id)

    threads = [threading.Thread(target=first_use) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["identity"]


def test_a_disk_without_links_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: Any) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", no_link)
    made = Identity.load_or_create(path)
    assert Identity.load_or_create(path).id == made.id
    with pytest.raises(FileExistsError):
        write_new(path, b"another")


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert identity_path() == Path("/home/ada/.config/shoal/identity")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert identity_path() == Path("/home/ada/.config/shoal/identity")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/settings")
    assert identity_path() == Path("/settings/shoal/identity")
    monkeypatch.setenv("SHOAL_HOME", "~/shoal")
    assert identity_path() == Path("/home/ada/shoal/identity")
    monkeypatch.setenv("SHOAL_HOME", "~nobody-of-this-name/x")
    with pytest.raises(UserError, match="no home folder"):
        identity_path()


def test_only_its_key_verifies_what_it_signed() -> None:
    ada, eve = Identity.generate(), Identity.generate()
    signature = ada.sign(b"data")
    assert len(signature) == 64
    assert verify(ada.public, signature, b"data")
    assert not verify(eve.public, signature, b"data")
    assert not verify(ada.public, signature, b"data ")
    assert not verify(ada.public, eve.sign(b"data"), b"data")


@given(st.binary(max_size=70), st.binary(max_size=130), st.binary())
def test_no_bytes_make_verify_raise(public: bytes, signature: bytes, data: bytes) -> None:
    ada = Identity.generate()
    assert not verify(public, signature, data)
    assert not verify(ada.public, signature, data)
    assert not verify(public, ada.sign(data), data)


@pytest.mark.parametrize(
    "key",
    [
        "00" * 32,
        "00" * 31 + "80",
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "ff",
    ],
)
def test_nobody_can_sign_for_a_key_of_small_order(key: str) -> None:
    """Of such keys OpenSSL takes R = the identity, S = 0 as a signature of every eighth text or more."""
    public, signature = bytes.fromhex(key), bytes.fromhex("01" + "00" * 63)
    assert not any(verify(public, signature, str(number).encode()) for number in range(100))


def test_the_words() -> None:
    for words in (ADJECTIVES, ANIMALS):
        assert len(set(words)) == len(words) == 256
        assert all(word.isascii() and word.isalpha() and word.islower() and len(word) <= 12 for word in words)


def test_names_stay_the_same() -> None:
    """Rollouts carry them, and other nodes make them again of the key."""
    fixed = Identity(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    assert fixed.id == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert fixed.name == name_of(fixed.public) == "hopeful-lapwing-f984"
    assert name_of(bytes(32)) == "happy-condor-a3bc"


def test_names_are_spread() -> None:
    names = [name_of(number.to_bytes(32, "big")) for number in range(4000)]
    assert len(set(names)) == 4000
    assert {word for name in names for word in name.split("-")[:2]} == {*ADJECTIVES, *ANIMALS}
