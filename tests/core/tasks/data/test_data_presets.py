"""Folders, names on the Hub, and presets, on rows of the same schema: no test reaches the Hub."""

from __future__ import annotations

import importlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from data_files import SUMS, Rows, data_config, write

from shoal.errors import UserError
from shoal.tasks import Tasks
from shoal.tasks.data.sources import sides_of
from shoal.tasks.data.spec import PRESETS, data_spec
from shoal.tasks.data.task import data_task

pytestmark = pytest.mark.slow  # datasets takes seconds to import

INSTRUCTION = "Solve the following math problem step by step. ... Remember to put your answer on its own line.\n\n"
SCHEMAS: dict[str, dict[str, Rows]] = {
    "gsm8k": {
        "train": [
            {"question": f"{n} legs and 2?", "answer": f"It is {n}+2.\n#### {n + 2:,}"} for n in range(990, 1010)
        ],
        "test": [{"question": f"{n} arms and 2?", "answer": f"It is {n}+2.\n#### {n + 2}"} for n in range(5)],
    },
    "math500": {
        "test": [
            {
                "problem": f"What is ${n}/7$?",
                "solution": f"It is $\\boxed{{\\frac{{{n}}}{{7}}}}$.",
                "answer": f"\\frac{{{n}}}{{7}}",
                "subject": "Algebra",
                "level": 1,
                "unique_id": f"test/{n}.json",
            }
            for n in range(1, 7)
        ]
    },
    "dapo-math": {
        "train": [
            {
                "prompt": f"Find {n} + {n}.",
                "solution": str(2 * n),
                "data_source": "math_dapo",
                "source_prompt": [{"role": "user", "content": INSTRUCTION}],
                "ability": "MATH",
                "reward_model": {"ground_truth": str(2 * n), "style": "rule-lighteval/MATH_v2"},
                "extra_info": {"index": f"{n}"},
            }
            for n in range(30)
        ]
    },
    "dapo-math-original": {
        "train": [
            {
                "data_source": "math_dapo",
                "prompt": [{"role": "user", "content": f"{INSTRUCTION}Find {n} + {n}."}],
                "ability": "MATH",
                "reward_model": {"ground_truth": str(2 * n), "style": "rule-lighteval/MATH_v2"},
                "extra_info": {"index": f"{n}"},
            }
            for n in range(30)
        ]
    },
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A Hub with the rows of `SCHEMAS`. It returns what was asked for."""
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[Any, ...]] = []

    def load_dataset(path: str, subset: str | None = None, revision: str | None = None) -> Any:
        asked.append((path, subset, revision))
        [name] = [name for name, preset in PRESETS.items() if preset["path"] == path]
        splits = {split: datasets.Dataset.from_list(list(rows)) for split, rows in SCHEMAS[name].items()}
        return datasets.DatasetDict(splits)

    monkeypatch.setattr(importlib.import_module("datasets"), "load_dataset", load_dataset)
    monkeypatch.setattr("shoal.tasks.data.sources._reached", lambda name: True)
    return asked


@pytest.mark.parametrize("by", [str, lambda name: PRESETS[name]["path"]], ids=["short", "Hub"])
@pytest.mark.parametrize("name", PRESETS)
def test_right_answers_are_right(hub: list[tuple[Any, ...]], name: str, by: Any) -> None:
    if PRESETS[name]["score"] == "math":
        pytest.importorskip("math_verify")
    task = data_task(path=by(name))
    for seed in range(20):
        question = task.question(seed, seed % 2)
        answer = task.answer(question.id)
        assert answer
        assert task.score(question.id, [answer, f"So it is \\boxed{{{answer}}}.", "77777"]) == [1.0, 1.0, 0.0]
    data_task(path=by(name))
    assert len(hub) == 1, "the Hub is asked once"
    assert hub[0] == (PRESETS[name]["path"], PRESETS[name].get("subset"), None)


def test_the_own_split_is_held_out(hub: list[tuple[Any, ...]]) -> None:
    tasks = Tasks(data_config("gsm8k"))
    assert {question.text for question in tasks.held_out(10, 0)["gsm8k"]} == {
        row["question"] for row in SCHEMAS["gsm8k"]["test"]
    }
    assert "legs" in tasks.draw(1, "k")[0].text


def test_what_is_to_measure_with_is_not_trained_on(hub: list[tuple[Any, ...]]) -> None:
    pytest.importorskip("math_verify")
    tasks = Tasks(data_config("math500"))
    assert len(tasks.held_out(500, 0)["MATH-500"]) == 6
    with pytest.raises(UserError, match="no training question"):
        tasks.draw(1, "k")


def test_parameters_go_over_those_of_a_preset() -> None:
    spec = data_spec({"path": "gsm8k", "held_out": "hash", "score": "exact"})
    assert (spec.path, spec.prompt, spec.held_out, spec.score, spec.name) == (
        *("openai/gsm8k", "question", "hash", "exact", "gsm8k"),
    )


def test_a_file_of_that_name_comes_first(tmp_path: Path) -> None:
    (tmp_path / "gsm8k").mkdir()
    assert data_spec({"path": "gsm8k"}).prompt == ""


def test_a_saved_folder_and_a_repository(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    train, test = (datasets.Dataset.from_list(list(rows)) for rows in (SUMS[:60], SUMS[60:]))
    datasets.DatasetDict(train=train, test=test).save_to_disk(str(tmp_path / "both"))
    train.save_to_disk(str(tmp_path / "one"))
    task = data_task(path="both")
    assert (task.info.train, task.info.held_out, task.name) == (60, 40, "both")
    assert data_task(path="one").info.train == 60
    assert not data_task(path="one").has_split
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: a.parquet\n"
        "  - split: test\n    path: b.parquet\n---\n"
    )
    write(tmp_path / "repository" / "a.parquet", SUMS[:60])
    write(tmp_path / "repository" / "b.parquet", SUMS[60:])
    assert data_task(path="repository", subset="main", name="both").version == task.version
    with pytest.raises(UserError, match="has no split 'dev'; it has train, test"):
        data_task(path="both", split="dev")
    with pytest.raises(UserError, match="'other'"):
        data_task(path="repository", subset="other")


def test_a_name_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    with pytest.raises(UserError, match="is no file here, and cannot be read from the Hub") as caught:
        data_task(path="nobody/nothing")
    assert "\n" not in str(caught.value)


def test_the_table_has_what_it_says() -> None:
    for preset in PRESETS.values():
        assert data_spec(json.loads(json.dumps(preset))).path == preset["path"]


@pytest.mark.parametrize("silent", [False, True])
def test_a_hub_that_cannot_be_reached_is_asked_once(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection, and an address that never answers. The library alone would try six times."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1] if silent else 9}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("shoal.tasks.data.sources.PATIENCE", 0.2)
        asked = []
        monkeypatch.setattr("huggingface_hub.HfApi.hf_hub_download", lambda *_, **__: asked.append(1))
        with pytest.raises(UserError, match="cannot be read from the Hub: it cannot be reached: check the name"):
            sides_of(data_spec({"path": "nobody/nothing"}))
    assert not asked
