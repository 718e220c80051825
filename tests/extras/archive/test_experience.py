"""A node that learns from an archive: what it is given, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from archives import NOW, SWARM, TASKS, envelope, tasks_of, write_archive
from msgspec import structs

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.rollout import Scored
from shoal.runs.build import shortens
from shoal.tasks import Tasks
from shoal.transports.memory import MemorySwarm
from shoal.wire.rollouts import open_envelope, seal
from shoal_extras.archive.experience import Experience
from shoal_extras.archive.format import Row, write_part

MAKER = Identity.generate()
ROUNDS = 12


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("a") / "lagoon", [envelope(MAKER, round) for round in range(ROUNDS)])


def experience(archive: Path, **settings: object) -> Experience:
    made = {"tasks": TASKS.model_dump(), "peers": {"experience": str(archive)}, "policy": {"num_generations": 4}}
    return Experience(MemorySwarm(0).join("here"), Config.model_validate(made | settings).resolved(), tasks_of())


def received(place: Experience) -> list[Scored]:
    found = place.receive()
    assert all(isinstance(one, Scored) for one in found)
    return found  # type: ignore[return-value]


def test_each_round_brings_what_an_update_can_use_and_nothing_twice_in_a_pass(archive: Path) -> None:
    place = experience(archive, round={"peers": 4})
    rounds = [received(place) for _ in range(ROUNDS // 4)]
    assert [len(one) for one in rounds] == [4] * (ROUNDS // 4)
    given = [scored.rollout.round for one in rounds for scored in one]
    assert sorted(given) == list(range(ROUNDS))
    assert given != sorted(given)
    assert all(scored.rewards == (1, 0, 1, 0) or sorted(scored.rewards) == [0, 0, 1, 1] for scored in rounds[0])
    assert sorted(scored.rollout.round for _ in range(ROUNDS // 4) for scored in received(place)) == sorted(given)


def test_a_resumed_node_goes_on_where_it_was(archive: Path, tmp_path: Path) -> None:
    place = experience(archive)
    received(place)
    place.save(tmp_path)
    again = experience(archive)
    again.load(tmp_path)
    assert [one.rollout for one in received(again)] == [one.rollout for one in received(place)]


def test_a_signature_that_does_not_hold_teaches_nothing(archive: Path, tmp_path: Path) -> None:
    good = envelope(MAKER, 0)
    forged = good.replace(b"it is", b"it IS", 1)
    assert forged != good
    write_part(tmp_path / "forged", [Row(forged)])
    place = experience(tmp_path / "forged")
    assert received(place) == []
    assert place.refused == 1


def test_questions_that_the_maker_chose_teach_nothing(tmp_path: Path) -> None:
    rollout = open_envelope(envelope(MAKER, 3))[0].rollout
    chosen = structs.replace(rollout, round=4)  # the question of another round
    write_part(tmp_path / "chosen", [Row(seal(chosen, MAKER, SWARM, NOW))])
    place = experience(tmp_path / "chosen")
    assert received(place) == []
    assert place.refused == 1


def test_an_archive_of_other_tasks_is_said_so(archive: Path) -> None:
    tasks = {"sources": [{"name": "spell_backward"}]}
    config = Config.model_validate({"tasks": tasks, "peers": {"experience": str(archive)}}).resolved()
    with pytest.raises(UserError, match="has nothing of this run's tasks"):
        Experience(MemorySwarm(0).join("here"), config, Tasks(config.tasks))


def test_strangers_text_is_shortened() -> None:
    assert shortens(Config.model_validate({"peers": {"experience": "x"}}), joins=False)
    assert not shortens(Config(), joins=False)
