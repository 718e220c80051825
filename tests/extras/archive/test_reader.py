"""What an archive is for other programs, and how one is read that a stranger made."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import NOW, envelope, tasks_of, write_archive

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal_extras.archive.format import parts_of
from shoal_extras.archive.reader import read_groups

MAKER = Identity.generate()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("a") / "lagoon", [envelope(MAKER, round) for round in range(12)])


def test_both_tables_have_the_fields_names(archive: Path) -> None:
    completions, groups = (pd.read_parquet(archive / name) for name in ("completions", "groups"))
    first = completions.iloc[0]
    assert len(completions) == 4 * len(groups) == 48
    assert {"prompt", "completion", "reward", "group_id", "task", "version", "config"} <= set(completions)
    assert (first["key"], first["node"], first["model"]) == (MAKER.id, MAKER.name, "guppy")
    assert (completions["reward"] >= 1).mean() == 0.5
    assert first["time"].timestamp() == NOW
    assert groups.iloc[0]["messages"][0] == {"role": "user", "content": first["prompt"]}


def test_the_newest_groups_come_first_and_within_the_limits(archive: Path) -> None:
    found = list(read_groups(archive))
    assert [group.statement.rollout.round for group in found] == list(range(11, -1, -1))
    assert [group.envelope for group in found] == [envelope(MAKER, round) for round in range(11, -1, -1)]
    assert len(list(read_groups(archive, most=3))) == 3
    arithmetic = [identity for identity in tasks_of().identities if identity[0] == "basic_arithmetic"]
    assert {group.statement.rollout.question.task for group in read_groups(archive, arithmetic)} == {"basic_arithmetic"}


def bomb(path: Path) -> None:
    """A row group of two gigabytes of zeros in some kilobytes."""
    schema = pa.schema([("envelope", pa.large_binary())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        writer.write_table(pa.table({"envelope": [bytes(1 << 28)] * 2}, schema=schema))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_columns(path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["a"]}), path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in range(100, len(data) - 100, 7):
        data[at] ^= 0x55
    path.write_bytes(data)


def long_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("damage", [bomb, empty, other_columns, cut, flipped, long_footer])
def test_a_hostile_file_is_one_line(damage: object, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "lagoon", [envelope(MAKER, round) for round in range(3)])
    [name] = parts_of(archive)
    damage(archive / "groups" / name)  # type: ignore[operator]
    with pytest.raises(UserError) as caught:
        list(read_groups(archive))
    assert "cannot read" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_and_foreign_names_are_not_read(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "lagoon"
    (other / "groups").mkdir(parents=True)
    [name] = parts_of(archive)
    (other / "groups" / name).symlink_to(archive / "groups" / name)
    (other / "groups" / "../notes.parquet").write_text("")
    assert parts_of(other) == []
    (tmp_path / "link").symlink_to(archive)
    for no_archive in (tmp_path / "link", tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match="is no archive"):
            parts_of(no_archive)
