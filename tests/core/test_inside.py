"""A folder from somebody else cannot make this node read what is outside of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.inside import card_files, check_inside
from shoal.tasks.data.sources import sides_of
from shoal.tasks.data.spec import DataSpec

SECRET = '{"question": "password", "answer": "1"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.jsonl").write_text(SECRET)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "own.jsonl").write_text('{"question": "2 + 2", "answer": "4"}\n')
    return tmp_path / "data"


@pytest.mark.parametrize(
    "named",
    ["../secret.jsonl", "sub/../../secret.jsonl", "/etc/passwd", "https://example.org/x.jsonl", "hf://datasets/a/b/x",
     "zip://x::https://example.org/y.zip", "../*.jsonl", "[own.jsonl, ../secret.jsonl]"],
)  # fmt: skip
def test_a_card_names_no_file_elsewhere(folder: Path, named: str) -> None:
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {named}\n---\n"
    )
    with pytest.raises(UserError, match="outside of it"):
        sides_of(DataSpec(path=str(folder)))


@pytest.mark.parametrize(
    "head", ["data_files: own.jsonl", "data_dir: .", "data_files:\n  - split: train\n    path: own*"]
)
def test_a_card_names_its_own_files(folder: Path, head: str) -> None:
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  {head}\n---\nSee ../x")
    check_inside(folder, card_files(folder / "README.md"))


@pytest.mark.parametrize("head", ["a: &a [x, x]\nb: *a", "a: [" * 3000, "a: \x00", "configs: - - {"])
def test_a_card_that_is_no_card_is_a_line(folder: Path, head: str) -> None:
    (folder / "README.md").write_text(f"---\ndata_files: own.jsonl\n{head}\n---\n")
    with pytest.raises(UserError, match="cannot be read"):
        list(card_files(folder / "README.md"))


def test_links_stay_inside(folder: Path) -> None:
    (folder / "again.jsonl").symlink_to(folder / "own.jsonl")
    check_inside(folder)
    (folder / "more.jsonl").symlink_to(folder.parent / "secret.jsonl")
    with pytest.raises(UserError, match=r"more\.jsonl, which is outside"):
        sides_of(DataSpec(path=str(folder)))


def test_a_link_to_a_folder_elsewhere(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    (folder / "train").symlink_to(folder.parent / "other", target_is_directory=True)
    with pytest.raises(UserError, match="outside"):
        check_inside(folder)


def test_snapshots_of_the_hub_are_links_to_its_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    blob = tmp_path / "models--a--b" / "blobs" / "abc"
    blob.parent.mkdir()
    blob.write_text("{}")
    (snapshot / "config.json").symlink_to(blob)
    check_inside(snapshot)
    (tmp_path / "x").write_text("")
    (snapshot / "x").symlink_to(tmp_path / "x")
    with pytest.raises(UserError, match="outside"):
        check_inside(snapshot)


def test_what_save_to_disk_lists(folder: Path) -> None:
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../secret.arrow"}]}))
    with pytest.raises(UserError, match="outside"):
        sides_of(DataSpec(path=str(folder)))
