"""Peers with other tasks of the same name: refused, and said so in a line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from data_files import SUMS, data_config, write
from hypothesis import given
from hypothesis import strategies as st
from local_examiner import LocalExaminer

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.admission.peers import MOST_DIFFERING, Differing
from shoal.identity.keys import Identity
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.tasks import Tasks
from shoal.wire.rollouts import seal

OWN = [("sums", "aaaa" * 8, "cccc" * 8)]
NOW = 1_800_000_000.0


class Right:
    trouble = ""

    def score(self, items):  # type: ignore[no-untyped-def]
        return [[1.0 for _ in texts] for _, texts in items]


def test_a_peer_with_another_copy_is_refused_by_name_and_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "theirs").mkdir()
    own = Tasks(data_config(write(tmp_path / "sums.jsonl", SUMS)))
    other = Tasks(data_config(write(tmp_path / "theirs" / "sums.jsonl", [*SUMS[:-1], {**SUMS[-1], "answer": "0"}])))
    admission = Admission("reef", LocalExaminer(own, Right()), AdmissionLimits(), num_generations=8, clock=lambda: NOW)
    admission.differing = Differing(own.identities)

    def sent(tasks: Tasks, **changes: object) -> tuple[str, bytes]:
        maker = Identity.generate()
        [question] = tasks.draw(1, "reef", maker.id, 1)
        rollout = Rollout(question.id, question.hash, (Completion.of("a"),), maker.name, 1)
        return maker.id, seal(msgspec.structs.replace(rollout, **changes), maker, "reef", NOW)

    assert len(admission.admit([sent(own)])) == 1, admission.refused
    assert admission.differing.line == ""
    assert admission.admit([sent(other)]) == []
    assert admission.refused == {"task": 1}
    line = admission.differing.line
    assert f"has another 'sums', which is refused: {other.tasks[0].version[:11]}" in line
    assert f"{own.tasks[0].version[:12]} here" in line


def test_a_peers_text_for_a_row_is_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = Tasks(data_config(write(tmp_path / "sums.jsonl", SUMS)))
    admission = Admission("reef", LocalExaminer(own, Right()), AdmissionLimits(), num_generations=8, clock=lambda: NOW)
    maker = Identity.generate()
    [question] = own.draw(1, "reef", maker.id, 1)
    lies = {
        "question": Rollout(question.id, "0" * 32, (Completion.of("a"),), maker.name, 1),
        "seed": Rollout(
            own.draw(1, "reef", maker.id, 2)[0].id, question.hash, (Completion.of("a"),), maker.name, 1, slot=1
        ),
    }
    for reason, rollout in lies.items():
        assert admission.admit([(maker.id, seal(rollout, maker, "reef", NOW))]) == []
        assert admission.refused[reason] == 1


@pytest.mark.parametrize(
    ("question", "part"),
    [
        (("sums", "bbbb" * 8, "dddd" * 8), "bbbbbbbbbbbb there, aaaaaaaaaaaa here"),
        (("sums", "aaaa" * 8, "dddd" * 8), "asks 'sums' in another way"),
        (("zoo", "aaaa" * 8, "cccc" * 8), "calls your 'sums' by another name, and is refused: give it the name 'zoo'"),
        (("zoo", "eeee" * 8, "cccc" * 8), ""),
    ],
)
def test_how_they_differ(question: tuple[str, str, str], part: str) -> None:
    differing = Differing(OWN)
    differing.note(QuestionId(*question, seed=1, index=0), "otter")
    assert part in differing.line
    assert bool(part) == bool(differing.line)


@given(st.lists(st.tuples(st.sampled_from(["sums", "zoo"]), st.text(), st.text()), max_size=100))
def test_peers_cannot_fill_the_line(questions: list[tuple[str, str, str]]) -> None:
    differing = Differing(OWN)
    for number, (name, version, config) in enumerate(questions):
        differing.note(QuestionId(name, version, config, 0, 0), f"peer-{number}")
    assert len(differing.line) < 250
    assert differing.line.isprintable()
    assert len(differing._seen) <= MOST_DIFFERING
