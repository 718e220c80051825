"""Stages: questions about peers' answers, and what the answers to these count as."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.tasks import TasksConfig
from shoal.rollout import Completion, Message, Question, QuestionId, Rollout, Scored
from shoal.tasks import Tasks, UnknownQuestion
from shoal.tasks.draw import UnknownQuote
from shoal_extras.stages.kinds import KINDS, LONGEST, SIZE, Archive, Critique, Quotable, quote
from shoal_extras.stages.stages import StagedDraws, StagedTasks, Stages, differing

NAMES = ["critique", "decide"]
KEY = ("reef", "c0ffee", 6)  # the first slot of this round is of no stage
ASKED = Question(QuestionId("chain_sum", "1", "c0ffee", seed=7, index=0), (Message("user", "2 + 2 ="),))


def answered(question: Question, texts: Sequence[str], node: str = "ada", rewards: Sequence[float] = (1, 0)) -> Scored:
    rollout = Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), node, 1)
    return Scored(rollout, question, tuple(rewards))


def remembered(stages: Stages, *scored: Scored) -> None:
    for one in scored:
        stages.remember(one.rollout, one)


def critic(node: str = "bob") -> tuple[Stages, Question]:
    """Stages that know a rollout, and a critique of it."""
    stages = Stages(NAMES, node)
    remembered(stages, answered(ASKED, ["5", "4 ", "4", "6", "7"]))
    question = stages.draw(1, KEY)
    assert question is not None
    return stages, question


def test_a_critique_lists_answers_that_differ() -> None:
    _, question = critic()
    assert question.text == (
        "2 + 2 =\n\nOthers answered:\nA:\n> 5\nB:\n> 4 \nC:\n> 6\n\n"
        "Which of these answers is right? Begin with its letter, then say why."
    )
    assert len(question.id.quotes) == 1


@pytest.mark.parametrize(
    ("said", "counts_as"),
    [
        ("B", "4 "),
        ("**B**: 2 + 2 is 4", "4 "),
        ("__B__", "4 "),
        ("(C)", "6"),
        ("Because A", ""),
        ("A\u00e9", ""),
        ("D", ""),
        ("b", ""),
        ("", ""),
    ],
)
def test_a_critique_counts_as_the_answer_that_it_picks(said: str, counts_as: str) -> None:
    stages, question = critic()
    assert stages.settle(question.id, [said]) == (ASKED.id, (counts_as,))


def test_a_decision_reads_answers_and_critiques_of_several_peers() -> None:
    stages, question = critic("cyd")
    remembered(
        stages,
        answered(question, ["B", "A, I think"], "bob"),
        answered(question, ["C"], "dan", [0.0, 1.0]),
    )
    decision = stages.draw(2, KEY)
    assert decision is not None
    assert len(decision.id.quotes) == 2
    assert "A:\n> 5\nB:\n> 4 \nC:\n> 6\n\nOthers say of them:\n> " in decision.text
    assert {"> B", "> C", "> A, I think"} <= set(decision.text.splitlines())
    assert stages.settle(decision.id, ["4"]) == (ASKED.id, ("4",))


def test_whoever_has_the_rollouts_makes_the_same_question_and_others_refuse_it() -> None:
    stages, question = critic()
    other = Stages(NAMES, "eve")
    with pytest.raises(UnknownQuote):
        other.question(question.id)
    remembered(other, answered(ASKED, ["5", "4 ", "4", "6", "7"], rewards=(0, 0)))
    assert other.question(question.id) == question
    assert other.is_drawn(question.id, 1, *KEY)
    assert stages.question(question.id) == question


def test_the_slot_says_the_stage() -> None:
    stages, question = critic()
    assert stages.draw(0, KEY) is None
    assert stages.draw(3, KEY) is None
    assert stages.draw(2, KEY) is None  # there is no critique yet
    assert not stages.is_drawn(question.id, 0, *KEY)
    assert not stages.is_drawn(question.id, 4, *KEY)
    assert not stages.is_drawn(question.id, 1, *KEY[:2], 9)


def test_a_node_with_few_questions_comes_to_each_stage() -> None:
    stages = Stages(NAMES, "bob")
    drawn = set()
    for round in range(6):
        remembered(stages, answered(other(round), ["1", "2"]))
        if question := stages.draw(0, ("reef", "c0ffee", round)):
            drawn.add(question.id.task)
            remembered(stages, answered(question, ["A", "B"], "bob"))
    assert drawn == set(NAMES)


def test_nobody_asks_the_same_twice() -> None:
    stages, question = critic()
    assert stages.draw(1, KEY) is None
    assert stages.draw(4, KEY) is None
    assert stages.has_asked("bob", question.id)
    assert not stages.has_asked("cyd", question.id)


def test_one_rollout_in_several_quotations_is_one() -> None:
    stages, question = critic()
    for node in ("cyd", "dan"):
        remembered(stages, answered(question, [f"A {node}", "B"], node))
    decision = stages.draw(2, KEY)
    assert decision is not None
    for quotes in (decision.id.quotes[::-1], decision.id.quotes[:1] * 2):
        with pytest.raises(UnknownQuestion):
            stages.question(msgspec.structs.replace(decision.id, quotes=quotes))
    alone = msgspec.structs.replace(decision.id, quotes=decision.id.quotes[:1])
    stages.note("eve", decision.id)
    assert stages.has_asked("eve", alone)


def test_what_an_own_question_quotes_stays_until_it_is_answered() -> None:
    stages, question = critic()
    for number in range(SIZE + 1):
        remembered(stages, answered(other(number), ["1", "2"], f"node {number}"))
    assert stages.archive.get(question.id.quotes[0]) is None
    assert stages.question(question.id) == question
    assert stages.settle(question.id, ["A"]) == (ASKED.id, ("5",))


def test_drawing_takes_moments_with_a_full_archive() -> None:
    """By counts: only what is chosen is made."""
    stages = Stages(["critique"], "bob")
    asked = 0

    class Counting(Critique):
        def ask(self, quoted: Sequence[Quotable], index: int) -> str | None:
            nonlocal asked
            asked += 1
            return super().ask(quoted, index)

    for number in range(SIZE):
        remembered(stages, answered(other(number), ["1", "2"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "critique", Counting())
        assert stages.draw(1, KEY) is not None
    assert asked == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"task": "decide"},
        {"task": "chain_sum"},
        {"version": "0"},
        {"config": "other"},
        {"quotes": ()},
    ],
)
def test_ids_of_no_stage_are_unknown(wrong: dict[str, object]) -> None:
    stages, question = critic()
    fields = {name: getattr(question.id, name) for name in QuestionId.__struct_fields__}
    with pytest.raises(UnknownQuestion):
        stages.question(QuestionId(**(fields | wrong)))


def test_what_is_alike_or_dead_is_not_quoted() -> None:
    stages = Stages(NAMES, "bob")
    remembered(stages, answered(ASKED, ["4", " 4"]), answered(ASKED, ["4", "5"], rewards=(0, 0)))
    assert stages.draw(1, KEY) is None


def test_every_peer_is_quoted_as_often(tmp_path: Path) -> None:
    stages = Stages(["critique"], "bob")
    for number in range(30):
        remembered(stages, answered(other(number), ["1", "2"], "loud"))
    remembered(stages, answered(other(99), ["1", "2"], "quiet"))
    stages.save(tmp_path)
    first = []
    for seed in range(60):
        stages.load(tmp_path)
        question = stages.draw(1, ("reef", f"{seed}", 6))
        first.append(question is not None and "99" in question.text)
    assert 15 <= sum(first) <= 45


def other(number: int) -> Question:
    return Question(QuestionId("chain_sum", "1", "c0ffee", number, 0), (Message("user", f"{number} ="),))


@given(st.text(max_size=600))
def test_quoted_text_cannot_pass_for_what_stands_around_it(text: str) -> None:
    lines = quote(text).split("\n")
    assert all(line.startswith("> ") and len(line.splitlines()) == 1 for line in lines)
    assert len("".join(line[2:] for line in lines).encode("utf-8", "replace")) <= LONGEST + len("…".encode())


def test_a_full_archive_keeps_those_who_send_little() -> None:
    archive = Archive(size=4)
    archive.add(Quotable("q", "quiet", "", ASKED, ("1", "2")))
    for number in range(9):
        archive.add(Quotable(str(number), "loud", "", ASKED, ("1", "2")))
    assert [one.hash for one in archive.of("")] == ["q", "6", "7", "8"]


def test_stages_go_on_where_they_were(tmp_path: Path) -> None:
    stages, question = critic()
    remembered(stages, answered(question, ["A", "B"], "cyd"))
    stages.save(tmp_path)
    again = Stages(NAMES, "bob")
    again.load(tmp_path)
    assert again.has_asked("bob", question.id)
    assert [again.draw(slot, KEY) for slot in range(6)] == [stages.draw(slot, KEY) for slot in range(6)]


def test_tasks_with_stages_are_tasks() -> None:
    plain = Tasks(TasksConfig())
    stages = critic()[0]
    remembered(stages, answered(other(1), ["1", "2"]))
    tasks, draws = StagedTasks(plain, stages), StagedDraws(plain, stages)
    drawn = draws.draw(5, *KEY)
    assert [one.id.task == "critique" for one in drawn] == [False, True, False, False, False]
    assert tasks.draw(1, *KEY) == drawn[:1]
    question = drawn[1]
    assert drawn[0] == plain.draw(1, *KEY)[0]
    assert tasks.question(question.id) == question
    assert not tasks.is_held_out(question)
    assert plain.label_of(question.id) is None
    with pytest.raises(UnknownQuestion):
        plain.question(question.id)


def test_texts_that_differ() -> None:
    assert differing(["b", "a", "b ", "c", "d"]) == ("b", "a", "c")


def test_no_text_takes_long_to_compare() -> None:
    """Composing these marks by Unicode's rules takes minutes."""
    assert len(differing(["a" + "\u0316\u0300" * 100_000, "b"])) == 2
