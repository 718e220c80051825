"""Display names of strangers, where people see them: good ones stand beside the name of the key, bad ones nowhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from local_examiner import LocalExaminer
from test_status_reporter import FLOW

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.cli.main import main
from shoal.config.display_name import isolated
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.identity.keys import Identity
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.runs.folder import STATUS
from shoal.tasks import Tasks
from shoal.wire.notices import Notice, open_notice, seal_notice
from shoal.wire.rollouts import seal
from shoal_host.judge import reports
from shoal_host.judge.messages import Ask, open_envelope
from shoal_host.judge.messages import encode as encode_judged
from shoal_host.judge.messages import seal as seal_ask
from shoal_host.judge.records import FILE, Records, ask_rows, outcome_row
from shoal_host.judge.rules import Session, Stage
from shoal_web.watch.nodes import swarm_state
from shoal_web.watch.swarm import Heard

EVE, JUDGE = Identity.generate(), Identity.generate()
NAMES = [
    ("Ada's laptop", "Ada's laptop"),
    ("\u202edlog", ""),
    ("\x1b[2J\x1b[31mroot", ""),
    ("<img src=x onerror=alert(1)>", ""),
    ("[link=file:///]x[/link]", ""),
    ("wise-owl-0000", ""),
    ("wise owl 0000", ""),
    ("\u05d3\u05e0\u05d4 7", "\u05d3\u05e0\u05d4 7"),
    ("\u05d3\u05e0\u05d4\u2069 9.99", ""),
    ("\u2067\u05d3\u05e0\u05d4", ""),
    ("n" * 200, ""),
    ("a" + "\u0301" * 30, ""),
    ("\ud800", ""),
]
named = pytest.mark.parametrize(("name", "shown"), NAMES[:-1], ids=[ascii(name)[:20] for name, _ in NAMES[:-1]])


@named
def test_in_the_status_of_a_node(
    name: str, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    tasks = TasksConfig(sources=[TaskSpec(name="chain_sum")])
    question = Tasks(tasks).draw(1, "reef", EVE.id, 1)[0]
    sent = Rollout(question.id, question.hash, (Completion.of("1"),), EVE.name, 1, 0)
    examiner = LocalExaminer(tasks, lambda items: [[1.0 for _ in texts] for _, texts in items])  # type: ignore[arg-type]
    gate = Admission("reef", examiner, AdmissionLimits(), num_generations=1)
    gate.attribute(EVE.id, seal(sent, EVE, "reef", time.time(), display_name=name))
    [peer] = gate.status()["peers"]
    assert (peer["name"], peer["display_name"]) == (EVE.name, shown)

    status = {
        "time": time.time(), "name": "calm-otter-1a2b", "id": "1a2b" * 16, "swarm": "reef", "private": False,
        "links": 1, "peers": 1, "neighbours": [], "wanted": 14, "note": "",
        "silo_since": None, "faults": 0, "received": FLOW, "sent": FLOW, "display_name": name,
        "pool": {"rollouts": 0, "live": 0, "wanted": 4},
        "admission": {"admitted": 3, "refused": {}, "peers": [peer | {"display_name": name}]},
    }  # fmt: skip
    (tmp_path / STATUS).write_text(json.dumps(status))  # the folder may come from a stranger, too
    assert main(["status", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    [line] = [line for line in said.splitlines() if EVE.name in line]
    assert line.rstrip().endswith(isolated(shown)), "nothing stands behind a name from right to left"
    assert shown or (name not in said and "\x1b" not in said)
    state = swarm_state(json.dumps(status).encode(), time.time())
    assert state["display_name"] == state["admission"]["peers"][0]["display_name"] == shown


@named
def test_in_the_window_of_a_swarm(name: str, shown: str) -> None:
    notice = Notice(1, "reef", EVE.public, time.time(), 3, display_name=name)
    opened = open_notice(seal_notice(notice, EVE), "reef", time.time())
    assert opened is not None
    heard = Heard()
    assert heard.add(opened, time.time())
    [line] = heard.lines(time.time())
    assert (line["name"], line["display_name"]) == (EVE.name, shown)


def ask(**values: Any) -> Ask:
    given: dict[str, Any] = {"judge": JUDGE.public, "key": EVE.public, "nonce": b"n" * 16, "time": 1.0, "round": 1}
    return Ask(**given, model="m", in_swarm=True, **values)


@named
def test_on_the_board_of_a_judge(name: str, shown: str, tmp_path: Path) -> None:
    opened, envelope = open_envelope(encode_judged(seal_ask(ask(display_name=name), EVE)), Ask)
    assert opened.display_name == name
    records = Records(tmp_path / "judge")
    for id, key, statement in ((1, JUDGE.public, b"of an older judge"), (2, EVE.public, envelope.statement)):
        made = Session(id, key, 0, 1, "m", True, b"h" * 32, 1.0, 61.0, 61.0)
        made.task, made.question, made.posed = "gcd", QuestionId("gcd", "1", "c", 2**62, 3), bytes([id]) * 32
        records.append(*ask_rows(made, statement, b"s" * 64)).result(10)
        made.stage, made.settled = Stage.lapsed, 3.0
        records.append(outcome_row(made)).result(10)
    records.close()
    found = {row["node"]: row["display_name"] for row in reports.leaderboard_of(tmp_path / "judge" / FILE)}
    assert found == {EVE.name: shown, JUDGE.name: ""}


def test_what_is_no_unicode_is_never_sent() -> None:
    name = NAMES[-1][0]
    with pytest.raises(UnicodeEncodeError):
        seal_notice(Notice(1, "reef", EVE.public, 1.0, 3, display_name=name), EVE)
