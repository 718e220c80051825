"""`shoal id`: a key moves to another machine, encrypted or not, and replaces another one on demand only."""

from __future__ import annotations

import argparse
import json
import os
import stat
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("words", [["--passphrase-file", "x"], ["--force"]])
def test_flags_of_id_that_would_do_nothing_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["id", *words]) != 0
    assert "goes with --" in capsys.readouterr().err


def test_shoal_id_shows_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shoal_id("--json") == 0
    made = Identity.load_or_create(path)
    assert json.loads(capsys.readouterr().out) == {"name": made.name, "key": made.id, "file": str(path)}
    assert shoal_id() == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()] == [["name", made.name], ["key", made.id], ["file", str(path)]]


@pytest.mark.parametrize("secret", [None, "correct horse\n"])
def test_it_moves_to_another_machine(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    copy, flags = tmp_path / "copy.pem", []
    if secret:
        (tmp_path / "passphrase").write_text(secret)
        flags = ["--passphrase-file", tmp_path / "passphrase"]
    shoal_id("--export", copy, *flags)
    assert mode(copy) == 0o600
    assert (b"ENCRYPTED" in copy.read_bytes()) == bool(secret)
    made = Identity.load_or_create(path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "other"))
    shoal_id("--import", copy, *flags)
    assert Identity.load_or_create(tmp_path / "other" / "identity").id == made.id
    assert [entry.name for entry in (tmp_path / "other").iterdir()] == ["identity"]
    shoal_id("--import", copy, *flags)  # again: nothing to do
    assert [entry.name for entry in (tmp_path / "other").iterdir()] == ["identity"]
    with pytest.raises(UserError, match="exists"):
        shoal_id("--export", copy)


def test_a_wrong_or_missing_passphrase(path: Path, tmp_path: Path) -> None:
    for name, text in (("right", "one"), ("wrong", "two"), ("empty", "\n")):
        (tmp_path / name).write_text(text)
    shoal_id("--export", tmp_path / "copy", "--passphrase-file", tmp_path / "right")
    for flags, message in (
        ([], "--passphrase-file"),
        (["--passphrase-file", tmp_path / "wrong"], "passphrase is wrong"),
        (["--passphrase-file", tmp_path / "empty"], "no passphrase"),
        (["--passphrase-file", tmp_path / "none"], "cannot read"),
    ):
        with pytest.raises(UserError, match=message):
            shoal_id("--import", tmp_path / "copy", *flags)
    (tmp_path / "copy").rename(path)
    with pytest.raises(UserError, match="encrypted"):
        Identity.load_or_create(path)


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
