"""People's rankings: kept in a file, and what rewards follow."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fakes import question
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.session import Options, run_session
from shoal.config.rewards import RankingsRewardSpec
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rewards import Combined, Entry, RankedSwarm, RewardVerifier
from shoal.rewards.make import rewards_of
from shoal.rewards.rankings import MOST_ANSWERS, Rankings, mean_rank
from shoal.rewards.scorer import Scorer
from shoal.runs.tables import LEARNED
from shoal.tasks import Tasks
from shoal.transports.memory import MemorySwarm

QUESTION = question(7)


def test_what_is_ranked_has_a_reward_and_nothing_else_has(tmp_path: Path) -> None:
    rankings = Rankings(tmp_path / "r.sqlite")
    rankings.add("ada", QUESTION, [["4"], ["four", "4."], ["5"]])
    assert rankings.score([(QUESTION, ["5", "22", "4", "four"]), (question(1), ["4"]), (QUESTION, [])]) == [
        [0.0, None, 1.0, 0.5],
        [None],
        [],
    ]


def test_the_file_outlives_the_object_and_may_be_shared(tmp_path: Path) -> None:
    one, two = Rankings(tmp_path / "r.sqlite"), Rankings(tmp_path / "r.sqlite")
    one.add("ada", QUESTION, [["a"], ["b"]])
    assert two.score([(QUESTION, ["a", "b"])]) == [[1.0, 0.0]]
    two.add("bob", QUESTION, [["b"], ["a"]])
    assert one.score([(QUESTION, ["a", "b"])]) == [[0.5, 0.5]]
    one.add("ada", QUESTION, [["b"], ["a"]])  # she thought again
    assert one.score([(QUESTION, ["a", "b"])]) == [[0.0, 1.0]]


def test_what_has_been_ranked_since(tmp_path: Path) -> None:
    rankings = Rankings(tmp_path / "r.sqlite")
    rankings.add("ada", QUESTION, [["a"], ["b"]])
    rankings.add("ada", question(1), [["x", "y"], ["z"]])
    rankings.add("bob", question(1), [["z"], ["w"]])
    first, second = rankings.ranked()
    assert (first.question, first.answers) == (QUESTION.id, ["a", "b"])
    assert (second.question, second.answers) == (question(1).id, ["x", "y", "z", "w"])
    assert rankings.ranked(first.number) == [second]
    assert rankings.ranked(most=1) == [first]
    assert rankings.ranked(second.number) == []
    rankings.add("bob", question(1), [["w"], ["z"]])  # he thought again, and there is something new to learn
    assert [one.question for one in rankings.ranked(second.number)] == [question(1).id]


def test_what_people_ranked_is_received_once_with_its_rewards(tmp_path: Path) -> None:
    """The answers of all, the rewards of the rankings; nothing of questions that are not this swarm's or held out."""
    tasks = Tasks(TasksConfig(suite="pond"))
    rankings = Rankings(tmp_path / "r.sqlite")
    scorer = Scorer(tasks, RewardVerifier(tasks, Combined([Entry("people", rankings)])))
    swarm = RankedSwarm(MemorySwarm().join("ada"), [rankings], tasks)
    assert swarm.receive() == []
    [asked] = tasks.draw(1, "ranked")
    rankings.add("bob", asked, [["best"], ["so", "la la"], ["worst"]])
    rankings.add("bob", QUESTION, [["a"], ["b"]])
    rankings.add("bob", next(iter(tasks.held_out(1, 0).values()))[0], [["a"], ["b"]])
    [scored] = scorer.score(swarm.receive())
    assert [c.text for c in scored.rollout.completions] == ["best", "so", "la la", "worst"]
    assert scored.rewards == (1.0, 0.5, 0.5, 0.0)
    assert scored.question == asked
    assert swarm.receive() == []
    swarm.save(tmp_path)
    again = RankedSwarm(MemorySwarm().join("ada"), [rankings], tasks)
    again.load(tmp_path)
    assert again.receive() == []
    rankings.add("eve", asked, [["worst"], ["best"]])
    [scored] = scorer.score(again.receive())
    assert scored.rewards == (0.5, 0.5, 0.5, 0.5)


def test_a_run_learns_from_what_was_ranked(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "rounds": 2,
            "rewards": [{"kind": "rankings", "file": str(tmp_path / "r.sqlite")}],
            "round": {"nodes": 1, "local": 1, "peers": 1},
            "evaluation": {"questions": 1, "samples": 1},
            "policy": {"num_generations": 2},
        }
    )
    [asked] = Tasks(config.tasks).draw(1, "ranked")
    Rankings(tmp_path / "r.sqlite").add("ada", asked, [["1"], ["2"]])
    assert run_session(config, Options(tmp_path / "run", quiet=True)) == 0
    learned = pq.read_table(tmp_path / "run" / LEARNED).to_pylist()
    assert [(row["maker"], row["round"]) for row in learned if row["foreign"]] == [("people", 1)]


def test_a_configuration_makes_no_file_and_changes_none(tmp_path: Path) -> None:
    spec = RankingsRewardSpec(file=str(tmp_path / "r.sqlite"))
    with pytest.raises(UserError, match=r"r\.sqlite cannot hold rankings: .*; `shoal human` makes such a file"):
        rewards_of(Config(rewards=[spec]), None, None)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    with closing(sqlite3.connect(tmp_path / "r.sqlite")) as other, other:
        other.execute("CREATE TABLE cookies (name TEXT)")
    before = (tmp_path / "r.sqlite").read_bytes()
    with pytest.raises(UserError, match="cannot hold rankings"):
        rewards_of(Config(rewards=[spec]), None, None)  # type: ignore[arg-type]
    assert (tmp_path / "r.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        ([["a"]], "2 to 64 answers"),
        ([], "2 to 64 answers"),
        ([["a"], [str(n) for n in range(MOST_ANSWERS)]], "2 to 64 answers"),
        ([["a"], ["b", "a"]], "ranked twice"),
        ([["a"], ["x" * 100_000]], "characters"),
    ],
)
def test_a_ranking_that_says_nothing_is_refused(tmp_path: Path, ranking: list[list[str]], message: str) -> None:
    rankings = Rankings(tmp_path / "r.sqlite")
    with pytest.raises(ValueError, match=message):
        rankings.add("ada", QUESTION, ranking)
    assert rankings.ranked() == []


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("these are no rankings " * 100)
    for path in (tmp_path / "r", tmp_path, tmp_path / "none" / "r"):
        with pytest.raises(UserError, match="cannot hold rankings"):
            Rankings(path)


def test_odd_texts_are_kept(tmp_path: Path) -> None:
    rankings = Rankings(tmp_path / "r.sqlite")
    texts = ["", "\0", "'; DROP TABLE rankings; --", "\ud800", "é"]
    rankings.add("a'b", QUESTION, [[text] for text in texts])
    assert rankings.score([(QUESTION, texts)]) == [[1.0, 0.75, 0.5, 0.25, 0.0]]


TIERS = st.permutations("abcde").flatmap(
    lambda p: st.lists(st.sampled_from([1, 2]), min_size=5, max_size=5).map(
        lambda sizes: [t for t in (p[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(5)) if t]
    )
)


@given(st.lists(TIERS, min_size=1, max_size=6))
def test_rewards_are_in_bounds_and_keep_what_all_agree_on(rankings: list[list[list[str]]]) -> None:
    rewards = mean_rank(rankings)
    assert set(rewards) == set("abcde")
    assert all(0 <= value <= 1 for value in rewards.values())
    for a in rewards:
        for b in rewards:
            places = [[next(i for i, tier in enumerate(r) if t in tier) for t in (a, b)] for r in rankings]
            if all(place_a < place_b for place_a, place_b in places):
                assert rewards[a] > rewards[b]


def test_mean_rank_by_hand() -> None:
    assert mean_rank([[["a"], ["b"], ["c"]], [["b"], ["a"]]]) == {"a": 0.5, "b": 0.75, "c": 0.0}
    assert mean_rank([[["a", "b", "c"]]]) == {"a": 0.5, "b": 0.5, "c": 0.5}
