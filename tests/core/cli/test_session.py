"""What a run prints last: its result, its best model, and what to do next."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from shoal.cli.session import print_result
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.runs.folder import RunFolder, best_model, read_metrics
from shoal.runs.session import execute
from shoal.runs.tables import TRANSCRIPTS


class Ended:
    """The outcome of a run."""

    device = "cpu, float32"
    seconds = 372.0
    warnings = ("task x: broken", "")
    hopeless = False

    def __init__(self, folder: Path, finished: bool) -> None:
        self.folder = folder
        self.finished = finished
        self.round = 2


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two nodes with models, of which bob is better, and one that answers by an endpoint."""

    def save(folder: Path) -> None:
        for node, file in (("ada", "config.json"), ("bob", "adapter_config.json"), ("far", "node.json")):
            (folder / node).mkdir()
            (folder / node / file).write_text("{}")

    held_out = {"ada": (0.1, 0.2), "bob": (0.1, 0.6), "far": (0.9, 0.9)}
    with RunFolder.create(tmp_path / "run", "") as folder:
        for round in (0, 1, 2):
            folder.log(
                [
                    {"round": round, "node": node}
                    | ({"reward/local": 0.5, "gradient/peers": 0.4} if round else {})
                    | ({} if round == 1 else {"eval/pass@1": ends[round // 2]})
                    for node, ends in held_out.items()
                ]
            )
        folder.checkpoint(2, save)
    return tmp_path / "run"


def said(folder: Path, finished: bool, quiet: bool = False, config: Config | None = None) -> str:
    file = io.StringIO()
    console = Console(file=file, width=80, soft_wrap=True)
    print_result(console, Ended(folder, finished), config or Config(), "run", quiet)  # type: ignore[arg-type]
    return file.getvalue()


def test_what_peers_gave_is_said(run: Path) -> None:
    assert "peers gave       40% of the gradient\n" in said(run, finished=True)


def test_the_best_model_is_that_of_the_highest_held_out_figure(run: Path, tmp_path: Path) -> None:
    assert best_model(run, read_metrics(run)) == run / "checkpoints" / "round-000002" / "bob"
    with RunFolder.create(tmp_path / "without", "") as folder:
        assert best_model(folder.path, []) is None


def test_a_run_that_was_stopped_early_claims_no_change(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.log([{"round": 0, "node": "ada", "eval/pass@1": 0.25}])
        folder.log([{"round": 1, "node": "ada", "reward/local": 0.5}])
    text = said(tmp_path / "run", finished=False)
    assert "it never practised (held-out pass@1):\n  before training   25.0%\n  not measured after it\n" in text
    assert "local reward     0.500\n" in text


def test_a_finished_run_says_what_next(run: Path) -> None:
    text = said(run, finished=True)
    assert "they never practised, mean of 3 nodes (held-out pass@1):\n" in text
    assert "  before training   36.7%\n  after round 2     56.7%\n" in text
    model = run / "checkpoints" / "round-000002" / "bob"
    assert f"model    {model}\n" in text
    for step in (
        f"shoal ask {run} 'Your question'",
        f"shoal export {run} --to run-model",
        f"shoal watch {run}",
        f"shoal run --resume {run} --rounds 200",
    ):
        assert f":\n  {step}\n" in text
    assert "2 rounds on cpu, float32 in 6:12\n" in text
    assert "shoal watch" not in said(run, finished=True, quiet=True)
    assert text.count(":\n  shoal ") == 4


def test_the_last_line_of_a_success_is_a_step_and_warnings_come_first(run: Path) -> None:
    for quiet in (False, True):
        text = said(run, finished=True, quiet=quiet)
        assert text.lstrip().startswith("warning: task x: broken\n")
        assert text.count("warning: ") == 1
    assert said(run, finished=True).splitlines()[-1].startswith("  shoal ")


def test_without_held_out_questions_the_local_reward_is_a_result(run: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "eval/pass@1"} for row in read_metrics(run)]
    with RunFolder.open(run) as folder:
        folder.rewrite_metrics(rows)
    text = said(run, finished=True)
    assert "local reward     0.500\n" in text
    assert "held-out pass@1" not in text


def test_a_run_without_checkpoints_promises_nothing(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    assert "--resume" not in said(run, finished=True)
    assert said(run, finished=False).endswith("stopped after round 2 of 100, without a checkpoint: it cannot go on\n")
    (run / "config.toml").write_text("checkpoint_every = 0")
    with pytest.raises(UserError, match="has no checkpoint"):
        execute(Config(), resume=run)
    assert len(read_metrics(run)) == 9


def test_before_and_after_are_those_of_the_best_node_whatever_they_are(run: Path) -> None:
    rows = [
        (0, "bob", "It is the larger one.", 0.0),
        (0, "ada", "39", 1.0),
        (2, "bob", "\x1b[31m[bold]39[/bold]\n", 1.0),
        (2, "ada", "36", 0.0),
    ]
    with RunFolder.open(run) as folder:
        for round, node, text, reward in rows:
            row = {"node": node, "task": "larger", "prompt": "Which is larger, 36 or 39?", "finish_reason": "stop"}
            folder.save(TRANSCRIPTS, round, [row | {"completion": text, "reward": reward}])
        folder.flush()
    text = said(run, finished=True)
    assert "Which is larger, 36 or 39?\n    before  wrong  It is the larger one.\n" in text
    assert "    after   right  ?[31m[bold]39[/bold]\n" in text
    assert "of 1 question that it never practised 1 became right, 0 became wrong (bob):\n" in text
    assert "larger" not in said(run, finished=True, quiet=True)


def keep(run: Path, answers: list[tuple[str, str, str, bool, bool]]) -> None:
    """Adds questions with the answers before and after, and whether they are right, to the run."""
    with RunFolder.open(run) as folder:
        for question, *texts, was, now in answers:
            for round, text, reward in ((0, texts[0], was), (2, texts[1], now)):
                row = {"node": "bob", "task": "t", "prompt": question, "finish_reason": "stop"}
                folder.save(TRANSCRIPTS, round, [row | {"completion": text, "reward": float(reward)}])
        folder.flush()


def test_five_questions_are_shown_and_what_became_wrong_is_among_them(run: Path) -> None:
    kinds = [(True, True), (False, False), (True, False), *[(False, True)] * 6]
    keep(run, [(f"question {at}", "7", "8", *kind) for at, kind in enumerate(kinds)])
    text = said(run, finished=True)
    assert "of 9 questions that it never practised 6 became right, 1 became wrong (bob):\n" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  question")] == ["3", "4", "5", "2", "1"]


def test_long_and_hostile_answers_are_cut_to_a_line_with_tags_as_they_are(run: Path) -> None:
    keep(run, [("why?\n" * 500, "<think>\x1b[2J" + "so " * 2000 + "<answer>7</answer>", "\u202e\r8", False, True)])
    lines = said(run, finished=True).splitlines()
    assert all(line.isprintable() for line in lines)
    [before] = [line for line in lines if line.startswith("    before  wrong  <think>?[2J")]
    assert before.endswith("<answer>7</answer>")
    assert len(before) <= 80
    assert max(len(line) for line in lines if "why" in line) <= 160


def test_a_stopped_run_says_how_to_go_on(run: Path) -> None:
    assert said(run, finished=False).endswith(f"stopped after round 2 of 100; to go on:\n  shoal run --resume {run}\n")
    own = Config.model_validate({"selection": {"rule": "mine:Choice"}})
    assert said(run, finished=False, config=own).endswith(f"--resume {run} --allow-code\n")
