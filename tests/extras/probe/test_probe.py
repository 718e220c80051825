"""Finding out how a model is best asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from data_files import SUMS, data_config, write

from shoal.config.answer_form import in_form
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import Completion, Question
from shoal.tasks import Tasks, create_task
from shoal_extras.probe.probe import WAYS, Found, lost, probe, recommend, ways_for, worth
from shoal_extras.validation import validate

HALF_MADE = """
import shoal
class Half:
    name, version, config = "half", "1", "0" * 16
    def question(self, seed, index):
        if (seed + index) % 3 == 0:
            raise ValueError("no such question")
        id = shoal.QuestionId(self.name, self.version, self.config, seed, index)
        return shoal.Question(id, (shoal.Message("user", f"Say {seed} {index}"),))
    def answer(self, id):
        return f"{id.seed} {id.index}"
    def score(self, id, answers):
        return [float(said == self.answer(id)) for said in answers]
"""
SUM = TaskSpec(name="chain_sum")
WORDS = TaskSpec(name="spell_backward")


class Model:
    """A policy whose answers are a function of the chat: right at every other sample, where `asked` says so."""

    def __init__(self, asked: Callable[[Question], str | None]) -> None:
        self.asked = asked
        self.chats: list[object] = []

    def generate(self, questions: Sequence[Question], G: int, seed: int) -> list[list[Completion]]:
        self.chats += [question.chat for question in questions]
        texts = [self.asked(question) for question in questions]
        return [[Completion.of(text if text and g % 2 == 0 else "no") for g in range(G)] for text in texts]


def answered(question: Question) -> str:
    """The right answer to a sum or difference, by reading it."""
    problem = question.text.rpartition(":")[2]
    return str(sum(int(term.replace(" ", "")) for term in re.findall(r"[+-]? ?\d+", problem)))


def found(way: int, right: list[int], live: list[bool], spec: TaskSpec = SUM) -> Found:
    return Found(WAYS[way].of(spec), WAYS[way], 8, right, live)


def test_a_model_that_answers_after_examples_alone_is_asked_with_examples() -> None:
    model = Model(lambda question: answered(question) if question.examples else None)
    ways = probe(model, TasksConfig(sources=[SUM]), 4, 1e9, 0)
    best = recommend(ways)["chain_sum"]
    assert best.way.name == "examples"
    assert best.live_share == 1
    assert best.pass_at_1.value == 0.5
    assert best.spec.examples == 3
    assert all(one.live_share == 0 for one in ways["chain_sum"] if not one.way.examples)


def test_a_question_that_cannot_be_made_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_made.py").write_text(HALF_MADE)
    monkeypatch.syspath_prepend(tmp_path)
    tasks = TasksConfig(sources=[TaskSpec(name="half_made:Half")])
    ways = next(iter(probe(Model(lambda question: question.text[4:]), tasks, 4, 2, 0).values()))
    assert all(one.right for one in ways)
    validated = next(iter(validate(tasks, 8, 0).values()))
    assert validated.questions == 8


def test_an_answer_between_tags_counts_as_in_the_form_only_there() -> None:
    model = Model(lambda question: in_form(answered(question), "tag"))
    ways = {one.way.name: one for one in probe(model, TasksConfig(sources=[SUM]), 4, 1e9, 0)["chain_sum"]}
    assert ways["tags"].in_form_share == 0.5
    assert ways["tags"].live_share == 1
    assert ways["plain"].live_share == 0


def test_ways_that_show_the_same_chat_share_their_answers() -> None:
    model = Model(lambda question: None)
    probe(model, TasksConfig(sources=[SUM]), 2, 1e9, 0)
    assert len(model.chats) == len(set(model.chats)) == 5 * 16  # plain, short, tags, examples, examples with tags


def test_ctrl_c_ends_it_with_what_is_known() -> None:
    heard: list[int] = []

    def on_progress(questions: int, spent: float) -> None:
        heard.append(questions)
        if questions == 3:
            raise KeyboardInterrupt

    ways = probe(Model(lambda question: None), TasksConfig(sources=[SUM]), 2, 1e9, 0, on_progress)
    assert heard == [1, 2, 3]
    assert all(len(one.right) == 3 for one in ways["chain_sum"])
    assert recommend(ways) == {}


def test_words_are_not_asked_for_as_numbers() -> None:
    assert {way.answer for way in ways_for(create_task(WORDS))} == {"whole", "tag"}
    assert {way.answer for way in ways_for(create_task(SUM))} == {"whole", "tag", "last_number"}


def test_pictures_are_asked_without_examples() -> None:
    ways = [way.name for way in ways_for(create_task(TaskSpec(name="count_dots")))]
    assert ways == ["plain", "last-number", "short", "tags"]


def test_a_data_set_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = data_config(write(tmp_path / "quiz.jsonl", SUMS))
    assert set(probe(Model(answered), config, 2, 0.0, 0)) == {"quiz"}


def test_the_plainest_of_equal_ways_is_recommended() -> None:
    ways = [found(0, [4], [True]), found(4, [4], [True])]
    assert recommend({"a": ways})["a"] is ways[0]
    better = [found(0, [1], [True]), found(4, [4], [True])]
    assert recommend({"a": better})["a"] is better[1]


def test_no_held_out_question_is_ever_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = data_config(write(tmp_path / "quiz.jsonl", SUMS))
    kept_back = {question.text for question in Tasks(config).held_out(1000, 0)["quiz"]}
    asked: set[str] = set()

    def right(question: Question) -> str:
        asked.update(message.content for message in question.chat if message.role == "user")
        return answered(question)

    probe(Model(right), config, 2, 1e9, 0)
    assert len(asked) > 10 < len(kept_back)
    assert not asked & kept_back


def test_a_way_that_gets_nothing_right_is_given_up_and_a_clear_result_ends_it() -> None:
    model = Model(lambda question: answered(question) if question.examples else None)
    ways = {one.way.name: one for one in probe(model, TasksConfig(sources=[SUM]), 4, 1e9, 0)["chain_sum"]}
    assert len(ways["plain"].right) == 2
    assert 4 <= len(ways["examples"].right) < 16


def test_it_ends_early_where_nothing_is_right_in_any_way() -> None:
    ways = probe(Model(lambda question: None), TasksConfig(sources=[SUM]), 2, 1e9, 0)["chain_sum"]
    assert {len(one.right) for one in ways} == {16}


def test_without_time_one_way_is_asked_one_question() -> None:
    ways = probe(Model(answered), TasksConfig(sources=[SUM]), 2, 0, 0)["chain_sum"]
    assert {one.way.chat for one in ways} == {(0, "")}
    assert {len(one.right) for one in ways} == {1}


def test_where_nothing_is_right_answers_that_end_are_preferred() -> None:
    cut, whole = found(0, [0, 0], [False, False]), found(4, [0, 0], [False, False])
    cut.truncated = 12
    assert max([cut, whole], key=worth) is whole
    assert lost([cut, whole]) == [cut]
    assert recommend({"a": [cut, whole]}) == {}
