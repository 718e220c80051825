"""Data sets as tasks: what users rely on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from data_files import SUMS, Rows, data_config, write

from shoal.config.names import data_settings
from shoal.errors import UserError
from shoal.rollout import Message
from shoal.tasks import Tasks
from shoal.tasks.data import store
from shoal.tasks.data.task import DataTask, data_task
from shoal.tasks.draw import InvalidRollout, validate


def only(path: Path, **more: Any) -> DataTask:
    return data_task(path=str(path), **more)


def all_texts(task: DataTask) -> set[str]:
    return {task.question(seed, index).text for seed in range(1000) for index in (0, 1)}


def test_every_row_is_a_question_with_its_answer(tmp_path: Path) -> None:
    task = only(write(tmp_path / "sums.jsonl", SUMS))
    assert (task.name, task.kind, task.info.train) == ("sums", "number", 100)
    assert all_texts(task) == {row["prompt"] for row in SUMS}
    question = task.question(7, 0)
    right = str(eval(question.text.removesuffix("=")))
    assert task.answer(question.id) == right
    assert task.score(question.id, [right, f"It is {right}.", "no"]) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_the_same_rows_have_the_same_identity_in_every_format(tmp_path: Path, ending: str) -> None:
    one, other = write(tmp_path / "sums.jsonl", SUMS), tmp_path / "copy"
    other.mkdir()
    copy = write(other / f"sums{ending}", SUMS)
    assert Tasks(data_config(one)).identities == Tasks(data_config(copy)).identities
    assert only(one).question(5, 3) == only(copy).question(5, 3)


def test_names_of_columns_and_other_columns_are_no_part_of_the_identity(tmp_path: Path) -> None:
    rows = [{"q": row["prompt"], "a": int(row["answer"]), "level": 1} for row in SUMS]
    other = only(write(tmp_path / "other.jsonl", rows), prompt="q", answer="a", name="sums")
    assert other.version == only(write(tmp_path / "sums.jsonl", SUMS)).version


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [*rows[1:], rows[0]],
        lambda rows: rows[1:],
        lambda rows: [{**rows[0], "answer": "1"}, *rows[1:]],
        lambda rows: [{**rows[0], "prompt": rows[0]["prompt"] + " "}, *rows[1:]],
    ],
    ids=["another order", "a row less", "another answer", "another question"],
)
def test_other_content_has_another_identity(tmp_path: Path, change: Any) -> None:
    other = tmp_path / "copy"
    other.mkdir()
    one, copy = write(tmp_path / "sums.jsonl", SUMS), write(other / "sums.jsonl", change(SUMS))
    assert only(one).version != only(copy).version
    tasks, theirs = Tasks(data_config(one)), Tasks(data_config(copy))
    [question] = theirs.draw(1, "their key")
    with pytest.raises(InvalidRollout, match="task"):
        validate(tasks, question.id, question.hash, 1, (("their key",), 0))


def test_another_way_of_scoring_has_another_identity(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    number, exact, boxed = data_config(path), data_config(path, {"score": "exact"}), data_config(path, answer="boxed")
    assert len({tuple(Tasks(config).identities) for config in (number, exact, boxed)}) == 3


def test_nobody_picks_his_own_rows(tmp_path: Path) -> None:
    tasks = Tasks(data_config(write(tmp_path / "sums.jsonl", SUMS)))
    for slot, question in enumerate(tasks.draw(8, "reef", "key", 3)):
        assert tasks.is_drawn(question.id, slot, "reef", "key", 3)
        assert not tasks.is_drawn(question.id, slot, "reef", "key", 4)
        assert not tasks.is_held_out(question)


def test_a_fifth_is_held_out_by_its_text(tmp_path: Path) -> None:
    tasks = Tasks(data_config(write(tmp_path / "sums.jsonl", SUMS)))
    held_out = {question.text for question in tasks.held_out(100, 0)["sums"]}
    drawn = {question.text for round in range(500) for question in tasks.draw(4, "k", round)}
    assert 5 < len(held_out) < 40
    assert drawn | held_out == {row["prompt"] for row in SUMS}
    assert not drawn & held_out


def test_a_file_of_ones_own_is_held_out_and_nothing_of_it_is_trained_on(tmp_path: Path) -> None:
    shared = SUMS[0]
    train = write(tmp_path / "sums.jsonl", SUMS[:50])
    test = write(tmp_path / "test.csv", [*SUMS[50:60], shared])
    tasks = Tasks(data_config(train, {"held_out": str(test)}))
    held_out = {question.text for question in tasks.held_out(100, 0)["sums"]}
    drawn = {question.text for round in range(300) for question in tasks.draw(4, "k", round)}
    assert held_out == {row["prompt"] for row in [*SUMS[50:60], shared]}
    assert drawn == {row["prompt"] for row in SUMS[1:50]}
    for question in tasks.draw(20, "k", 9):
        assert tasks.is_drawn(question.id, tasks.draw(20, "k", 9).index(question), "k", 9)


def test_what_one_data_set_holds_out_another_does_not_train_on(tmp_path: Path) -> None:
    train, test = write(tmp_path / "one.jsonl", SUMS[:50]), write(tmp_path / "test.jsonl", SUMS[50:])
    everything = write(tmp_path / "everything.jsonl", SUMS)
    config = data_config(train, {"held_out": str(test)})
    config.sources += data_config(everything).sources
    drawn = {question.text for round in range(300) for question in Tasks(config).draw(4, "k", round)}
    assert not drawn & {row["prompt"] for row in SUMS[50:]}


def test_chats_keep_their_turns(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "2 + 2 ="},
    ]
    path = write(tmp_path / "chats.jsonl", [{"prompt": chat, "solution": 4}])
    task = only(path)
    question = task.question(0, 0)
    assert question.prompt == tuple(Message(turn["role"], turn["content"]) for turn in chat)
    assert question.text == "Hello\n2 + 2 ="
    assert task.score(question.id, ["4"]) == [1.0]
    [asked] = {q.prompt for q in Tasks(data_config(path, system_prompt="Think.")).held_out(1, 0)["chats"]} or {
        Tasks(data_config(path, system_prompt="Think.")).draw(1, "k")[0].prompt
    }
    assert [message.content for message in asked if message.role == "system"] == ["Think."]


def test_examples_and_forms_as_for_any_task(tmp_path: Path) -> None:
    tasks = Tasks(data_config(write(tmp_path / "sums.jsonl", SUMS), examples=2, answer="boxed"))
    [question] = tasks.draw(1, "k")
    assert [message.role for message in question.chat] == ["user", "assistant"] * 2 + ["user"]
    assert all(message.content.startswith("\\boxed{") for message in question.examples if message.role == "assistant")
    held_out = {each.text for each in tasks.held_out(100, 0)["sums"]}
    assert not held_out & {message.content for message in question.examples}


def test_reward_functions_get_all_columns(tmp_path: Path) -> None:
    rows = [{"prompt": "2 + 2 =", "answer": 4, "level": "easy"}, {"prompt": "2 + 3 =", "answer": 5, "source": "zoo"}]
    task = only(write(tmp_path / "q.jsonl", rows))
    entries = {task.question(seed, 0).text: task.entry(seed, 0) for seed in range(20)}
    assert entries["2 + 2 ="] == {"answer": 4, "level": "easy", "source": None}
    assert entries["2 + 3 ="] == {"answer": 5, "level": None, "source": "zoo"}


def test_the_right_answer_may_stand_behind_its_steps(tmp_path: Path) -> None:
    rows = [{"question": "How many?", "answer": "Two and two are four.\n#### 1,004"}]
    task = only(write(tmp_path / "steps.jsonl", rows), gold="#### (.+)")
    question = task.question(0, 0)
    assert task.answer(question.id) == "1,004"
    assert task.entry(0, 0)["answer"] == rows[0]["answer"]
    assert task.score(question.id, ["1004", "4"]) == [1.0, 0.0]


def test_it_is_read_once_and_again_when_it_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    first = only(path)
    read = store._build
    monkeypatch.setattr(store, "_build", lambda *_: pytest.fail("it was read again"))
    assert only(path).version == first.version
    monkeypatch.setattr(store, "_build", read)
    write(path, SUMS[1:])
    os.utime(path, ns=(1, 1))
    assert only(path).version != first.version
    assert len([folder for folder in cache.iterdir() if folder.is_dir()]) == 1, "the old one is gone"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_is_cut_short_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)

    def full(*_: object) -> None:
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr(store.Writer, "close", full)
        with pytest.raises((KeyboardInterrupt, UserError)) as caught:
            only(path)
    assert caught.type is KeyboardInterrupt or "no space is left" in str(caught.value)
    assert [entry for entry in cache.iterdir() if entry.is_dir()] == []
    assert only(path).info.train == 100


def test_parameters_stand_behind_commas_with_or_without_spaces() -> None:
    parameters = {"path": "a, b.csv", "prompt": "frage", "gold": "a=b"}
    for said in ("a, b.csv,prompt=frage,gold=a=b", "a, b.csv, prompt = frage , gold = a=b"):
        assert data_settings(said) == {"name": "data", "parameters": parameters}


@pytest.mark.parametrize(
    ("rows", "form", "said", "read"),
    [
        (SUMS, "whole", "<think>13</think> The legs make **14** in all.", "14 as number"),
        (SUMS, "whole", "5 or 6", "no number"),
        (SUMS, "tag", "It is <answer>1,400 kg</answer>, not 7.", "1400 as number"),
        (SUMS, "tag", "It is 7.", "no number"),
        (SUMS, "It is (.+)", "It is 7.", None),
        ([{"q": "Which?\nA) red\nB) blue", "a": "B"}], "whole", "The answer is Blue.", "B as choice"),
        ([{"q": "Which city?", "a": "Paris"}], "whole", "Answer: \\boxed{Rome}", "Rome as text"),
        ([{"prompt": "Say it."}], "whole", "Rome", None),
    ],
)
def test_what_is_read_as_the_answer_is_said(tmp_path: Path, rows: Rows, form: str, said: str, read: str | None) -> None:
    tasks = Tasks(data_config(write(tmp_path / "rows.jsonl", rows), answer=form))
    question = tasks.made("rows", 0, 0)
    assert tasks.reading(question.id, said) == read
