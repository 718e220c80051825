"""What the window reads of the folders of runs."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched import HOSTILE, STATUS, completion, lesson, metric, small_run, write_run

from shoal.errors import UserError
from shoal_web.watch.metrics import Metrics

pytest.importorskip("duckdb")

from shoal_web.watch.explorer import Explorer
from shoal_web.watch.folder import FolderSource
from shoal_web.watch.nodes import live_seconds, node_lines, seconds_left, swarm_state
from shoal_web.watch.source import WHOLE, BusyError, CurveQuery, MissingError, Parameters, RolloutQuery, RowQuery
from shoal_web.watch.sources import Sources, checked_folders
from shoal_web.watch.tables import Tables


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def said(page: dict[str, Any]) -> list[str]:
    """All completions of a page, the best of a rollout first."""
    answers = [answer for rollout in page["rollouts"] for answer in rollout["answers"]]
    return [answer["completion"] for answer in answers for _ in range(answer["times"])]


def everything(shown: Explorer, **asked: Any) -> list[str]:
    """All completions that `asked` finds, over as many pages as there are."""
    page = shown.page(RolloutQuery(**asked))
    found = said(page)
    while page["next"]:
        page = shown.page(RolloutQuery(**asked, after=page["next"]))
        found += said(page)
    return found


def test_metrics_grow_and_are_rewound(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    metrics = Metrics(file)
    metrics.look()
    assert metrics.nodes == {}
    text = lines(metric(1, "ada"), metric(2, "ada"))
    file.write_text(text + '{"round": 3, "node": "ada", "reward/')
    metrics.look()
    assert list(metrics.nodes["ada"].known("time")[0]) == [1, 2]
    version = metrics.version
    metrics.look()
    assert metrics.version == version
    with file.open("a") as more:
        more.write('local": 0.3}\n')
    metrics.look()
    assert list(metrics.nodes["ada"].known("reward/local")[1]) == [0.1, 0.2, 0.3]
    assert metrics.version > version
    other = tmp_path / "other"
    other.write_text(lines(metric(1, "ada")))
    other.replace(file)
    metrics.look()
    assert list(metrics.nodes["ada"].known("time")[0]) == [1]


def test_figures_that_a_round_lacks_leave_gaps(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(lines(metric(0, "ada", a=1.0), metric(1, "ada", a=None, b=2), metric(2, "ada", b=True, a=3.0)))
    metrics = Metrics(file)
    metrics.look()
    (series,) = metrics.curve(CurveQuery(metric="a", by="node", points=100))["series"]
    assert series == {"name": "ada", "points": [[0.0, 1.0], [2.0, 3.0]]}
    assert metrics.curve(CurveQuery(metric="b", by="node", points=100))["series"][0]["points"] == [[1.0, 2.0]]
    assert metrics.curve(CurveQuery(metric="c", by="node", points=100))["series"] == []


def test_curves_are_means_over_rounds_and_nodes(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(
        lines(*(metric(r, node, x=r + 10 * (node == "bob")) for r in range(100) for node in ("ada", "bob")))
    )
    metrics = Metrics(file)
    metrics.look()
    curve = metrics.curve(CurveQuery(metric="x", by="mean", points=10))
    assert curve["series"][0]["points"] == [[10 * b + 4.5, 10 * b + 9.5] for b in range(10)]
    assert metrics.curve(CurveQuery(metric="x", points=100, smooth=3))["series"][0]["points"][:4] == [
        [0, 0],
        [1, 0.5],
        [2, 1],
        [3, 2],
    ]


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b'{"round": 1, "node": "x"}', b"[" * 3000]))))
def test_any_bytes_are_metrics_or_left_out(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    file = tmp_path_factory.mktemp("any") / "metrics.jsonl"
    file.write_bytes(b"\n".join([*parts, b'{"round": 7, "node": "ada", "x": 1}', b""]))
    metrics = Metrics(file)
    metrics.look()
    assert metrics.nodes["ada"].known("x")[1][-1] == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=12,
)
keys = st.sampled_from(["admission", "peers", "time", "name", "refused", "sent", "pool", "neighbours", "dropped"])


@given(st.dictionaries(keys, json_values))
def test_any_status_is_shown_or_trouble(tmp_path_factory: pytest.TempPathFactory, wrong: dict[str, Any]) -> None:
    run = write_run(tmp_path_factory.mktemp("any") / "run")
    (run / "swarm.json").write_text(json.dumps(STATUS | wrong))
    with closing(FolderSource(run, "run")) as source:
        summary = source.summary()
        assert (summary["swarm"] is None) == ("swarm.json is not the status" in summary["trouble"])


def test_peers_and_reasons_of_a_status_are_bounded() -> None:
    refused = {f"reason {n}": n for n in range(1000)}
    peer = {"name": "ada", "id": "ab", "admitted": 1, "last": 1.0, "muted": 0.0, "refused": refused}
    admission = {"admitted": 1, "refused": refused, "peers": [peer] * 1000}
    state = swarm_state(json.dumps(STATUS | {"admission": admission, "dropped": refused}).encode(), 1e9 + 5)
    assert len(state["admission"]["peers"]) == 200
    for counts in (state["dropped"], state["admission"]["refused"], state["admission"]["peers"][0]["refused"]):
        assert len(counts) == 200
        assert max(counts.values()) == 999
    assert (state["age"], state["running"], state["neighbours"]) == (5, True, 0)


def test_nodes_stand_by_held_out_pass(tmp_path: Path) -> None:
    source = FolderSource(small_run(tmp_path / "run"), "run")
    summary = source.summary()
    assert [node["name"] for node in summary["nodes"]] == ["ada", "bob"]
    ada, _ = summary["nodes"]
    assert (ada["held_out_first"], ada["held_out"], ada["round"]) == (0.25, 0.5, 7)
    assert summary["completions"] == 24
    assert summary["tasks"] == ["gcd"]
    assert summary["swarm"] is None
    assert [each["name"] for each in source.curve(CurveQuery(metric="eval/pass@1", by="task"))["series"]] == ["gcd"]
    assert source.graph(Parameters())["edges"][0] | {"reward": 0} == {
        "maker": "ada", "node": "bob", "peer": True, "rollouts": 5, "live": 5, "reward": 0, "gradient": 0.25,
        "tasks": ["gcd"],
    }  # fmt: skip


def test_an_empty_run_and_a_folder_without_one(tmp_path: Path) -> None:
    source = FolderSource(write_run(tmp_path / "run"), "run")
    assert source.summary()["nodes"] == []
    assert source.rollouts(RolloutQuery()) == {"rollouts": [], "next": None}
    assert source.rollouts(RolloutQuery(text="x"))["rollouts"] == []
    assert source.graph(Parameters())["edges"] == []
    with pytest.raises(UserError, match="not a folder"):
        checked_folders([tmp_path / "none"])


def test_the_newest_run_and_all_runs_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no run in runs/"):
        checked_folders([])
    for name in ("study/runs/main/1~1/seed-1", "study/runs/main/1~1/seed-2", "runs/one"):
        small_run(tmp_path / name)
    assert checked_folders([]) == [Path("runs/one")]
    study = Sources(folders=[Path("study")])
    assert [source.title for source in study.all()] == ["runs/main/1~1/seed-1", "runs/main/1~1/seed-2"]
    small_run(tmp_path / "study/runs/main/1~1/seed-3")
    study._next = 0
    study.look()
    assert len(study.all()) == 3
    with pytest.raises(MissingError):
        study.get("none")


def explorer(tmp_path: Path) -> Explorer:
    return Explorer(Tables(small_run(tmp_path / "run")))


def test_pages_are_whole_and_the_newest_come_first(tmp_path: Path) -> None:
    shown = explorer(tmp_path)
    for text in ("", "SAYS"):
        got = everything(shown, limit=5, text=text)
        assert len(got) == len(set(got)) == 24
        assert got[:2] == ["bob says 6", "bob says 6 or not"]
        assert got[-2:] == ["ada says 1", "ada says 1 or not"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"node": "ada"}, 12),
        ({"task": "lcm"}, 0),
        ({"least": 0.5}, 12),
        ({"most": 0.5, "node": "bob"}, 6),
        ({"text": "Or Not"}, 12),
        ({"text": "WHAT is"}, 24),
        ({"text": "' OR true --"}, 0),
        ({"text": "%"}, 0),
    ],
)
def test_conditions(tmp_path: Path, asked: dict[str, Any], count: int) -> None:
    shown = explorer(tmp_path)
    assert len(everything(shown, **asked)) == count


def test_a_search_goes_back_to_the_first_part(tmp_path: Path) -> None:
    rows = {round: [completion("ada", "needle" if round == 1 else "hay")] for round in range(1, 21)}
    tables = Tables(write_run(tmp_path / "run", [metric(1, "ada")], rows, parts=1))
    assert said(Explorer(tables).page(RolloutQuery(text="needle"))) == ["needle"]


def test_a_rollout_whole_and_who_learned_from_it(tmp_path: Path) -> None:
    shown = explorer(tmp_path)
    [row] = shown.page(RolloutQuery(text="ada says 3 or"))["rollouts"]
    whole = shown.whole(RowQuery(part=row["part"], row=row["row"]))
    assert [each["completion"] for each in whole["completions"]] == ["ada says 3", "ada says 3 or not"]
    assert [(each["node"], each["round"], each["peer"]) for each in whole["learned"]] == [("bob", 4, True)]
    for part, place in ((99, 0), (row["part"], 10_000)):
        with pytest.raises(MissingError):
            shown.whole(RowQuery(part=part, row=place))


def test_completions_stand_under_their_question_and_equal_ones_as_one(tmp_path: Path) -> None:
    texts = ["4", "5", "5", "4", "5", "no"]
    rows = [completion("ada", text, reward=float(text == "4"), answer="4") for text in texts]
    shown = Explorer(Tables(write_run(tmp_path / "run", [], {1: rows, 2: [completion("bob", "6", reward=0.0)]})))
    bob, ada = shown.page(RolloutQuery())["rollouts"]
    assert [(each["completion"], each["times"]) for each in ada["answers"]] == [("4", 2), ("5", 3), ("no", 1)]
    assert (ada["right"], ada["completions"], ada["answer"], bob["answer"]) == (2, 6, "4", None)
    [only] = shown.page(RolloutQuery(most=0, node="ada"))["rollouts"]  # of a rollout, what meets the conditions
    assert [each["completion"] for each in only["answers"]] == ["5", "no"]
    assert (only["right"], only["completions"]) == (2, 6)
    assert shown.whole(RowQuery(part=1, row=0))["answer"] == "4"


def test_a_conversation_is_shown_turn_by_turn(tmp_path: Path) -> None:
    """Whatever a stranger's table has in place of one is no conversation."""
    held = ['[["48","higher"],["52",""]]', None, '[["48"]]', "[[1,2]]", "[[[[", "{}", "[" * 3000]
    rows = [completion("ada", str(at), conversation=each) for at, each in enumerate(held)]
    shown = Explorer(Tables(write_run(tmp_path / "run", [], {1: rows})))
    whole = shown.whole(RowQuery(part=1, row=0))
    assert [each["conversation"] for each in whole["completions"]] == [[("48", "higher"), ("52", "")], *[None] * 6]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    long = "".join(chr(0x1F600 + at % 50) for at in range(150_000))
    shown = Explorer(Tables(write_run(tmp_path / "run", [], {1: [completion("ada", long, prompt=long)]})))
    [row] = shown.page(RolloutQuery())["rollouts"][0]["answers"]
    assert (len(row["completion"]), row["length"]) == (300, 150_000)
    whole = shown.whole(RowQuery(part=1, row=0))
    [only] = whole["completions"]
    assert len(only["completion"]) == len(whole["question"]) == WHOLE
    assert (only["length"], whole["question_length"]) == (150_000, 150_000)


@pytest.mark.slow
@given(st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=200))
def test_any_search_is_text(explored: Explorer, text: str) -> None:
    assert all(map(bool, said(explored.page(RolloutQuery(text=text[:200])))))


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    return explorer(tmp_path_factory.mktemp("explored"))


def test_duckdb_reads_the_run_and_nothing_else(tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", [], {1: [completion("ada", "secret")]})
    tables = Tables(small_run(tmp_path / "run"))

    for query in (
        f"SELECT * FROM read_parquet('{other}/rollouts.parquet/from-round-000001.parquet')",
        "SELECT * FROM read_text('/etc/passwd')",
        f"COPY (SELECT 1) TO '{tmp_path}/written.csv'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with pytest.raises(BusyError):
            tables.rows(query)
    assert not (tmp_path / "written.csv").exists()


def read(path: Path, *rows: Any) -> Metrics:
    path.write_text(lines(*rows))
    metrics = Metrics(path)
    metrics.look()
    return metrics


def test_figures_of_nobody_are_none(tmp_path: Path) -> None:
    metrics = Metrics(Path("none"))
    assert (metrics.last_round(), node_lines(metrics)) == (0, [])
    assert node_lines(read(tmp_path / "m", metric(1, "ada") | {"reward/local": None}))[0]["reward"] is None


def test_nodes_without_an_evaluation_come_last(tmp_path: Path) -> None:
    shares = [metric(1, name, **{"eval/pass@1": share}) for name, share in (("low", 0.0), ("high", 0.5))]
    metrics = read(tmp_path / "m", metric(1, "new"), *shares)
    assert [line["name"] for line in node_lines(metrics)] == ["high", "low", "new"]


def test_a_break_between_two_rounds_does_not_slow_the_rest(tmp_path: Path) -> None:
    times = [*range(0, 100, 10), *range(100_000, 100_100, 10)]
    metrics = read(tmp_path / "m", *(metric(at, "ada") | {"time": 1e9 + time} for at, time in enumerate(times)))
    assert seconds_left(metrics, 25) == 60
    assert seconds_left(metrics, None) is None
    assert seconds_left(Metrics(Path("none")), 25) is None


def test_a_run_counts_as_live_for_about_three_of_its_rounds(tmp_path: Path) -> None:
    slow = read(tmp_path / "slow", *(metric(at, "ada") | {"time": 600 * at} for at in range(5)))
    assert (live_seconds(slow, 10), live_seconds(slow, None), live_seconds(slow, 4)) == (1800, 1800, 30)
    assert live_seconds(read(tmp_path / "quick", metric(1, "ada"), metric(2, "ada")), 10) == 30


def test_a_node_that_ended_is_neither_running_nor_live(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [metric(1, "ada")])
    with closing(FolderSource(run, "run")) as source:
        for ended in (False, True):
            (run / "swarm.json").write_text(json.dumps(STATUS | {"time": time.time(), "ended": ended}))
            os.utime(run / "swarm.json", (ended, ended))
            source._due = 0.0
            source.look()
            summary = source.summary()
            assert (summary["swarm"]["running"], summary["live"]) == (not ended, not ended)


def test_shares_are_means_over_the_rounds_that_had_a_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned = {at: [lesson("ada", maker, 1, gradient_share=0.5) for maker in ("ada", "bob")] for at in (2, 3)}
    learned[3] += [lesson("ada", "eve", 2, gradient_share=0.0)]
    learned[4] = [lesson("ada", "bob", 3, gradient_share=None), lesson("dan", "bob", 3, gradient_share=None)]
    run = write_run(tmp_path / "run", [metric(1, "ada")], learned=learned)
    with closing(FolderSource(run, "run")) as source:
        found = source.graph(Parameters())
        shares = {(each["maker"], each["node"]): each["gradient"] for each in found["edges"]}
        assert shares == {("ada", "ada"): 0.5, ("bob", "ada"): 0.5, ("eve", "ada"): 0.0, ("bob", "dan"): None}
        assert not found["more"]
        monkeypatch.setattr("shoal_web.watch.learned.EDGES", 2)
        found = source.graph(Parameters())
        assert ([each["rollouts"] for each in found["edges"]], found["more"]) == ([3, 2], True)
