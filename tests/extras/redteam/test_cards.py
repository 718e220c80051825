"""Strangers' names in cards and in TensorBoard, rendered as these do: nothing is markup, and nothing fills a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from archives import envelope, write_archive
from markdown_it import MarkdownIt
from test_trackers import result, rows

from shoal.config.load import config_from_keywords
from shoal.identity.keys import Identity
from shoal.runs.trackers import started
from shoal_extras.archive.contents import SHOWN, export

BEACON = "http://evil.example/beacon"
MARKUP = [
    "<script>alert(1)</script>",
    f'<img src="{BEACON}" onerror="alert(1)">',
    f"![x]({BEACON})",
    "[a](javascript:alert(1))",
    f"<{BEACON}>",
    f"a | b\n| --- | --- |\n| [x]({BEACON}) | y |",
    "---\nlicense: mit\n---",
    "\n\n# heading",
    "`a` **b** _c_ ~~d~~ $e$ &lt;f&gt;",
    "\x1b[2J\u202egpj.exe\x00",
    f"</code></pre><iframe src={BEACON}>",
    "x\r# y\x0b# z\x0c# w\x85# v\u2028# u",
]


def tags(html: str) -> set[str]:
    return set(re.findall(r"</?([a-z0-9]+)", html))


def test_the_card_of_a_data_set_shows_models_and_keys_as_plain_text(tmp_path: Path) -> None:
    eve = Identity.generate()
    made = [envelope(eve, round, model=text[:256]) for round, text in enumerate(MARKUP)]
    write_archive(tmp_path / "archive", made)
    export(tmp_path / "archive", "grpo", tmp_path / "data")
    card = (tmp_path / "data" / "README.md").read_text()
    assert card.count("\n---\n") == 1, "one head"
    shown = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(card.split("---\n", 2)[2])
    assert tags(shown) == {"h1", "p", "code", "table", "thead", "tbody", "tr", "th", "td"}
    assert shown.count("<tr>") == 1 + len(MARKUP) + 1 + 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x85\u2028\u202e]", card)


def test_a_thousand_model_names_of_one_key_do_not_fill_a_card(tmp_path: Path) -> None:
    eve = Identity.generate()
    made = [envelope(eve, round // 8, round % 8, model=f"model {round} " + "x" * 200) for round in range(200)]
    write_archive(tmp_path / "archive", made)
    export(tmp_path / "archive", "sft", tmp_path / "data")
    card = (tmp_path / "data" / "README.md").read_text()
    assert len(re.findall(r"\| model \d", card)) == SHOWN
    assert len(card) < 8000


@pytest.mark.parametrize("hostile", MARKUP)
def test_tensorboard_renders_an_answer_as_a_block_of_text(hostile: str, tmp_path: Path) -> None:
    """By its own converter from Markdown, as its page shows it."""
    pytest.importorskip("tensorboard")
    from tensorboard import plugin_util
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    run.mkdir()
    with started(config_from_keywords({"report_to": "tensorboard"}), run, ["node-1"]) as trackers:
        [tracker] = trackers.values()
        tracker.report(1, rows(1, "node-1"), [("node-1", result(hostile))], late=False)
    found = EventAccumulator(str(run / "trackers/tensorboard"))
    found.Reload()
    texts = [
        event.tensor_proto.string_val[0]
        for tag in found.Tags()["tensors"]
        if tag.startswith("rollouts/")
        for event in found.Tensors(tag)
    ]
    shown = [plugin_util.markdown_to_safe_html(text) for text in texts]
    assert len(shown) >= 2
    for html in shown:
        assert tags(re.sub(r"&[a-z#0-9]+;", "", html)) == {"pre", "code"}, html
