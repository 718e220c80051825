"""`shoal id`: it shows the identity, which is one file."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from shoal.errors import UserError
from shoal.identity.keys import Identity, write_new
from shoal_host import identity

posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `shoal id` keeps the identity; nothing is there yet."""
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "identity"


def shoal_id(*flags: str | Path) -> int:
    parser = argparse.ArgumentParser()
    identity.add_arguments(parser)
    return identity.command(parser.parse_args([str(flag) for flag in flags]))


def test_shoal_id_shows_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shoal_id("--json") == 0
    made = Identity.load_or_create(path)
    assert json.loads(capsys.readouterr().out) == {"name": made.name, "key": made.id, "file": str(path)}
    assert shoal_id() == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()] == [["name", made.name], ["key", made.id], ["file", str(path)]]


def test_a_copied_file_is_the_same_identity(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shoal_id() == 0
    made = Identity.load(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    shutil.copy2(path, tmp_path / "other" / "identity")
    assert shoal_id("--json") == 0
    assert Identity.load(tmp_path / "other" / "identity").id == made.id


def test_an_encrypted_key_is_refused(path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    locked = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"one"))
    write_new(path, locked)
    with pytest.raises(UserError, match="encrypted"):
        shoal_id()


@posix
def test_a_key_that_others_may_have_read_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(Identity.generate().to_pem())
    path.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        shoal_id()
