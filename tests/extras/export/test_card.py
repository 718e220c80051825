"""The model card: figures of the run, and nothing that strangers or settings say becomes markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.runs.source import Source, source_of
from shoal.runs.tables import LEARNED, LEARNED_SCHEMA
from shoal_extras.export.card import Origin, card_of, escaped, fenced, origin_of
from shoal_extras.export.story import Story, story_of

EVIL = "<script>alert(1)</script> [x](http://evil) | `a` **b** www.evil.com\n# head\n---\nlicense: mit"
ORIGIN = Origin("HuggingFaceTB/SmolLM2-135M-Instruct", "apache-2.0")


def rows_of(node: str, round: int, right: float, **more: Any) -> dict[str, Any]:
    return {"round": round, "node": node, "eval/pass@1": right, "eval/blind": 0.02, "eval/questions": 96, **more}


def make_run(run: Path, makers: dict[str, int], **settings: Any) -> Path:
    """A run's folder of two nodes with a checkpoint after round 12, as far as a card needs one."""
    evaluation = {"questions": 48, "samples": 1}
    config = make_config({"evaluation": evaluation, "round": {"nodes": 2}, **settings}, "test", allow_code=True)
    for node in ("node-1", "node-2"):
        folder = run / "checkpoints" / "round-000012" / node
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (run / "config.toml").write_text(config.to_toml())
    rows = [
        rows_of("node-1", 0, 0.25, **{"eval/pass@1/gcd": 0.5, "eval/pass@1/lcm": 0.0}),
        rows_of("node-2", 0, 0.1),
        rows_of("node-1", 12, 0.5, **{"eval/pass@1/gcd": 0.75, "eval/pass@1/lcm": 0.25}),
        rows_of("node-2", 12, 0.4),
        rows_of("node-1", 24, 0.9),  # after the checkpoint
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    learned = [
        dict.fromkeys(LEARNED_SCHEMA.names)
        | {"node": "node-1", "maker": maker, "peer": maker != "node-1"}
        | {"round": number % 12 + 1, "gradient_share": 1 / 12}
        for maker, count in makers.items()
        for number in range(count)
    ]
    (run / LEARNED).mkdir()
    pq.write_table(pa.Table.from_pylist(learned, schema=LEARNED_SCHEMA), run / LEARNED / "from-round-000001.parquet")
    return run


def story(run: Path) -> Story:
    found = story_of(source_of(str(run)))
    assert found is not None
    return found


def html(card: str) -> str:
    return str(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(card.split("---\n", 2)[2]))


def test_the_card_tells_what_the_run_measured(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"node-1": 24, "node-2": 12}, policy={"model": ["smollm2"]})
    card = card_of(story(run), ORIGIN, "one", "transformers")
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["license"], front["base_model"], front["library_name"]) == ("apache-2.0", ORIGIN.hub, "transformers")
    assert "| all | 96 | 0.250 [0.174, 0.345] | 0.500 [0.402, 0.598] |" in card
    assert "| gcd | 48 | 0.500 [0.364, 0.636] | 0.750 [0.612, 0.851] |" in card
    assert "| round 0 | round 12 |" in card
    assert "0.020" in card
    assert "24 rollouts of its own and 12 of 1 other node." in card
    assert "| node-2 | 12 | 8.3% |" in card
    assert "Licence of the base: apache-2.0." in card
    assert "`shoal run --config run.toml` repeats the run" in card
    settings = card.split("```toml\n")[1].split("```")[0]
    again = make_config(__import__("tomllib").loads(settings), "card")
    assert again == story(run).config


def test_the_card_of_a_run_that_was_stopped_early_claims_no_change(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"node-1": 24})
    (run / "metrics.jsonl").write_text(json.dumps(rows_of("node-1", 0, 0.25)) + "\n")
    card = card_of(story(run), ORIGIN, "one", "transformers")
    assert "It was not measured after round 0." in card
    assert "| round 0 |" not in card


def test_a_source_is_the_best_node_or_the_one_that_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {})
    last = run / "checkpoints" / "round-000012"
    assert source_of(str(run)) == Source(str(last / "node-1"), run, "node-1", 12)
    assert source_of(str(run / "node-2")) == Source(str(last / "node-2"), run, "node-2", 12)
    assert source_of(str(last / "node-2")).node == "node-2"
    assert source_of("guppy") == Source("guppy")
    assert story_of(Source("guppy")) is None
    with pytest.raises(UserError, match="did you mean 'node-2'"):
        source_of(str(run / "node-22"))
    (run / "checkpoints").rename(run / "gone")
    with pytest.raises(UserError, match="has no model yet"):
        source_of(str(run))


def test_what_strangers_and_settings_say_is_no_markup(tmp_path: Path) -> None:
    task = {"name": "gcd", "system_prompt": f"```\n{EVIL}"}
    run = make_run(tmp_path / "run", {"node-1": 1, EVIL: 2}, tasks={"sources": [task]}, policy={"model": [f"x{EVIL}"]})
    card = card_of(story(run), Origin(), f"me {EVIL}", "peft")
    assert set(yaml.safe_load(card.split("---\n")[1])) == {"library_name", "tags"}
    shown = html(card)
    assert "<script" not in shown
    assert "evil" not in "".join(part.split(">")[0] for part in shown.split("<a ")[1:])
    assert shown.count("<h1") == 1
    assert "Licence of the base: unknown" in card


@given(st.text(max_size=80))
def test_any_name_is_one_cell_of_plain_text(name: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {escaped(name)} | 1 |"
    shown = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(table)
    assert shown.count("<td") == 2
    assert not {"<a", "<em", "<strong", "<code", "<img"} & set(__import__("re").findall(r"<\w+", shown))
    block = MarkdownIt("commonmark").render(fenced(f"{name}\n```\n{name}", "toml"))
    assert block.count("<pre>") == 1
    assert block.rstrip().endswith("</code></pre>")


def test_no_path_or_address_of_this_machine_is_in_it(tmp_path: Path) -> None:
    base = tmp_path / "secret-place" / "my-model"
    run = make_run(
        tmp_path / "run",
        {},
        policy={"model": [str(base)]},
        rewards=[{"kind": "function", "function": f"{tmp_path}/own.py:score"}],
        network={"connect": ["relay.example.org:7447"], "secret_file": str(tmp_path / "secret")},
        evaluation={"questions": 48, "samples": 1, "judges": ["http://judge.example.org:1#key"]},
    )
    card = card_of(story(run), Origin(), "x", "transformers")
    assert "my-model" in card
    assert "own.py:score" in card
    assert "--allow-code" in card
    for hidden in (str(tmp_path), "secret", "example.org"):
        assert hidden not in card


def test_places_are_cut_however_they_are_written_and_texts_are_not(tmp_path: Path) -> None:
    data = {"name": "data", "parameters": {"path": "clients/acme/rows.jsonl", "held_out": "clients/acme/held.jsonl"}}
    task = {"name": "gcd", "system_prompt": "/no_think Answer at once, a/b.", "answer": "/(.+)/"}
    run = make_run(tmp_path / "run", {}, tasks={"sources": [data, task]}, policy={"model": ["models/acme/small.gguf"]})
    card = card_of(story(run), Origin(), "x", "transformers")
    assert "acme" not in card
    for kept in ('path = "rows.jsonl"', 'held_out = "held.jsonl"', "/no_think Answer at once, a/b.", "/(.+)/"):
        assert kept in card


def test_licences_are_known_or_said_to_be_unknown(tmp_path: Path) -> None:
    assert origin_of("guppy") == Origin("", "apache-2.0")
    assert origin_of("smollm2") == Origin(ORIGIN.hub, "apache-2.0", "SmolLM2-135M-Instruct by Hugging Face, in 4 bits")
    assert origin_of("HuggingFaceTB/SmolLM2-135M-Instruct") == ORIGIN
    assert origin_of("gemma3-270m").licence == "gemma"
    assert origin_of("somebody/something") == Origin("somebody/something", "")  # the Hub cannot be asked
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# x\n")
    assert origin_of(str(tmp_path)) == Origin("", "mit")
    for evil in ("license: [a, b]", "license: 'x\n\ny: z'", "license: !!python/object:os.system x", "a: &a [*a]", ":"):
        (tmp_path / "README.md").write_text(f"---\n{evil}\n---\n")
        assert origin_of(str(tmp_path)) == Origin()
