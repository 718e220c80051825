"""Archives: kept, merged, pruned, withdrawn from, verified and exported."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from archives import NOW, START, SWARM, TASKS, Line, envelope, rows_of, write_archive

from shoal.cli.main import main
from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.rollout import Rollout
from shoal.transports.zenoh.neighbours import CANDIDATES, Neighbours
from shoal.wire.rollouts import open_envelope, seal
from shoal_extras.archive.contents import export
from shoal_extras.archive.follow import HEARD, follow
from shoal_extras.archive.format import Row, write_part
from shoal_extras.archive.merge import rewrite, withdraw
from shoal_extras.archive.reader import read_groups
from shoal_extras.archive.verify import Marks, Verified, proof, start_of, verify
from shoal_extras.places.files import name_of, pack
from shoal_extras.places.store import open_store

ADA, BOB = Identity.generate(), Identity.generate()
LONG = " ".join(f"word{number} is what it says" for number in range(20))


def content(archive: Path) -> dict[str, bytes]:
    return {str(path.relative_to(archive)): path.read_bytes() for path in archive.rglob("*") if path.is_file()}


def rollouts(archive: Path) -> int:
    return len(list(read_groups(archive)))


def test_merging_gives_the_same_bytes_in_any_order_and_again(tmp_path: Path) -> None:
    made = [envelope(maker, round) for maker in (ADA, BOB) for round in range(20)]
    random.Random(0).shuffle(made)
    parts = [made[:15], made[10:30], made[25:]]
    archives = [write_archive(tmp_path / str(number), some) for number, some in enumerate(parts)]
    count = rewrite(archives, tmp_path / "all")
    assert (count["kept"], count["repeated"]) == (40, 10)
    rewrite(archives[::-1], tmp_path / "reversed")
    rewrite(archives[1:], tmp_path / "steps")
    rewrite([tmp_path / "steps", archives[0]], tmp_path / "steps")
    rewrite([tmp_path / "all"], tmp_path / "all")
    assert content(tmp_path / "all") == content(tmp_path / "reversed") == content(tmp_path / "steps")
    assert verify(tmp_path / "all", START).wrong == {}


def test_of_two_claims_the_lower_one_stays(tmp_path: Path) -> None:
    [row] = rows_of([envelope(ADA, 0)])
    high = Row(row.envelope, row.prompt, row.messages, (1.0,) * 4)
    for number, one in enumerate((Row(row.envelope), high, row)):
        write_part(tmp_path / str(number), [one])
    rewrite([tmp_path / str(number) for number in range(3)], tmp_path / "all")
    assert verify(tmp_path / "all", START).wrong == {}


def test_a_withdrawal_is_honoured_wherever_it_is_merged(tmp_path: Path) -> None:
    one = write_archive(tmp_path / "one", [envelope(ADA, 0), envelope(BOB, 0)])
    two = write_archive(tmp_path / "two", [envelope(ADA, 1), envelope(BOB, 1), envelope(ADA, 2, swarm="reef")])
    withdraw(one, ADA, SWARM, NOW + 1000)
    assert verify(one, START).wrong == {"withdrawn": 1}
    assert rewrite([two, one], two)["withdrawn"] == 2
    assert {group.statement.key for group in read_groups(two)} == {ADA.public, BOB.public}
    rewrite([write_archive(tmp_path / "three", [envelope(ADA, 3)]), two], two)  # it remembers
    assert rollouts(two) == 3
    forged = tmp_path / "two" / "withdrawals" / "forged.msgpack"
    forged.write_bytes(next((one / "withdrawals").iterdir()).read_bytes().replace(ADA.public, BOB.public))
    rewrite([two], two)
    assert rollouts(two) == 3
    assert not forged.exists()


def changed(row: Row, **changes: Any) -> Row:
    return Row(**{name: getattr(row, name) for name in ("envelope", "prompt", "messages", "rewards")} | changes)


def lies() -> dict[str, list[bytes | Row]]:
    rows = rows_of([envelope(ADA, 0)])
    good, other = rows[0].envelope, open_envelope(envelope(ADA, 1))[0].rollout
    stolen = Rollout(other.question, other.question_hash, other.completions, ADA.name, 7)
    named = Rollout(other.question, other.question_hash, other.completions, "brave-otter-3f2a", 1)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    return {
        "signature": [bytes(flipped)],
        "malformed": [good + b"x"],
        "seed": [seal(stolen, ADA, SWARM, NOW)],
        "name": [seal(named, ADA, SWARM, NOW)],
        "repeated": [good, envelope(ADA, 0, now=NOW + 30)],
        "not kept": [envelope(ADA, 0, not_kept=True)],
        "reward": [changed(rows[0], rewards=(1.0,) * 4)],
        "prompt": [changed(rows[0], prompt="What is 2 + 2?")],
    }


@pytest.mark.parametrize("reason", lies())
def test_what_is_false_is_found_and_dropped(
    reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lies()[reason]
    bad = [one if isinstance(one, Row) else Row(one) for one in given]
    try:
        write_part(tmp_path / "a", [*rows_of([envelope(BOB, 0)]), *bad])
    except ValueError:  # no table can be made of what is no envelope
        assert reason == "malformed"
        return
    own = ["verify", str(tmp_path / "a"), "--suite", "pond", "--only", "chain_sum", "--only", "basic_arithmetic"]
    assert main([*own, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["rollouts"], told["wrong"]) == (1 + len(bad), {reason: 1})
    assert main([*own, "--drop"]) == 1
    assert main(own) == 0
    assert rollouts(tmp_path / "a") == len(bad)


def test_columns_that_do_not_follow_from_the_envelopes_are_found(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a", [envelope(ADA, round) for round in range(3)])
    [path] = (archive / "completions").iterdir()
    table = pd.read_parquet(path)
    table["model"] = "gpt-7"
    table.to_parquet(path)
    assert verify(archive, START).wrong == {"columns": 3}
    path.unlink()
    assert verify(archive, START).wrong == {"columns": 3}


def test_tasks_that_are_not_installed_are_counted_apart(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a", [envelope(ADA, round) for round in range(3)])
    nothing = make_config({"tasks": {"suite": "games"}}, "test").tasks
    found: Verified = verify(archive, start_of(nothing))
    assert (found.rollouts, found.not_installed, found.wrong) == (3, 3, {})


def test_copies_are_found_also_with_small_changes(tmp_path: Path) -> None:
    from shoal_extras.archive.worker import Found, _sketch

    marks = Marks()
    first = Found(id="1", key=b"a", place=1, texts="x", sketches=[_sketch(LONG, "q")])
    like = Found(id="2", key=b"b", place=2, texts="y", sketches=[_sketch(LONG.replace("word7 ", "words "), "q")])
    other = Found(id="3", key=b"b", place=3, texts="z", sketches=[_sketch(LONG, "another question")])
    copy = Found(id="4", key=b"c", place=4, texts="x")
    assert [marks.add(one) for one in (first, like, other, copy)] == ["", "near-duplicate", "", "duplicate"]
    many = [Found(id=str(n), key=b"d", place=10 + n, time=0.0) for n in range(10, 3000)]
    assert [marks.add(one) for one in many].count("quota") == len(many) - 2560


def test_a_hostile_answer_is_slow_alone(tmp_path: Path) -> None:
    made = [envelope(ADA, 0), envelope(BOB, 0, texts=["(" * 50_000, "9**9**9**9", "4"])]
    archive = write_archive(tmp_path / "a", made)
    assert set(verify(archive, START).wrong) <= {"slow"}


def test_a_swarm_is_followed_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = {"transport": "archives:Line", "name": SWARM}
    config = make_config({"network": network, "tasks": TASKS.model_dump()}, "test", allow_code=True)
    good = [envelope(ADA, round) for round in range(5)]
    bad = [envelope(BOB, 0), envelope(ADA, 6, not_kept=True), envelope(ADA, 7, swarm="another"), b"nonsense"]
    monkeypatch.setattr(Line, "SAID", [(ADA.id, data) for data in (*good, *good, *bad)])
    turns: list[int] = []
    for kept in (5, 0):  # again: nothing is kept twice
        turns.clear()
        keeper = follow(config, tmp_path / "a", lambda: len(turns) > 1, lambda keeper: turns.append(keeper.kept))
        assert keeper.kept == kept
        assert keeper.left_out == {"swarm or key": 2, "not kept": 1, "malformed": 1}
        assert {group.envelope for group in read_groups(tmp_path / "a")} == set(good)
    assert verify(tmp_path / "a", START).wrong == {}


def test_it_listens_to_all_nodes_of_a_relay_that_a_search_finds() -> None:
    """Without need of more, a node listens to some of these."""
    others = [f"node {number}" for number in range(100)]
    some, every = Neighbours("me", random.Random(0)), Neighbours("me", random.Random(0), start=HEARD, most=HEARD)
    for neighbours in (some, every):
        neighbours.found(others, [], 0.0)
    assert len(some.choose(0.0)) < len(every.choose(0.0)) == len(others)
    assert HEARD == CANDIDATES


def test_a_place_is_kept_whole_whatever_strangers_add(tmp_path: Path) -> None:
    place, archive = tmp_path / "place", tmp_path / "a"
    place.mkdir()
    store = open_store(str(place))
    made = [envelope(maker, round) for maker in (ADA, BOB) for round in range(3)]
    for number, data in enumerate(made):
        maker = open_envelope(data)[0].id
        file = name_of(whole := pack([("rollouts", data)]), maker, time.time() - number * 86_400)
        store.write(f"shoal/{SWARM}/open/{file.path}", whole)
        folder = place / "shoal" / SWARM / "open" / file.hour
        (folder / file.name.replace(file.name[-4:], "0000")).write_bytes(b"no file of a place")
        (folder / "link").symlink_to("/etc/passwd")
    network = {"connect": [str(place)], "name": SWARM}
    config = make_config({"network": network, "tasks": TASKS.model_dump()}, "test")
    turns: list[int] = []
    for _ in range(2):
        turns.clear()
        follow(config, archive, lambda: len(turns) > 12, lambda keeper: turns.append(keeper.kept))
    assert sorted(group.envelope for group in read_groups(archive)) == sorted(made)
    assert verify(archive, START).wrong == {}


def test_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = write_archive(tmp_path / "a", [envelope(ADA, 0), envelope(BOB, 0, model="$x$ [b]"), envelope(BOB, 1)])
    assert main(["archive", "stats", str(archive), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["groups"], told["completions"], told["makers"]) == (3, 12, {ADA.id: 1, BOB.id: 2})
    assert {rate["model"] for rate in told["rates"]} == {"guppy", "$x$ [b]"}
    assert {rate["pass_rate"] for rate in told["rates"]} == {0.5}


def test_prune_keeps_what_is_asked_for(tmp_path: Path) -> None:
    made = [envelope(ADA, 0), envelope(ADA, 1, texts=["no", "never", "nothing"]), envelope(ADA, 2)]
    archive = write_archive(tmp_path / "a", made)
    assert main(["archive", "prune", str(archive), "--live"]) == 0
    assert rollouts(archive) == 2
    assert main(["archive", "prune", str(archive), "--until", "2000-01-01"]) == 0
    assert rollouts(archive) == 0


@pytest.mark.parametrize("form", ["sft", "preference", "grpo"])
def test_exports_have_a_card_and_the_columns_of_trl(form: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a", [envelope(ADA, round) for round in range(4)])
    assert export(archive, form, tmp_path / "data") > 0
    table = pd.read_parquet(tmp_path / "data" / "data")
    columns = {"sft": {"completion"}, "preference": {"chosen", "rejected"}, "grpo": {"answers", "rewards"}}[form]
    assert set(table) == columns | {"prompt"}
    card = (tmp_path / "data" / "README.md").read_text()
    assert "license: cc0-1.0" in card
    assert ADA.name in card
    with pytest.raises(UserError, match="not empty"):
        export(archive, form, tmp_path / "data")


def test_a_proof_for_the_window() -> None:
    made = proof(envelope(ADA, 0))
    assert (made["key"], made["wrong"]) == (ADA.id, "")
    assert made["rewards"].count(1.0) == 2, "a wrong answer may have a part"
    assert proof(b"nonsense")["wrong"] == "malformed"
