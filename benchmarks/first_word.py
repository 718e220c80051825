"""Seconds from the start of a command to its first word, as somebody at a terminal sees it.

    python benchmarks/first_word.py [--times 5] ask smollm2 "What is the capital of France?"
    python benchmarks/first_word.py --until learning run --rounds 1 --out /tmp/one

The command runs in a terminal of its own. Without `--until` the first word is the first letter that `ask` shows of an
answer: in the line of its status, or below. It prints when the terminal showed something at all, when the first word
came and when the command ended: the median of the times. Models should be in the cache: one run goes before.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import statistics
import subprocess
import sys
import time

SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WAITING = re.compile(r"[\u2800-\u28ff ]*((loading|asking|reading|cut:) .*|.* after round \d+|.*, from which it began)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--until", help="a text that counts as the first word")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    timed(args.words, args.until)
    found = [timed(args.words, args.until) for _ in range(args.times)]
    for what, values in zip(("something", "first word", "end"), zip(*found, strict=True), strict=True):
        print(f"{what:12}{statistics.median(values):6.2f} s   {' '.join(f'{value:.2f}' for value in sorted(values))}")


def timed(words: list[str], until: str | None) -> tuple[float, float, float]:
    """When the terminal showed something, when the first word, and when the command ended (seconds)."""
    ours, theirs = pty.openpty()
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "shoal", *words], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, first, word = "", 0.0, 0.0
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        now = time.perf_counter() - begin
        seen += data.decode(errors="replace")
        first = first or now
        if not word and is_said(SEQUENCES.sub("", seen), until):
            word = now
    process.wait()
    return first, word, time.perf_counter() - begin


def is_said(seen: str, until: str | None) -> bool:
    """Whether a terminal that has shown all this shows a word of an answer."""
    if until is not None:
        return until in seen
    return any(re.search(r"\w", line) and not WAITING.fullmatch(line.rstrip()) for line in re.split(r"[\r\n]+", seen))


if __name__ == "__main__":
    main()
