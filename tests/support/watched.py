"""Runs for `shoal watch` to show: small ones, with what strangers may write in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from shoal.runs import tables
from shoal.runs.folder import RunFolder
from shoal.runs.tables import LEARNED, ROLLOUTS, TRANSCRIPTS

HOSTILE = [
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg/onload=window.hacked=1>",
    '"><iframe srcdoc="<script>parent.hacked=1</script>">',
    "javascript:window.hacked=1",
    "</textarea></title></style><script>window.hacked=1</script>",
    "{{constructor.constructor('window.hacked=1')()}}",
    "${window.hacked=1}",
    "{a|rich} {b} {c} %s \\u003cscript\\u003e",
    "'; DROP TABLE cached; --",
    "\u202egnirts desrever\u202c \u2066isolate",
    "\x00\x01\x1b[31mred\x7f",
    "Z" + "\u0301" * 500,
    "\U0001f9d1\u200d\U0001f680" * 40,
    "__proto__",
    "constructor",
    "W" * 100_000,
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror=window.hacked=1&gt;'>",
    "&lt;img src=x onerror=window.hacked=1&gt; %3Cscript%3Ewindow.hacked=1%3C/script%3E",
    "<base href=//evil.example><link rel=stylesheet href=//evil.example/x><meta http-equiv=refresh content=0;//e.x>",
    "<form action=//evil.example><button autofocus onfocus=window.hacked=1>x</button></form>",
    "[x](javascript:window.hacked=1) ![y](//evil.example/y.png) <a href='javascript:window.hacked=1'>z</a>",
    "</style><style>*{display:none!important}</style><template shadowrootmode=open><slot>",
]
"""What strangers may write where they may write anything."""


FLOW = {"messages": 0, "bytes": 0, "overflow": 0}
STATUS: dict[str, Any] = {
    **{
        "time": 1e9,
        "name": "ada",
        "id": "ab",
        "swarm": "reef",
        "private": False,
        "links": 1,
    },
    **{"peers": 0, "neighbours": [], "wanted": 8, "note": "", "silo_since": None, "faults": 0},
    **{"received": FLOW, "sent": FLOW, "pool": {"rollouts": 0, "live": 0, "wanted": 4}},
    "admission": {"admitted": 0, "refused": {}, "peers": []},
}
"""`swarm.json` of a node that has just joined."""


def metric(round: int, node: str, **more: Any) -> dict[str, Any]:
    return {"round": round, "node": node, "time": 1e9 + round, "reward/local": round / 10} | more


def completion(node: str, text: str, **more: Any) -> dict[str, Any]:
    row = {
        "node": node,
        "task": "gcd",
        "version": "1",
        "config": "{}",
        "seed": 7,
        "index": 0,
        "prompt": "What is it?",
        "completion": text,
        "finish_reason": "stop",
        "reward": 1.0,
        "live": True,
    }
    return row | more


def lesson(node: str, maker: str, made: int, **more: Any) -> dict[str, Any]:
    row = {"node": node, "maker": maker, "made": made, "slot": 0, "task": "gcd", "config": "{}", "seed": 7}
    row |= {"index": 0, "live": True, "mean_reward": 0.5, "peer": node != maker}
    return row | {"gradient_share": 0.25, "shortened": None} | more


def told(node: str, question: str, text: str, reward: float, **more: Any) -> dict[str, Any]:
    """An answer to a held-out question."""
    row = {"node": node, "task": "gcd", "prompt": question, "completion": text, "finish_reason": "stop"}
    return row | {"reward": reward, "answer": "6"} | more


def write_run(
    path: Path,
    metrics: Iterable[Mapping[str, Any]] = (),
    rollouts: Mapping[int, list[dict[str, Any]]] | None = None,
    learned: Mapping[int, list[dict[str, Any]]] | None = None,
    parts: int = 1000,
    transcripts: Mapping[int, list[dict[str, Any]]] | None = None,
) -> Path:
    """The folder of a run; of its rollouts `parts` rounds lie in a part."""
    with RunFolder.create(path, "seed = 0\n") as folder:
        folder.log(list(metrics))
        for at, (round, rows) in enumerate((rollouts or {}).items()):
            folder.save(ROLLOUTS, round, rows)
            full = (at + 1) % parts == 0
            with patch.object(tables, "PART_BYTES", 0 if full else tables.PART_BYTES):
                folder.flush()
        for table, kept in ((LEARNED, learned), (TRANSCRIPTS, transcripts)):
            for round, rows in (kept or {}).items():
                folder.save(table, round, rows)
        folder.flush()
    return path


def small_run(path: Path) -> Path:
    """Two nodes, six rounds, two completions for each and round; bob learns from ada."""
    rounds = range(1, 7)
    metrics = [metric(0, node, **{"eval/pass@1": 0.25, "eval/pass@1/gcd": 0.25}) for node in ("ada", "bob")]
    for round in rounds:
        metrics += [metric(round, "ada"), metric(round, "bob", **{"gradient/peers": 0.25})]
    metrics.append(metric(7, "ada", **{"eval/pass@1": 0.5, "eval/pass@1/gcd": 0.5}))
    rollouts = {
        round: [
            completion(node, f"{node} says {round}{word}", reward=reward, seed=round)
            for node in ("ada", "bob")
            for word, reward in (("", 1.0), (" or not", 0.0))
        ]
        for round in rounds
    }
    learned = {round: [lesson("bob", "ada", round - 1, seed=round - 1)] for round in range(2, 7)}
    return write_run(path, metrics, rollouts, learned, parts=2)


ASKED = {"gcd of 12, 18?": [0.0, 0.0, 1.0, 1.0], "gcd of 6, 18?": [1.0] * 4, "gcd of 12, 30?": [0.0] * 4}
"""Questions of `told_run` and whether the answers of four evaluations were right."""


def told_run(path: Path) -> Path:
    """Ada is asked in rounds 0, 10, 20 and 30. She learns from herself and from bob."""
    transcripts = {
        10 * at: [told("ada", question, "6" if marks[at] else "7", marks[at]) for question, marks in ASKED.items()]
        for at in range(4)
    }
    learned = {
        9: [lesson("ada", "eve", 8, mean_reward=1.0)],
        12: [lesson("ada", "ada", 12), lesson("ada", "bob", 11, task="lcm")],
        19: [lesson("ada", "bob", 18), lesson("ada", "eve", 3, live=False), lesson("bob", "eve", 18)],
        21: [lesson("ada", "eve", 20)],
    }
    rollouts = {
        18: [
            completion("bob", text, reward=reward, answer="6", read=f"{text} as number")
            for text, reward in (("7", 0.0), ("6", 1.0))
        ]
    }
    metrics = [metric(0, "ada", **{"eval/pass@1/gcd": 0.5, "eval/blind/gcd": 0.04})]
    return write_run(path, metrics, rollouts, learned, transcripts=transcripts)


def pictured_run(path: Path) -> Path:
    """Questions with pictures, of which answers are words, and one without."""
    rows = [completion("ada", text, prompt="a red circle", answer="no") for text in ("<svg/>", "no")]
    for index in range(12):
        question = f"[picture 0123abcd] Which colour? {index}"
        seen = {"task": "name_colour", "prompt": question, "seed": 7, "index": index}
        rows += [completion("ada", text, reward=float(text == "red"), **seen) for text in ("red", "blue")]
    return write_run(path, [metric(0, "ada")], {1: rows[::-1]})


def hostile_names() -> list[str]:
    """The names in `hostile_run`."""
    return [text[:150].replace("\x00", "") + str(at) for at, text in enumerate(HOSTILE)]


def hostile_run(path: Path) -> Path:
    """All of `HOSTILE` as names of nodes and tasks, keys, questions and completions, and in a swarm's status."""
    names = hostile_names()
    metrics = [
        metric(round, name, **{"eval/pass@1": 0.5, f"eval/pass@1/{name}": 0.5, name: 1.0}) | {"gradient/peers": 0.5}
        for round in range(3)
        for name in names
    ]
    rows = [
        completion(name, text, prompt=text, task=name, config=name, version=name, seed=at, read=text)
        for at, (name, text) in enumerate(zip(names, HOSTILE, strict=True))
    ]
    learned = [lesson(name, names[(at + 1) % len(names)], 1, task=name, config=name) for at, name in enumerate(names)]
    asked = [told(names[0], text, text, 0.5, task=name, answer=text) for name, text in zip(names, HOSTILE, strict=True)]
    write_run(
        path, metrics, {1: rows}, {2: learned}, transcripts={0: asked, 2: [{**row, "reward": 1.0} for row in asked]}
    )
    peers = [
        {"name": text[:500], "id": text[:500], "admitted": 1, "refused": {text[:500]: 2}} | {"muted": 1.0, "last": 1e9}
        for text in HOSTILE
    ]
    status = STATUS | {"name": HOSTILE[0], "id": HOSTILE[1], "swarm": HOSTILE[2], "note": HOSTILE[3], "tag": "x"}
    status |= {"admission": {"admitted": 1, "refused": {text[:500]: 1 for text in HOSTILE}, "peers": peers}}
    (path / "swarm.json").write_text(json.dumps(status))
    return path
