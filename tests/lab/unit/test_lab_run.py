"""Running a study: real runs in real processes, killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tomli_w
from distillation import with_example
from rich.console import Console

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Completion
from shoal.runs.folder import read_metrics
from shoal.tasks import Tasks
from shoal_lab import cells
from shoal_lab.bases import make_base, make_examples, prompt
from shoal_lab.cells import DONE, run_cell
from shoal_lab.config import LabConfig
from shoal_lab.processes import Event, run_jobs
from shoal_lab.provenance import SOURCES, differences
from shoal_lab.recipes import Recipe, in_order
from shoal_lab.report import write_report
from shoal_lab.results import read_results
from shoal_lab.runner import open_study, run_study
from shoal_lab.study import Arm, Study

pytestmark = pytest.mark.slow

STUDY = {
    "title": "A trial",
    "seeds": [1, 2],
    "base": {
        "rounds": 3,
        "round": {"nodes": 2},
        "evaluation": {"every": 3, "questions": 1, "samples": 1},
    },
    "arms": {
        "2/0": {"round": {"local": 2, "peers": 0}},
        "1/1": {"round": {"local": 1, "peers": 1}},
    },
}
QUIET = Console(quiet=True)


def write(path: Path, study: dict[str, object]) -> Path:
    path.write_text(tomli_w.dumps(study))
    return path


def figures(folder: Path) -> list[dict[str, object]]:
    """The metrics of a run without what the clock says."""
    return [{k: v for k, v in row.items() if k != "time" and "seconds" not in k} for row in read_metrics(folder)]


def small(**settings: object) -> Study:
    base = {
        "rounds": 1,
        "threads": 1,
        "round": {"nodes": 1, "local": 1, "workers": 0},
        "evaluation": {"every": 0},
        **settings,
    }
    return Study.model_validate({"title": "Small", "seeds": [1, 2], "base": base, "arms": {"a": {}}})


def test_a_study_runs_and_is_not_run_again(tmp_path: Path) -> None:
    study, folder = open_study(write(tmp_path / "a.toml", STUDY), tmp_path / "out", False)
    assert run_study(study, folder, QUIET, jobs=2) == []
    cells = list(study.cells())
    for cell in cells:
        rows = read_metrics(folder / cell.path)
        assert [row["round"] for row in rows if row["node"] == "node-1"] == [0, 1, 2, 3]
        done = json.loads((folder / cell.path / DONE).read_text())
        assert done["rounds"] == 3
        assert done["versions"]["shoal"].endswith(f"+{SOURCES}")
        assert not (folder / cell.path / "checkpoints").exists()
    before = (folder / cells[0].path / "metrics.jsonl").stat().st_mtime_ns
    (folder / cells[1].path / DONE).unlink()
    again, _ = open_study(folder, None, False)
    was = figures(folder / cells[1].path)
    assert run_study(again, folder, QUIET, jobs=1) == []
    assert (folder / cells[0].path / "metrics.jsonl").stat().st_mtime_ns == before
    assert figures(folder / cells[1].path) == was  # run again from the beginning: the same, whatever the processes


def test_a_shared_run_runs_once_and_is_read_for_each_arm(tmp_path: Path) -> None:
    study = small(round={"nodes": 2, "local": 1, "workers": 0})
    study.arms["a"].count, study.arms["b"] = ["node-1"], Arm(count=["node-2"])
    write(tmp_path / "study.toml", study.model_dump(exclude_none=True, exclude_defaults=True))
    assert run_study(study, tmp_path, QUIET, jobs=1) == []
    assert [path.name for path in (tmp_path / "runs" / "main").iterdir()] == ["a"]
    results = read_results(tmp_path)
    assert {run.cell.arm: run.nodes for run in results.finished} == {"a": ["node-1"], "b": ["node-2"]}
    report = json.loads(write_report(tmp_path, QUIET).with_suffix(".json").read_text())
    assert report["regimes"]["main"]["shared_runs"] == {"b": "a"}
    assert report["finished"] == len(study.seeds)  # not twice as many
    assert report["seconds"] == sum(run.seconds for run in results.finished if run.cell.arm == "a")


def test_another_study_is_not_mixed_in(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", STUDY)
    open_study(file, tmp_path / "out", False)
    with pytest.raises(UserError, match="another study"):
        open_study(write(file, STUDY | {"base": {}}), tmp_path / "out", False)
    with pytest.raises(UserError, match="its own settings"):
        open_study(tmp_path / "out", None, True)
    with pytest.raises(UserError, match="another study"):
        open_study(write(tmp_path / "b.toml", STUDY | {"expect": ["it does"]}), tmp_path / "out", False)


def test_what_changed_after_a_first_look_may_be_said_later(tmp_path: Path) -> None:
    open_study(write(tmp_path / "a.toml", STUDY), tmp_path / "out", False)
    said = write(tmp_path / "a.toml", STUDY | {"changed": ["the figure"]})
    _, folder = open_study(said, tmp_path / "out", False)
    assert open_study(folder, None, False)[0].changed == ["the figure"]


def test_a_run_that_fails_costs_itself_alone(tmp_path: Path) -> None:
    study = Study.model_validate({**STUDY, "arms": {**STUDY["arms"], "bad": {"policy": {"model": ["/no/such/model"]}}}})  # type: ignore[dict-item]
    failures = run_study(study, tmp_path, QUIET, jobs=2)
    assert len(failures) == 2
    assert all("bad" in failure and "/no/such/model" in failure for failure in failures)
    assert sum((tmp_path / cell.path / DONE).exists() for cell in study.cells()) == 4


def test_a_killed_study_goes_on(tmp_path: Path) -> None:
    study = {**STUDY, "base": {**STUDY["base"], "rounds": 12, "checkpoint_every": 2}}  # type: ignore[dict-item]
    file, out = write(tmp_path / "a.toml", study), tmp_path / "out"
    command = [sys.executable, "-m", "shoal", "lab", "run", str(file), "--out", str(out), "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*/*/*/checkpoints/round-000002")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    opened, folder = open_study(out, None, False)
    first = folder / next(opened.cells()).path
    for _ in range(20):  # its worker sees within a second that it is alone, and holds its folder until then
        if run_study(opened, folder, QUIET, jobs=2) == []:
            break
        time.sleep(1)
    rows = read_metrics(first)
    assert [row["round"] for row in rows if row["node"] == "node-1"] == list(range(13))


def test_ctrl_c_ends_a_study_and_all_its_processes(tmp_path: Path) -> None:
    study = {**STUDY, "base": {**STUDY["base"], "rounds": 10_000}}  # type: ignore[dict-item]
    file, out = write(tmp_path / "a.toml", study), tmp_path / "out"
    command = [sys.executable, "-m", "shoal", "lab", "run", str(file), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list(out.glob("runs/*/*/*/metrics.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"shoal lab run {out}" in said
    assert len(started) >= 2
    assert psutil.wait_procs(started, timeout=30)[1] == []


def _work(value: str, tell: object) -> None:
    tell(len(value))  # type: ignore[operator]
    if value == "die":
        os._exit(3)
    if value == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if value == "raise":
        raise ValueError("no")


def _spoil(spoil: bool, tell: object) -> None:
    tell(os.environ.get("SPOILT", "no"))  # type: ignore[operator]
    if spoil:
        os.environ["SPOILT"] = "yes"
        raise ValueError("no")


def test_what_a_failed_job_did_to_its_process_is_gone() -> None:
    events = run_jobs([(_spoil, (True,)), (_spoil, (False,))], 1)
    assert [event.value for event in events if event.kind == "progress"] == ["no", "no"]


def test_jobs_that_die_or_raise_cost_themselves_alone() -> None:
    words = ["fine", "die", "raise", "kill", "kill", "well"]
    events = list(run_jobs([(_work, (word,)) for word in words], 2))
    ends = {event.job: event for event in events if event.kind != "progress"}
    assert [ends[job].kind for job in range(6)] == ["done", "failed", "failed", "failed", "failed", "done"]
    assert "code 3" in ends[1].value
    assert "ValueError: no" in ends[2].value
    assert "code -9" in ends[3].value
    assert Event(0, "progress", 4) in events


def test_bases_come_after_what_they_start_from() -> None:
    turns = in_order({"b": Recipe(start="a"), "a": Recipe(start="guppy"), "c": Recipe()})
    assert turns == [["a", "c"], ["b"]]
    with pytest.raises(ValueError, match="b from 'z'"):
        in_order({"b": Recipe(start="z")})


def test_a_base_is_a_model_folder_and_a_function_of_its_recipe(tmp_path: Path) -> None:
    recipe = Recipe(start="guppy", steps=2, batch=4, knows=["chain_sum"])
    for name in ("one", "two"):
        make_base(recipe, "guppy", tmp_path / name, lambda text: None)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    assert json.loads((tmp_path / "one" / "recipe.json").read_text())["knows"] == ["chain_sum"]


def test_a_base_that_uses_what_it_is_shown_reads_questions_after_their_answers() -> None:
    """Its examples are what a node's own teacher reads (`examples/distillation.py`): the question, its right answer,
    and the question again. An answer to another question is of no use."""
    tasks = Tasks(TasksConfig())
    plain, shown = (make_examples(tasks, Recipe(start="guppy", shown=share), 300) for share in (0.0, 1.0))
    alone, again, other = [], [], []
    for (asked, _), (question, answer) in zip(plain, shown, strict=True):
        before = question.removesuffix(asked)
        kind = again if before == f"{asked}{answer}\n" else other if before else alone
        kind.append((before, answer))
    assert min(len(again), len(other)) > 100
    assert len(alone) < 10
    assert sum(answer in before for before, answer in other) < 20
    policy = LanguagePolicy("guppy", Sampling(max_completion_length=8))
    [question] = tasks.draw(1, "any", 0)
    text = prompt(question)
    read = policy.prompt_ids(with_example(question, Completion.of("8")))
    assert read == policy.lm.tokenizer(f"{text}8\n{text}").input_ids


def test_a_base_of_a_task_without_right_answers_is_refused(tmp_path: Path) -> None:
    recipe = Recipe(start="guppy", tasks=TasksConfig(sources=[TaskSpec(name="guess")]), steps=1)
    with pytest.raises(UserError, match="'guess' names no right answers"):
        make_base(recipe, "guppy", tmp_path / "base", lambda text: None)


def test_a_base_has_whole_heads() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        Recipe(hidden_size=100)


def test_a_base_of_as_many_steps_as_the_warm_up_has(tmp_path: Path) -> None:
    make_base(Recipe(start="guppy", steps=20, batch=2), "guppy", tmp_path / "base", lambda text: None)


HOLD = "import sys, time; from shoal.runs.disk import locked; f = locked(__import__('pathlib').Path(sys.argv[1]))"


def test_one_process_at_a_time_runs_a_study(tmp_path: Path) -> None:
    code = f"{HOLD}; print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UserError, match="another process is writing"):
            run_study(Study.model_validate(STUDY), tmp_path, QUIET, jobs=1)
        other.kill()
    assert list(tmp_path.iterdir()) == [tmp_path / ".lock"]


def test_a_run_is_held_until_it_is_marked_as_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def write(path: Path, data: bytes) -> None:
        tried.append(subprocess.run([sys.executable, "-c", HOLD, str(path.parent)], capture_output=True, text=True))
        path.write_bytes(data)

    monkeypatch.setattr(cells, "write_atomically", write)
    config = LabConfig.model_validate({"rounds": 1, "round": {"nodes": 1, "workers": 0}, "evaluation": {"every": 0}})
    run_cell(config, tmp_path / "run", lambda round: None)
    assert ["another process is writing" in each.stderr for each in tried] == [True]


def test_finished_runs_with_other_settings_are_refused_and_told(tmp_path: Path) -> None:
    study = small()
    write(tmp_path / "study.toml", study.model_dump(exclude_none=True, exclude_defaults=True))
    assert run_study(study, tmp_path, QUIET, jobs=1) == []
    cells = list(study.cells())
    file = tmp_path / cells[0].path / "config.toml"
    whole = file.read_text()
    file.write_text(whole.replace("lora_r = 0\n", ""))  # as if that setting had come later
    assert file.read_text() != whole
    assert run_study(study, tmp_path, QUIET, jobs=1) == []
    file.write_text(whole.replace("lora_r = 0\n", "lora_r = 4\n"))
    with pytest.raises(UserError, match=f"policy.lora_r was 4, and is 0.*delete {tmp_path / cells[0].path} to"):
        run_study(study, tmp_path, QUIET, jobs=1)


def test_a_run_that_was_killed_with_other_settings_begins_anew(tmp_path: Path) -> None:
    cell = next(small().cells())
    old, new = small(checkpoint_every=1).config(cell), small(rounds=2).config(cell)
    run_cell(old, tmp_path / "run", lambda round: None)
    (tmp_path / "run" / DONE).unlink()
    run_cell(new, tmp_path / "run", lambda round: None)
    assert differences(tmp_path / "run", new) == []
    assert [row["round"] for row in read_metrics(tmp_path / "run")] == [0, 1, 2]


def test_a_study_that_was_moved_is_the_same(tmp_path: Path) -> None:
    study = Study.model_validate(
        {**small().model_dump(), "bases": {"b": {}}, "base": {"policy": {"model": ["base:b"]}}}
    )
    cell = next(study.cells())
    config = study.config(cell, tmp_path / "before")
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert differences(tmp_path, study.config(cell, tmp_path / "after")) == []
    assert differences(tmp_path, study.config(cell)) == []


def test_a_study_whose_network_has_another_name_by_now_is_the_same(tmp_path: Path) -> None:
    config = small().config(next(small().cells()))
    text = config.to_toml()
    assert 'name = "lagoon"' in text
    (tmp_path / "config.toml").write_text(text.replace('name = "lagoon"', 'name = "reef"'))
    assert differences(tmp_path, config) == []


def test_a_study_that_begins_to_keep_checkpoints_is_the_same(tmp_path: Path) -> None:
    cell = next(small().cells())
    (tmp_path / "config.toml").write_text(small().config(cell).to_toml())
    assert differences(tmp_path, small(checkpoint_every=5).config(cell)) == []


def test_a_base_of_another_recipe_is_refused(tmp_path: Path) -> None:
    def study(**recipe: object) -> Study:
        bases = {"b": {"start": "guppy", "steps": 1, "batch": 2, **recipe}}
        policy = {"model": ["base:b"]}
        return Study.model_validate({**small(policy=policy).model_dump(), "bases": bases, "seeds": [1]})

    assert run_study(study(), tmp_path, QUIET, jobs=1) == []
    kept = tmp_path / "bases" / "b" / "recipe.json"
    recipe = json.loads(kept.read_text())
    del recipe["forms"]  # as if it had come later
    kept.write_text(json.dumps(recipe))
    assert run_study(study(), tmp_path, QUIET, jobs=1) == []
    with pytest.raises(UserError, match="made by another recipe"):
        run_study(study(right=0.2), tmp_path, QUIET, jobs=1)
    kept.write_text("{}")
    with pytest.raises(UserError, match="made by another recipe"):
        run_study(study(), tmp_path, QUIET, jobs=1)
