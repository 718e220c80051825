"""Records a command in a terminal, and makes an animated picture (SVG) of what the terminal showed.

    python scripts/recording.py record demo.cast shoal demo
    python scripts/recording.py draw demo.cast docs/pictures/demo.svg --title "shoal demo"     # needs: pip install pyte

The recording is a file of asciinema (version 2): a line of JSON for each piece of output, with its time. The picture is
faster than the recording: it shows screens at equal distances of time, and a clock with the time that had passed. Who
asks for reduced motion sees the last screen.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 92, 30
"""Columns and rows of the terminal."""
FRAMES, SECONDS, LAST = 48, 0.3, 8.0
"""The screens of a picture at most, how long each is shown, and the last one."""
CELL, LINE, BAR, EDGE = 8.0, 18, 34, 14
"""Width and height of a character, height of the title bar, and the edge, in pixels."""
COLOURS = {
    "default": "#d5dee2",
    "black": "#74858c",
    "brightblack": "#74858c",
    "red": "#ff8f87",
    "green": "#7fd88f",
    "brown": "#e8c26a",
    "blue": "#7fb4ff",
    "magenta": "#d7a2f5",
    "cyan": "#66d3cf",
    "white": "#f2f6f7",
}


def record(cast: Path, command: list[str]) -> int:
    """Runs `command` in a terminal of its own, shows what it shows, and keeps it in `cast`. Returns its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    began = time.monotonic()
    with cast.open("w") as file:
        file.write(json.dumps({"version": 2, "width": WIDTH, "height": HEIGHT, "command": " ".join(command)}) + "\n")
        pending = b""
        while True:
            select.select([terminal], [], [])
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the command has ended
                break
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            pending += piece
            text = pending.decode("utf-8", "ignore")
            pending = pending[len(text.encode()) :]
            file.write(json.dumps([round(time.monotonic() - began, 3), "o", text]) + "\n")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def screens(cast: Path) -> list[tuple[float, list[str]]]:
    """What the terminal showed, as (seconds, lines of SVG): at most `FRAMES`, each different from the one before."""
    import pyte

    head, *events = [json.loads(line) for line in cast.read_text().splitlines()]
    screen = pyte.Screen(head["width"], head["height"])
    stream = pyte.Stream(screen)
    stream.feed(f"$ {head['command']}\r\n")
    step = events[-1][0] / (FRAMES - 2)
    shown = [(0.0, _lines(screen))]
    due = 0.0
    for seconds, _, text in events:
        if seconds >= due and _lines(screen) != shown[-1][1]:
            shown.append((seconds, _lines(screen)))
            due = seconds + step
        stream.feed(text)
    return [*shown, (events[-1][0], _lines(screen))]


def _lines(screen: Any) -> list[str]:
    return [_line([screen.buffer[row][column] for column in range(screen.columns)]) for row in range(screen.lines)]


def _line(cells: list[Any]) -> str:
    """A line as spans of one colour. Each span has its place, so that fonts of any width keep the columns."""
    spans = []
    start = 0
    while start < len(cells):
        end = start + 1
        while end < len(cells) and (cells[end].fg, cells[end].bold) == (cells[start].fg, cells[start].bold):
            end += 1
        text = "".join(cell.data for cell in cells[start:end])
        if text.strip():
            begin = start + len(text) - len(text.lstrip())
            text = text.strip()
            colour = cells[start].fg
            style = "" if colour == "default" else f' fill="{COLOURS.get(colour, "#" + colour)}"'
            style += ' font-weight="bold"' if cells[start].bold else ""
            span = f'x="{begin * CELL:g}" textLength="{len(text) * CELL:g}"'
            spans.append(f"<tspan {span}{style}>{escape(text)}</tspan>")
        start = end
    return "".join(spans)


def draw(cast: Path, picture: Path, title: str) -> None:
    """Writes the animated picture. The screens lie under one another, and the film moves by a screen at a time."""
    shown = screens(cast)
    known: dict[str, int] = {}
    film = []
    for number, (_, lines) in enumerate(shown):
        top = number * HEIGHT * LINE
        uses = [
            f'<use href="#l{known.setdefault(line, len(known))}" y="{top + (row + 1) * LINE - 5}"/>'
            for row, line in enumerate(lines)
            if line
        ]
        film.append("".join(uses))
    total = (len(shown) - 1) * SECONDS + LAST
    marks = [100 * number * SECONDS / total for number in range(len(shown))]
    steps = "".join(
        f"{mark:.3f}%{{transform:translateY({-number * HEIGHT * LINE}px)}}" for number, mark in enumerate(marks)
    )
    end = f"translateY({-(len(shown) - 1) * HEIGHT * LINE}px)"
    clocks = "".join(f"{mark:.3f}%{{transform:translateY({-number * LINE}px)}}" for number, mark in enumerate(marks))
    clock_end = f"translateY({-(len(shown) - 1) * LINE}px)"
    times = "".join(
        f'<text x="{WIDTH * CELL:g}" y="{(number + 1) * LINE - 5}">{int(seconds) // 60}:{int(seconds) % 60:02}</text>'
        for number, (seconds, _) in enumerate(shown)
    )
    width, height = WIDTH * CELL + 2 * EDGE, HEIGHT * LINE + BAR + EDGE
    lines = "".join(f'<text id="l{number}" xml:space="preserve">{line}</text>' for line, number in known.items())
    picture.write_text(
        f'''<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">
<title>{escape(title)}</title>
<style>
text {{ font: 13.3px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {COLOURS["default"]}; }}
.film {{ animation: film {total:.2f}s step-end infinite; }} @keyframes film {{ {steps}100%{{transform:{end}}} }}
.clock {{ animation: clock {total:.2f}s step-end infinite; }}
@keyframes clock {{ {clocks}100%{{transform:{clock_end}}} }}
.clock text {{ text-anchor: end; }}
@media (prefers-reduced-motion: reduce) {{
.film {{ animation: none; transform: {end}; }} .clock {{ animation: none; transform: {clock_end}; }} }}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" rx="10" fill="#10191d"/>
<circle cx="20" cy="17" r="5" fill="#3a4a51"/><circle cx="38" cy="17" r="5" fill="#3a4a51"/>
<circle cx="56" cy="17" r="5" fill="#3a4a51"/>
<text x="{width / 2:g}" y="22" text-anchor="middle">{escape(title)}</text>
<svg x="{EDGE}" y="8" width="{WIDTH * CELL:g}" height="{LINE}"><g class="clock">{times}</g></svg>
<svg x="{EDGE}" y="{BAR}" width="{WIDTH * CELL:g}" height="{HEIGHT * LINE}"><g class="film">{"".join(film)}</g></svg>
</svg>
'''
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    recorder = parts.add_parser("record", help="run a command and keep what it shows")
    recorder.add_argument("cast", type=Path)
    recorder.add_argument("command", nargs=argparse.REMAINDER)
    drawer = parts.add_parser("draw", help="make the picture")
    drawer.add_argument("cast", type=Path)
    drawer.add_argument("picture", type=Path)
    drawer.add_argument("--title", default="shoal", help="what stands in the bar above")
    args = parser.parse_args()
    if args.part == "draw":
        draw(args.cast, args.picture, args.title)
        return 0
    return record(args.cast, args.command)


if __name__ == "__main__":
    sys.exit(main())
