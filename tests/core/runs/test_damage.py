"""What becomes of a run whose files are damaged: it goes on from the last checkpoint that is whole, and says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.figures import figures

from shoal.cli.main import main
from shoal.config.manifest import FILES, damage
from shoal.errors import UserError
from shoal.runs.folder import RunFolder, checkpoints, models, read_metrics
from shoal.runs.source import source_of
from shoal.runs.tables import LEARNED, ROLLOUTS

Capture = pytest.CaptureFixture[str]


def save(path: Path) -> None:
    (path / "node-1").mkdir()
    (path / "node-1" / "config.json").write_text("{}")
    (path / "node-1" / "weights").write_bytes(bytes(1000))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three rounds with a checkpoint after each."""
    with RunFolder.create(tmp_path / "run", "seed = 1\n") as folder:
        for round in (1, 2, 3):
            folder.log([{"round": round, "node": "node-1"}])
            folder.checkpoint(round, save)
    return tmp_path / "run"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda room: os.truncate(room / "node-1" / "weights", 10), "node-1/weights has 10 bytes, and 1,000 were"),
        (lambda room: (room / "node-1" / "weights").unlink(), "node-1/weights is missing"),
        (lambda room: flip(room / "node-1" / "weights"), "node-1/weights is not as it was written"),
        (lambda room: shutil.rmtree(room / "node-1"), "node-1/config.json is missing"),
        (lambda room: os.truncate(room / FILES, 10), "files.json cannot be read"),
    ],
)
def test_damage_is_noticed_and_the_checkpoint_before_is_taken(
    run: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(run / "checkpoints" / "round-000003")
    with RunFolder.open(run) as folder:
        found, [fault] = folder.intact()
        assert found is not None
        assert found[0] == 2
        assert said in fault
        assert fault.endswith("going on after round 2")
        assert folder.rewind(2) == []
        assert [round for round, _ in checkpoints(run)] == [2]
        assert [row["round"] for row in read_metrics(run)] == [1, 2]


def test_a_run_whose_checkpoints_are_all_damaged_stays_as_it_is(run: Path) -> None:
    for _, room in checkpoints(run):
        os.truncate(room / "node-1" / "weights", 10)
    with RunFolder.open(run) as folder, pytest.raises(UserError, match=r"round-000003 is damaged .*there is no other"):
        folder.intact()
    assert len(checkpoints(run)) == 2


def test_a_checkpoint_of_an_older_version_has_no_manifest(run: Path) -> None:
    (run / "checkpoints" / "round-000003" / FILES).unlink()
    assert damage(run / "checkpoints" / "round-000003") == ""


def test_names_in_a_stranger_s_manifest_lead_nowhere(run: Path) -> None:
    room = run / "checkpoints" / "round-000003"
    (room / FILES).write_text('{"../../config.toml": [9, ""], "/etc/passwd": [9, ""]}')
    assert damage(room) == "../../config.toml is missing"


def test_ask_and_export_take_the_model_that_is_whole(run: Path) -> None:
    before = run / "checkpoints" / "round-000002" / "node-1"
    os.truncate(run / "checkpoints" / "round-000003" / "node-1" / "weights", 10)
    assert models(run) == {"node-1": before}
    assert source_of(str(run)).round == 2
    assert source_of(str(before)).model == str(before)


def test_tables_that_are_damaged_are_put_aside(run: Path) -> None:
    for table in (ROLLOUTS, LEARNED):
        (run / table).mkdir()
        (run / table / "from-round-000001.parquet").write_bytes(b"PAR1" * 5)
    with RunFolder.open(run) as folder:
        faults = folder.rewind(3)
    assert [fault.partition(" is damaged")[0] for fault in faults] == [
        str(run / table / "from-round-000001.parquet") for table in (ROLLOUTS, LEARNED)
    ]
    assert (run / ROLLOUTS / "from-round-000001.parquet.damaged").read_bytes() == b"PAR1" * 5


def test_metrics_that_end_too_early_are_told(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"round": 1, "node": "node-1"}\n{"round": 2, "no')
    with RunFolder.open(run) as folder:
        assert folder.rewind(3) == [f"{run / 'metrics.jsonl'} lacks rounds before the checkpoint"]
    assert [row["round"] for row in read_metrics(run)] == [1]


def test_a_file_named_as_a_checkpoint_is_none(run: Path) -> None:
    (run / "checkpoints" / "round-000009").touch()
    assert [round for round, _ in checkpoints(run)] == [2, 3]


SMALL = """--nodes 2 --local 2 --peers 1 --num-generations 4 --learner.learning-rate 1e-3 --threads 1
    --evaluation.every 2 --eval-questions 2 --eval-samples 1 --checkpoint-every 1 --quiet""".split()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["run", *SMALL, "--rounds", "3", "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_a_run_with_a_damaged_checkpoint_ends_as_if_nothing_had_happened(
    whole: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    os.truncate(run / "checkpoints" / "round-000003" / "node-2" / "learner.pt", 4096)
    assert main(["run", "--resume", str(run), "--quiet"]) == 0
    assert "node-2/learner.pt has 4,096 bytes" in capsys.readouterr().err
    assert figures(run) == figures(whole)
    again, first = (folder / "checkpoints" / "round-000003" / FILES for folder in (run, whole))
    assert again.read_bytes() == first.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("nodes = 2", "nodes = 3", "has no checkpoint of node-3: bring back the config.toml with its 2 nodes"),
        ('optim = "adamw"', 'optim = "adafactor"', "has the state of another optimizer"),
    ],
)
def test_a_config_that_somebody_changed_is_told(
    whole: Path, tmp_path: Path, capsys: Capture, was: str, now: str, said: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    config = (run / "config.toml").read_text()
    assert was in config
    (run / "config.toml").write_text(config.replace(was, now))
    assert main(["run", "--resume", str(run), "--quiet", "--rounds", "4"]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_removed_meanwhile_is_said(run: Path) -> None:
    with RunFolder.open(run) as folder:
        shutil.rmtree(run)
        with pytest.raises(UserError, match=r"metrics\.jsonl: its folder is gone"):
            folder.log([{"round": 4, "node": "node-1"}])
