"""What a run shows while it goes."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from shoal.display import PlainDisplay, make_display
from shoal.display import lines as lines_module
from shoal.display import live as live_module
from shoal.display.figures import MEANINGS, Progress, clock, legend, short
from shoal.display.live import COLUMNS, WIDTH, LiveDisplay
from shoal.display.text import clip, plain


def row(node: str, round: int, **other: Any) -> dict[str, Any]:
    figures = {
        "reward/local": 0.5,
        "rollouts/live_local": 3,
        "gradient/peers": 0.4,
        "rollouts/sampled": 1,
        "rollouts/wanted": 4,
        "rollouts/pool": 17,
        "tokens/generated": 1000,
        "tokens/trained": 500,
        "seconds/generate": 0.5,
        "seconds/score": 0.25,
        "seconds/learn": 0.25,
    }
    return {"round": round, "node": node} | (figures if round else {}) | other


def terminal(width: int, height: int = 24) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, legacy_windows=False, _environ={}
    )


def live(rounds: int, nodes: list[str], width: int) -> LiveDisplay:
    return LiveDisplay(Progress(rounds, nodes, ()), terminal(width))


def text_of(display: LiveDisplay, width: int, height: int = 24) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, legacy_windows=False, _environ={})
    with console.capture() as capture:
        console.print(display)
    return capture.get()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table(width: int) -> None:
    display = live(10, ["ada", "bob"], width)
    display.status("loading models")
    assert "loading models" in text_of(display, width)
    display.update([row("ada", 0, **{"eval/pass@1": 0.1}), row("bob", 0, **{"eval/pass@1": 0.2})], 0)
    assert "loading" not in text_of(display, width)
    assert "15.0%" in text_of(display, width)
    for round in range(1, 4):
        display.update([row("ada", round, **{"reward/local": 0.25}), row("bob", round, **{"eval/pass@1": 0.4})], round)
    display.note("fewer than J live rollouts: 1 of 4")
    text = text_of(display, width)
    lines = [line.split() for line in text.splitlines()]
    assert ["ada", "0.25", "10.0%", "3", "1/4", "40%", "17", "1.5k"] in lines
    assert ["bob", "0.50", "20.0→40.0%", "3", "1/4", "40%", "17", "1.5k"] in lines
    assert ["mean", "0.38", "20.0→40.0%", "3", "1/4", "40%", "17", "1.5k"] in lines
    assert "round 3/10" in text
    assert "left" in text
    assert "fewer than J live rollouts: 1 of 4" in text
    assert max(map(len, text.splitlines())) <= width
    assert all(meaning in " ".join(text.split()) for meaning in MEANINGS.values())


@pytest.mark.parametrize("width", [78, 80, 100, 120, 200])
@pytest.mark.parametrize("nodes", [1, 3, 60])
def test_no_line_is_wider_than_the_terminal_and_no_column_is_cut(width: int, nodes: int) -> None:
    names = [f"amber-otter-of-the-north-{number}" for number in range(nodes)]
    display = live(100_000, names, width)
    big = {"rollouts/live_local": 12.5, "rollouts/shared": 117.0, "rollouts/sampled": 117.0, "rollouts/wanted": 128}
    for round, held_out in ((0, 0.0), (1, 1.0)):
        display.update([row(name, round, **{"eval/pass@1": held_out} | big) for name in names], round)
    display.example({"node": names[0], "prompt": "wide 漢字 " * 60, "completion": "so " * 900, "reward": 0.5})
    display.status("asking held-out questions (128 of 131072), as often as the time allows")
    display.note("stopping after this round (Ctrl-C again: back to the last checkpoint); " * 2)
    display.panel(["swarm reef as amber-otter-of-the-north: 12 peers, listening to 12 " * 2])
    text = text_of(display, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert len(text.splitlines()) < 24
    [header] = [line.split() for line in text.splitlines() if line.startswith("node ")]
    assert [name for name in COLUMNS if name in header] == list(COLUMNS)
    assert "0.0→100.0%" in text


def test_a_narrow_terminal_gets_lines() -> None:
    assert isinstance(make_display(terminal(WIDTH), 10, ["ada"]), LiveDisplay)
    assert isinstance(make_display(terminal(WIDTH - 1), 10, ["ada"]), PlainDisplay)


def test_an_example_of_the_round_is_plain_and_stays_for_a_while(monkeypatch: Any) -> None:
    now = 100.0
    monkeypatch.setattr(live_module.time, "monotonic", lambda: now)
    display = live(10, ["ada"], 80)
    display.update([row("ada", 1)], 1)
    assert "for example" not in text_of(display, 80)
    steering = "[bold]8[/bold]\x1b[2J\r\n\u202e" + "e\u0301\u0301" * 900
    display.example({"node": "ada", "prompt": "What is 3 + 5?\nAnswer briefly.", "completion": steering, "reward": 0.5})
    text = text_of(display, 80)
    assert "for example, ada, reward 0.50" in text
    assert "question What is 3 + 5? Answer briefly." in text
    assert "answer   [bold]8[/bold]?[2J" in text
    assert all(char.isprintable() or char == "\n" for char in text)
    assert max(map(len, text.splitlines())) < 200  # marks without a width do not pile up
    for round, later in ((2, 1.0), (3, 9.0)):
        now = 100.0 + later
        display.example({"node": "ada", "prompt": "q", "completion": f"of round {round}", "reward": 0.0})
        assert ("of round" in text_of(display, 80)) == (round == 3)


def test_of_a_long_text_both_ends_are_shown() -> None:
    assert clip("short", 40) == "short"
    long = clip("Your task is to convert a number. " + "x " * 99 + "base-4 number 30 to base-3", 50)
    assert cell_len(long) <= 50
    assert long.startswith("Your task is to")
    assert long.endswith("to base-3")
    for width in range(1, 40):
        assert cell_len(clip("\u6f22\u5b57" * 50, width)) <= width


def test_a_short_terminal_shows_nodes_first() -> None:
    display = live(10, ["ada", "bob", "eve"], 80)
    display.update([row("ada", 1)], 1)
    display.example({"node": "ada", "prompt": "q", "completion": "a", "reward": 0.0})
    for height, has_legend, has_example in ((24, True, True), (15, True, False), (11, False, False)):
        text = text_of(display, 80, height)
        assert "eve" in text
        assert ("share of the gradient" in " ".join(text.split()), "for example" in text) == (has_legend, has_example)
        assert len(text.splitlines()) < height


def test_a_warning_stays_above_the_table_whole_and_cannot_steer() -> None:
    for interactive in (True, False):
        file = io.StringIO()
        console = Console(
            file=file, width=60, force_terminal=interactive, color_system=None, legacy_windows=False, _environ={}
        )
        text = "nothing to learn from: " + "all answers are wrong " * 5 + 'END\n  "a [b]?\x1b[31m" -> "c"'
        with make_display(console, 10, ["ada"]) as display:
            display.warn(text)
        text = " ".join(file.getvalue().split())
        assert "warning: nothing to learn from: all answers" in text
        assert "END" in text
        assert '"a [b]??[31m" -> "c"' in text


def test_a_resumed_run_knows_what_was_before() -> None:
    before = [row("ada", 0, **{"eval/pass@1": 0.1}), row("ada", 1), row("ada", 2)]
    display = make_display(terminal(80), 10, ["ada"], history=before)
    assert isinstance(display, LiveDisplay)
    assert "round 2/10" in text_of(display, 80)
    display.update([row("ada", 3, **{"eval/pass@1": 0.4})], 3)
    text = text_of(display, 80)
    assert "10.0→40.0%" in text
    assert "left" not in text  # one round tells no pace


def test_many_nodes_fit_the_screen() -> None:
    nodes = [f"node-{number}" for number in range(500)]
    display = live(10, nodes, 80)
    display.update([row(node, 1) for node in nodes], 1)
    text = text_of(display, 80)
    assert len(text.splitlines()) < 24
    assert "more" in text
    assert "mean" in text


def test_without_unicode() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=True, width=80, _environ={})
    display = make_display(console, 3, ["ada"])
    with display:
        for round in range(4):
            display.update([row("ada", round, **{"eval/pass@1": 0.1 * round})], round)
    file.flush()
    assert b"0.0->30.0%" in file.buffer.getvalue()  # type: ignore[attr-defined]


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec=None)), st.sampled_from([20, 80]))
def test_names_and_notes_cannot_steer_the_terminal(text: str, width: int) -> None:
    display = live(3, [text], width)
    display.update([row(text, 1)], 1)
    display.note(text)
    shown = text_of(display, width)
    assert all(char.isprintable() or char == "\n" for char in shown)
    shown.encode()


def test_markup_is_shown_as_it_is() -> None:
    display = live(3, ["[red]ada"], 80)
    display.note("[link=x]see[/link] \x1b[31m")
    assert "[red]ada" in text_of(display, 80)
    assert "[link=x]see[/link] ·[31m" in text_of(display, 80)
    assert plain("a\nb\u202ec").plain == "a·b·c"


def test_it_is_drawn_in_a_terminal_and_left_there() -> None:
    console = terminal(80)
    with make_display(console, 1, ["ada"]) as display:
        display.update([row("ada", 1)], 1)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "round 1/1" in text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back


class Watched(io.StringIO):
    """A terminal that is written to. Meanwhile another thread draws, as it does between two rounds."""

    display: LiveDisplay

    def write(self, text: str) -> int:
        drawing = threading.Thread(target=text_of, args=(self.display, 80), daemon=True)
        drawing.start()
        drawing.join(10)
        assert not drawing.is_alive(), "whoever prints holds what drawing needs"
        return super().write(text)


def test_a_table_is_drawn_while_something_is_printed() -> None:
    file = Watched()
    console = Console(file=file, force_terminal=True, width=80, height=24, legacy_windows=False, _environ={})
    file.display = LiveDisplay(Progress(1000, ["ada"], ()), console)
    for round in range(1, 4):
        file.display.update([row("ada", round)], round)
    file.display.warn("careful")
    assert "careful" in file.getvalue()


def test_lines_for_a_pipe(monkeypatch: Any) -> None:
    now = 100.0
    monkeypatch.setattr(lines_module.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=80, _environ={})
    with make_display(console, 20, ["ada"]) as display:
        assert isinstance(display, PlainDisplay)
        display.status("loading [models]")
        for round in range(21):
            display.update([row("ada", round, **{"eval/pass@1": 0.01 * round})], round)
            display.note("fewer than J" if round > 3 else "")
            now += 1.0
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[:4] == [
        "loading [models]",
        legend(COLUMNS),
        "round 0/20  held-out 0.0%  0:00 elapsed",
        "fewer than J",
    ]
    assert [line.split()[1] for line in lines[4:]] == ["5/20", "10/20", "15/20", "20/20"]
    assert lines[4] == (
        "round 5/20  reward 0.50  held-out 0.0->5.0%  live 3  used 1/4  contribution 40%  pool 17  tok/s 1.5k  "
        "0:05 elapsed, 0:15 left"
    )


def test_a_moving_count_gives_a_line_now_and_then(monkeypatch: Any) -> None:
    now = 100.0
    monkeypatch.setattr(lines_module.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=80, _environ={})
    with make_display(console, 20, ["ada"]) as display:
        for step in range(12):
            display.status(f"asking (step {step})")
            now += 1.0
        display.status("starting")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [*(f"asking (step {s})" for s in (0, 5, 10)), "starting"]


def test_a_long_run_says_less_and_nothing_twice(monkeypatch: Any) -> None:
    now = 100.0
    monkeypatch.setattr(lines_module.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=80, _environ={})
    with make_display(console, 400, ["ada"]) as display:
        for round in range(401):
            display.update([row("ada", round)], round)
            display.panel(["swarm reef: 2 peers"])
            display.status("asking held-out questions (0 of 64)" if round % 10 == 0 else "")
            now += 10.0
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue().splitlines()
    assert len(set(said)) == len(said) < 200
    assert "round 400/400: asking held-out questions (0 of 64)" in said


def test_rows_without_figures() -> None:
    display = live(3, [], 80)
    nothing = dict.fromkeys(row("ada", 1)) | {"round": 1, "node": "ada"}
    display.update([nothing, row("bob", 1, **{"reward/local": float("nan"), "loss": float("inf")})], 1)
    display.update([], 2)
    assert "ada" in text_of(display, 80)


def test_numbers() -> None:
    assert [short(number) for number in (0, 870, 999.6, 8700, 99_960, 999_600, 8.7e6, 8.7e9)] == [
        "0", "870", "1.0k", "8.7k", "100k", "1.0M", "8.7M", "9G",
    ]  # fmt: skip
    assert [clock(seconds) for seconds in (0, 7.4, 754, 3723)] == ["0:00", "0:07", "12:34", "1:02:03"]
