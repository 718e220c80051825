"""Admission of questions about peers' answers: signed rollouts, through every check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from shoal.admission.admission import Admission
from shoal.admission.limits import OFFENCES, AdmissionLimits
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.sandbox.examiner import Candidate, Examiner, Verdict
from shoal.tasks import Tasks
from shoal.wire.rollouts import open_envelope, seal
from shoal_extras.stages.stages import Stages

NOW = 1_800_000_000.0
CONFIG = TasksConfig(only=["chain_sum"])
TASKS = Tasks(CONFIG)
ADA, BOB, CYD, EVE = (Identity.generate() for _ in range(4))
NAMES = ["critique", "decide"]


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with Examiner(CONFIG) as examiner:
        yield examiner


@pytest.fixture
def gate(examiner: Examiner) -> Admission:
    return make_gate(examiner)


def make_gate(examiner: Examiner, stages: bool = True, G: int = 4) -> Admission:
    mine = Stages(NAMES, EVE.name) if stages else None
    limits = AdmissionLimits(max_characters=200)
    return Admission("reef", examiner, limits, num_generations=G, stages=mine, clock=lambda: NOW)


def rollout(question: Question, maker: Identity, texts: Sequence[str], slot: int = 0, round: int = 3) -> Rollout:
    return Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), maker.name, round, slot)


def admit(gate: Admission, sent: Rollout, maker: Identity) -> Scored | None:
    found = gate.admit([(maker.id, seal(sent, maker, "reef", NOW))])
    return found[0] if found else None


def first(maker: Identity = ADA, round: int = 2) -> tuple[Rollout, str]:
    """A rollout with a right answer among wrong ones."""
    [question] = TASKS.draw(1, "reef", maker.id, round)
    right = TASKS.answer(question.id)
    assert right is not None
    return rollout(question, maker, ["no", right, "1000"], round=round), right


def critic(sent: Rollout, maker: Identity = BOB, round: int = 3) -> tuple[Stages, Question]:
    """A peer that has `sent`, and its question about it."""
    stages = Stages(NAMES, maker.name)
    stages.remember(sent, Scored(sent, TASKS.question(sent.question), (0.0, 1.0, 0.0)))
    question = stages.draw(1, ("reef", maker.id, round))
    assert question is not None
    return stages, question


def test_a_critique_is_scored_by_the_answer_that_it_picks(gate: Admission) -> None:
    sent, _ = first()
    assert admit(gate, sent, ADA)
    _, question = critic(sent)
    scored = admit(gate, rollout(question, BOB, ["A", "B, of course", "C", "none"], slot=1), BOB)
    assert scored is not None
    assert scored.question == question
    assert scored.rewards == (0.0, 1.0, 0.0, 0.0)


def test_a_decision_is_scored_as_an_answer_to_the_first_question(gate: Admission) -> None:
    sent, right = first()
    bob, question = critic(sent)
    remark = rollout(question, BOB, ["A", "B"], slot=1)
    bob.remember(remark, Scored(remark, question, (0.0, 1.0)))
    cyd, _ = critic(sent, CYD)
    cyd.remember(remark, Scored(remark, question, (0.0, 1.0)))
    decision = cyd.draw(2, ("reef", CYD.id, 3))
    assert decision is not None
    for one, maker in ((sent, ADA), (remark, BOB)):
        assert admit(gate, one, maker)
    scored = admit(gate, rollout(decision, CYD, [right, "no"], slot=2), CYD)
    assert scored is not None
    assert scored.rewards == (1.0, 0.0)
    assert "Others say of them" in scored.question.text


def test_of_what_was_scored_in_part_nothing_is_quoted(examiner: Examiner) -> None:
    """The rest of a longer group was never checked: it may hang a scorer."""
    sent, _ = first()
    gate = make_gate(examiner, G=2)
    assert admit(gate, sent, ADA)
    assert admit(gate, rollout(critic(sent)[1], BOB, ["C", "B"], slot=1), BOB) is None
    assert gate.refused == {"quote": 1}


def test_whoever_picks_a_text_that_hangs_the_scorer_is_not_to_blame(examiner: Examiner) -> None:
    class Hanging:
        def examine(self, candidate: Candidate, seconds: float) -> Verdict:
            return Verdict("slow", seconds=seconds) if "no" in candidate.texts else examiner.examine(candidate, seconds)

    sent, _ = first()
    gate = make_gate(examiner)
    sent = msgspec.structs.replace(sent, completions=sent.completions[1:])
    assert admit(gate, sent, ADA)
    critique = msgspec.structs.replace(critic(sent)[1])
    gate._patient = Hanging()  # type: ignore[assignment]
    kept = gate.stages.archive.kept  # type: ignore[union-attr]
    for hash, one in kept.items():
        kept[hash] = msgspec.structs.replace(one, answers=(one.answers[0], "no"))
    again = gate.stages.question(critique.id)  # type: ignore[union-attr]
    assert admit(gate, rollout(again, BOB, ["B", "A"], slot=1), BOB) is None
    assert gate.refused == {"slow task": 1}
    assert "slow task" not in OFFENCES


def test_what_was_not_admitted_cannot_be_quoted(gate: Admission) -> None:
    _, question = critic(first()[0])
    assert admit(gate, rollout(question, BOB, ["A", "B"], slot=1), BOB) is None
    assert gate.refused == {"quote": 1}
    assert "quote" not in OFFENCES


def test_a_node_without_stages_refuses_their_questions(examiner: Examiner) -> None:
    gate = make_gate(examiner, stages=False)
    sent, _ = first()
    assert admit(gate, sent, ADA)
    _, question = critic(sent)
    assert admit(gate, rollout(question, BOB, ["A", "B"], slot=1), BOB) is None
    assert gate.refused == {"quote": 1}
    assert not gate.differing.line


def test_neither_slot_nor_seed_nor_text_is_the_makers_choice(gate: Admission) -> None:
    sent, _ = first()
    assert admit(gate, sent, ADA)
    _, question = critic(sent)
    right = rollout(question, BOB, ["A", "B"], slot=1)
    forged = msgspec.structs.replace
    wrong = {
        "seed": forged(right, slot=4),
        "quote": forged(right, question_hash="0" * 32),
        "task": forged(right, question=forged(question.id, config="0" * 32)),
    }
    for reason, one in wrong.items():
        assert admit(gate, one, BOB) is None, reason
        assert gate.refused[reason] == 1
        gate.peers.by_key.clear()
    assert admit(gate, forged(right, slot=1), BOB)


def test_the_same_rollout_is_quoted_once_by_each_maker(gate: Admission) -> None:
    sent, _ = first()
    assert admit(gate, sent, ADA)
    for round in (3, 6):
        _, question = critic(sent, BOB, round)
        admit(gate, rollout(question, BOB, ["A", f"B {round}"], slot=1, round=round), BOB)
    assert gate.refused == {"repeated": 1}
    assert admit(gate, rollout(critic(sent, CYD)[1], CYD, ["A", "B"], slot=1), CYD)


def test_what_a_message_quotes_is_as_its_maker_signed_it() -> None:
    sent, _ = first()
    statement, _ = open_envelope(seal(sent, ADA, "reef", NOW))
    assert statement.rollout.hash == sent.hash
