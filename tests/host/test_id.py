"""`shoal id`: a key moves to another machine and replaces another one on demand only."""

from __future__ import annotations

import argparse
import json
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from shoal.cli.main import main
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


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_flag_of_id_that_would_do_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["id", "--force"]) != 0
    assert "goes with --" in capsys.readouterr().err


def test_shoal_id_shows_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shoal_id("--json") == 0
    made = Identity.load_or_create(path)
    assert json.loads(capsys.readouterr().out) == {"name": made.name, "key": made.id, "file": str(path)}
    assert shoal_id() == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()] == [["name", made.name], ["key", made.id], ["file", str(path)]]


def test_it_moves_to_another_machine(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy.pem"
    shoal_id("--export", copy)
    assert mode(copy) == 0o600
    made = Identity.load_or_create(path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "other"))
    shoal_id("--import", copy)
    assert Identity.load_or_create(tmp_path / "other" / "identity").id == made.id
    assert [entry.name for entry in (tmp_path / "other").iterdir()] == ["identity"]
    shoal_id("--import", copy)  # again: nothing to do
    assert [entry.name for entry in (tmp_path / "other").iterdir()] == ["identity"]
    with pytest.raises(UserError, match="exists"):
        shoal_id("--export", copy)


def test_an_encrypted_key_is_refused(path: Path, tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    locked = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"one"))
    write_new(tmp_path / "copy", locked)
    with pytest.raises(UserError, match="encrypted"):
        shoal_id("--import", tmp_path / "copy")
    assert not path.exists()


def test_another_identity_is_replaced_on_demand_only_and_kept(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = Identity.load_or_create(path), Identity.generate()
    write_new(tmp_path / "new", new.to_pem())
    with pytest.raises(UserError, match=f"{old.name}.*--force"):
        shoal_id("--import", tmp_path / "new")
    assert Identity.load(path).id == old.id
    shoal_id("--import", tmp_path / "new", "--force", "--json")
    backup = Path(json.loads(capsys.readouterr().out)["backup"])
    assert Identity.load(path).id == new.id
    assert Identity.load(backup).id == old.id
    assert mode(path) == mode(backup) == 0o600


def test_a_broken_one_is_replaced_on_demand_only_and_kept(path: Path, tmp_path: Path) -> None:
    new = Identity.generate()
    write_new(tmp_path / "new", new.to_pem())
    for number, damage in enumerate((b"first", b"second", b"second")):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(damage)
        path.chmod(0o600)
        with pytest.raises(UserError, match="damaged"):
            shoal_id("--import", tmp_path / "new")
        shoal_id("--import", tmp_path / "new", "--force")
        assert Identity.load(path).id == new.id
        assert len(list(path.parent.glob("*.bak"))) == min(number + 1, 2)
    assert {backup.read_bytes() for backup in path.parent.glob("*.bak")} == {b"first", b"second"}


@posix
def test_a_key_that_others_may_have_read_is_not_imported(path: Path, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(Identity.generate().to_pem())
    (tmp_path / "new").chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        shoal_id("--import", tmp_path / "new")
    assert not path.exists()
