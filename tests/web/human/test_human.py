"""One who answers and does not learn: the journal, the choice of tasks, the contributor and its API."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes import question, rollout
from local_examiner import LocalExaminer

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rollout import Rollout, Scored
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.wire.rollouts import open_envelope
from shoal_web.human.contributor import AT_ONCE, HEARD, Contributor
from shoal_web.human.journal import MOST_LEARNERS, Entry, Journal, Learner

# The journal


def offered(journal: Journal, index: int = 1, task: str = "say") -> Entry:
    return journal.offer(Entry(journal.last() + 1, task, question(index)))


def test_no_round_is_given_twice_whatever_happens(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "reef.sqlite"
    with closing(Journal(path, lambda: 1000.0)) as journal:
        first = [offered(journal) for _ in range(5)]
    with closing(Journal(path, lambda: 10.0)) as journal:  # a clock that went back makes no difference
        later = [offered(journal) for _ in range(5)]
        assert journal.open() == [*first, *later]
    path.unlink()
    with closing(Journal(path, lambda: 2000.0)) as journal:  # nor does a lost journal
        last = offered(journal)
    rounds = [entry.round for entry in (*first, *later, last)]
    assert rounds == sorted(set(rounds))


def test_a_kill_costs_nothing_that_was_told(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from fakes import question
from shoal_web.human.journal import Entry, Journal
journal = Journal(Path(sys.argv[1]))
for index in range(1, 4):
    entry = journal.offer(Entry(journal.last() + 1, "say", question(index)))
journal.settle(entry.round, ["yes"], [1.0])
print(journal.last(), flush=True)
os.kill(os.getpid(), 9)
"""
    path = tmp_path / "reef.sqlite"
    command = [sys.executable, "-c", script, str(path)]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(command, capture_output=True, text=True, env=here)
    with closing(Journal(path)) as journal:
        assert journal.last() == int(killed.stdout)
        assert len(journal.open()) == 2
        [answered] = journal.answered()
        assert (answered.answers, answered.rewards, answered.question) == (("yes",), (1.0,), question(3))


def test_a_question_is_answered_once(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "reef.sqlite")) as journal:
        entry, other = offered(journal, 1), offered(journal, 2)
        assert journal.settle(entry.round, ["a", "ü"], [1.0, 0.5]).rewards == (1.0, 0.5)
        journal.settle(other.round)
        for settled in (entry, other):
            with pytest.raises(LookupError):
                journal.settle(settled.round, ["b"], [0.0])
            with pytest.raises(LookupError):
                journal.settle(settled.round)
        assert journal.open() == []
        assert journal.asked(entry.question.hash)
        assert not journal.asked(question(9).hash)
        assert journal.totals() == {"answered": 1, "reward": 0.75, "taught": 0, "learners": 0}


def test_a_node_counts_once_for_an_answer_and_only_for_an_answer(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "reef.sqlite")) as journal:
        entry, waiting = offered(journal, 1), offered(journal, 2)
        journal.settle(entry.round, ["a"], [1.0])
        ada, bob = (Learner(node * 32, node, 7, 1.0) for node in ("ad", "bo"))
        assert journal.learned([entry.round, entry.round, waiting.round, 2**53], ada) == 1
        assert journal.learned([entry.round], Learner(ada.node, "ada", 8, 2.0)) == 0
        assert journal.learned([entry.round], bob) == 1
        assert journal.answered()[0].learners == (ada, bob)
        assert (journal.totals()["taught"], journal.totals()["learners"]) == (2, 2)
        assert journal.open() == [waiting]


def test_an_answer_keeps_so_many_learners_and_a_notice_waits_once_for_the_disk(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "reef.sqlite")) as journal:
        entries = [offered(journal, index) for index in (1, 2, 3)]
        for entry in entries:
            journal.settle(entry.round, ["a"], [1.0])
        statements: list[str] = []
        journal._db.set_trace_callback(statements.append)
        assert journal.learned([entry.round for entry in entries], Learner("ad" * 32, "ada", 1, 1.0)) == 3
        assert [statements.count(each) for each in ("BEGIN", "COMMIT")] == [1, 1]
        new = [journal.learned([entry.round], Learner(f"{n:064x}", "eve", 1, 1.0)) for n in range(2 * MOST_LEARNERS)]
        assert sum(new) == MOST_LEARNERS - 1


def test_a_journal_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "reef.sqlite"
    with closing(Journal(path)), pytest.raises(UserError, match="another `shoal human` has"):
        Journal(path)
    Journal(path).close()
    path.write_text("something else, long enough to be no database at all" * 20)
    with pytest.raises(UserError, match="cannot use"):
        Journal(path)


# The contributor


def config_of(**settings: Any) -> Config:
    network = {"name": "reef", "listen": ["127.0.0.1:0"]}  # nobody is reached
    return Config.model_validate({"round": {"nodes": 1}, "network": network, **settings})


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Contributor]:
    with closing(Contributor(config_of(), tmp_path / "me")) as made:
        yield made


@pytest.fixture(scope="module")
def shut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page to which nothing is posted that it takes."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    folder = tmp_path_factory.mktemp("shut")
    with closing(Contributor(config_of(), folder)) as one, closing(Page(one)) as running:
        yield running


def test_a_question_is_asked_until_it_is_settled(one: Contributor, tmp_path: Path) -> None:
    [first] = one.ask("chain_sum")
    assert one.ask("chain_sum") == one.ask() == [first]
    [other] = one.ask("spell_backward")
    assert other.task == "spell_backward"
    assert [entry.round for entry in one.ask(n=3)][:2] == [first.round, other.round]
    one.journal.settle(first.round)
    assert one.ask("chain_sum") != [first]
    with pytest.raises(LookupError):
        one.ask("nothing")
    with pytest.raises(ValueError, match="ask for 1 to"):
        one.ask(n=AT_ONCE + 1)
    for _ in range(3):
        assert len(one.ask(n=AT_ONCE)) == AT_ONCE
    assert len(one.journal.open()) <= AT_ONCE


def test_questions_of_other_texts_come_first(one: Contributor) -> None:
    texts = [entry.question.text for entry in one.ask("spell_backward", 30)]
    assert len(set(texts)) >= 28


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "suite"), [("human", "pond"), ("program", "tagged")])
def test_every_node_admits_what_it_sends(kind: Any, suite: str, tmp_path: Path) -> None:
    config = config_of(tasks={"suite": suite})
    tasks = TasksConfig(suite=suite)
    with (
        closing(Contributor(config, tmp_path / "me", kind, model="a program")) as one,
        Verifier(tasks) as verifier,
    ):
        sent: list[Rollout] = []
        one.member.share = sent.extend  # type: ignore[method-assign,assignment]
        limits = AdmissionLimits(max_characters=16 * 32)
        admission = Admission("reef", LocalExaminer(Tasks(tasks), verifier), limits, num_generations=8)
        rewards = []
        for entry in [*one.ask(n=4), *one.ask("needed", 6), *one.ask("chain_sum", 2)]:
            if entry.round not in {each.round for each in sent}:
                rewards.append(one.answer(entry.round, [f"{entry.round}", "Yes", "4"]).rewards)
        data = [one.member._seal(each) for each in sent]
        assert {open_envelope(each)[0].kind for each in data} == {kind}
        admitted = admission.admit([(one.identity.id, each) for each in data])
        assert not admission.refused
        assert [each.rewards for each in admitted] == rewards
        assert [each.rollout for each in admitted] == sent


def test_answers_that_no_node_takes_are_refused_here(one: Contributor) -> None:
    [entry] = one.ask()
    for answers, why in (
        ([], "from 1 to"),
        (["1"] * 65, "from 1 to"),
        (["1", "  "], "empty"),
        (["1" * 257], "257 characters, and 256"),
        (["\ud800"], "not valid Unicode"),
    ):
        with pytest.raises(ValueError, match=why):
            one.answer(entry.round, answers)
    assert one.journal.open() == [entry]
    with pytest.raises(LookupError):
        one.answer(entry.round + 1, ["1"])


def test_an_answer_between_tags(tmp_path: Path) -> None:
    with closing(Contributor(config_of(tasks={"suite": "tagged"}), tmp_path)) as one:
        [entry] = one.ask("spell_backward")
        right = entry.question.text.split()[-1][::-1]
        entry = one.answer(entry.round, [right, "I guess.\n<answer>No</answer>"])
        assert entry.answers == (f"<answer>{right}</answer>", "I guess.\n<answer>No</answer>")
        assert sorted(entry.rewards) == [0.0, 1.0]


@pytest.mark.parametrize("form", ["tag", "boxed"])
def test_reasoning_stands_before_the_answers_marks(form: str, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from shoal_web.human.server import _question

    tasks = {"sources": [{"name": "spell_backward", "answer": form}]}
    with closing(Contributor(config_of(tasks=tasks), tmp_path)) as one:
        [entry] = one.ask()
        before, after = _question(one, entry)["marks"]
        text = f"I guess.\n{before}{entry.question.text.split()[-1][::-1]}{after}"
        entry = one.answer(entry.round, [text])
        assert (entry.answers, entry.rewards) == ((text,), (1.0,))


@pytest.mark.slow
def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    with closing(Contributor(config_of(), tmp_path)) as one:
        name = one.identity.name
        first, second = one.ask(n=2)
        one.answer(first.round, ["4"])
    with closing(Contributor(config_of(), tmp_path)) as one:
        assert one.identity.name == name
        assert one.ask() == [second]
        assert one.ask(n=2)[1].round > second.round


def test_a_right_answer_is_told_after_ones_own(one: Contributor) -> None:
    [entry] = one.ask("spell_backward")
    assert one.right_answer(entry) is None
    entry = one.answer(entry.round, ["no"])
    assert one.right_answer(entry) == entry.question.text.split()[-1][::-1]


def test_what_nodes_seldom_solve_is_asked_most_and_what_they_always_solve_not_at_all(one: Contributor) -> None:
    known = {label: one.tasks.first(label, 1) for label in ("chain_sum", "spell_backward")}
    for asked, rewards in ((known["chain_sum"], (1.0, 1.0)), (known["spell_backward"], (0.5, 0.0))):
        one._take([Scored(rollout(asked, ["4", "5"], "ada"), asked, rewards)] * HEARD)
    assert one.success() == dict.fromkeys(one.tasks.labels) | {"chain_sum": 1.0, "spell_backward": 0.25}
    drawn = Counter(one._needed() for _ in range(3000))
    assert drawn["spell_backward"] > drawn[(set(one.tasks.labels) - set(known)).pop()] > drawn["chain_sum"] == 0


def test_it_starts_without_torch(tmp_path: Path) -> None:
    script = "import sys, shoal_web.human.command, shoal_web.human.contributor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


# The API


class Page:
    """The server of a contributor, running, and one who asks it."""

    def __init__(self, one: Contributor, token: str | None = None) -> None:
        import uvicorn

        from shoal_web.human.server import make_app
        from shoal_web.serving.guard import Access
        from shoal_web.serving.server import listening

        self.one = one
        self.socket = listening("127.0.0.1", 0, other=False)
        self.port = self.socket.getsockname()[1]
        self.server = uvicorn.Server(
            uvicorn.Config(make_app(one, Access(token=token)), log_level="error", timeout_graceful_shutdown=1)
        )
        self._thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)
        self._thread.start()
        while not self.server.started:
            time.sleep(0.02)

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join(5.0)
        self.socket.close()

    def fetch(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any, Any]:
        """Status, what is said (decoded, if it is JSON) and headers."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, said, heads = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            status, said, heads = error.code, error.read(), error.headers
        is_json = heads.get("content-type") == "application/json"
        return status, json.loads(said) if is_json else said.decode(), heads

    def get(self, path: str) -> Any:
        status, said, _ = self.fetch(path)
        assert status == 200, said
        return said

    def post(self, path: str, body: Any) -> Any:
        status, said, _ = self.fetch(path, body, self.may)
        assert status == 200, said
        return said

    @property
    def may(self) -> dict[str, str]:
        return {"Content-Type": "application/json", "X-Shoal": self.get("/api/state")["word"]}


@pytest.fixture
def page(one: Contributor) -> Iterator[Page]:
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    with closing(Page(one)) as running:
        yield running


def test_a_program_answers_by_the_api(page: Page) -> None:
    state = page.get("/api/state")
    assert state["name"] == page.one.identity.name
    assert state["silo"]
    assert {task["label"] for task in state["tasks"]} == set(page.one.tasks.labels)
    [asked] = page.post("/api/question", {"want": "spell_backward", "n": 1})["questions"]
    right = asked["text"].split()[-1][::-1]
    done = page.post("/api/answer", {"round": asked["round"], "answers": [right, "no"]})
    assert (done["rewards"], done["right"]) == ([1.0, 0.0], right)
    [entry] = page.get("/api/journal")["entries"]
    assert entry == done
    assert page.get(f"/api/journal?before={asked['round']}")["entries"] == []
    [skipped] = page.post("/api/question", {})["questions"]
    page.post("/api/skip", {"round": skipped["round"]})
    assert page.post("/api/question", {})["questions"][0]["round"] > skipped["round"]
    page.one.journal.learned([asked["round"]], Learner("ab" * 32, "ada", 3, 5.0))
    [entry] = page.get("/api/journal")["entries"]
    assert [each["name"] for each in entry["learners"]] == ["ada"]
    assert page.get("/api/state")["totals"] == {"answered": 1, "reward": 0.5, "taught": 1, "learners": 1}


@pytest.mark.parametrize("error", [sqlite3.OperationalError("the disk is full"), UserError("it does not start")])
def test_what_fails_for_now_is_told(page: Page, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    [asked] = page.post("/api/question", {})["questions"]

    def broken(*_: object) -> None:
        raise error

    with monkeypatch.context() as full:
        full.setattr(page.one.journal, "settle", broken)
        place = {"round": asked["round"], "answers": ["4"]}
        assert page.fetch("/api/answer", place, page.may)[:2] == (503, {"error": str(error)})
    assert page.post("/api/answer", place)["answers"] == ["4"]


WRONG: dict[str, tuple[Any, Mapping[str, str], int]] = {
    "without the word": ({"round": 1}, {"X-Shoal": ""}, 403),
    "with another word": ({"round": 1}, {"X-Shoal": "ü"}, 403),
    "as a form": (b"round=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "as text": ({"round": 1}, {"Content-Type": "text/plain"}, 415),
    "from another origin": ({"round": 1}, {"Origin": "http://127.0.0.1:1"}, 403),
    "from nowhere": ({"round": 1}, {"Origin": "null"}, 403),
    "from another site": ({"round": 1}, {"Sec-Fetch-Site": "cross-site"}, 403),
    "from a neighbouring port": ({"round": 1}, {"Sec-Fetch-Site": "same-site"}, 403),
    "under another name": ({"round": 1}, {"Host": "evil.example"}, 421),
    "no JSON": (b"{", {}, 400),
    "another type": ({"round": "1"}, {}, 400),
    "a field too many": ({"round": 1, "who": "eve"}, {}, 400),
    "a number too large": ({"round": 2**70}, {}, 400),
    "nested deeply": (b"[" * 100_000, {}, 400),
    "what is not there": ({"round": 1}, {}, 404),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_to_be_posted(shut: Page, name: str) -> None:
    body, headers, right = WRONG[name]
    status, said, heads = shut.fetch("/api/skip", body, shut.may | dict(headers))
    assert (status, bool(said)) == (right, True), said
    assert "Traceback" not in str(said)
    assert "default-src 'none'" in heads["Content-Security-Policy"]


@pytest.mark.parametrize("n", [0, -1, 99, "1", None])
def test_so_many_questions_are_not_to_be_had(shut: Page, n: object) -> None:
    assert shut.fetch("/api/question", {"n": n}, shut.may)[0] == 400


@pytest.mark.parametrize("path", ["/api/journal?limit=x", "/api/journal?before=-1"])
def test_what_is_not_to_be_asked(shut: Page, path: str) -> None:
    assert shut.fetch(path)[0] == 400
    assert shut.fetch(path, None, {"Host": "evil.example"})[0] == 421
    assert shut.fetch(path, None, {"Sec-Fetch-Site": "cross-site"})[0] == 403


def test_the_page_takes_nothing_from_elsewhere(shut: Page) -> None:
    for path in ("/", "/static/human.js", "/static/human.css", "/static/icon.svg", "/enter"):
        status, said, heads = shut.fetch(path)
        assert status == 200
        assert "innerHTML" not in said
        assert "http" not in said.replace("http://www.w3.org/2000/svg", "")
        assert "default-src 'none'" in heads["Content-Security-Policy"]
    assert shut.fetch("/static/../server.py")[0] == 404
    assert shut.fetch("/", None, {"Host": f"localhost:{shut.port}"})[0] == 200


@pytest.mark.parametrize("how", ["Content-Length: 2000000", "Transfer-Encoding: chunked"])
def test_what_is_too_long_is_not_read(shut: Page, how: str) -> None:
    may = "".join(f"{name}: {value}\r\n" for name, value in shut.may.items())
    with socket.create_connection(("127.0.0.1", shut.port), 30) as link:
        link.sendall(f"POST /api/skip HTTP/1.1\r\nHost: 127.0.0.1\r\n{may}{how}\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            for _ in range(40 if "chunked" in how else 0):
                link.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 413")


def test_other_machines_need_the_token(one: Contributor) -> None:
    pytest.importorskip("uvicorn")
    with closing(Page(one, token="a token that is long")) as page:
        assert page.fetch("/api/state")[0] == 401
        assert "token" in page.fetch("/")[1]
        status, state, _ = page.fetch("/api/state", None, {"Authorization": "Bearer a token that is long"})
        assert status == 200
        word = {"X-Shoal": state["word"], "Content-Type": "application/json"}
        assert page.fetch("/api/skip", {"round": 1}, word)[0] == 401
        assert page.fetch("/api/skip", {"round": 1}, word | {"Authorization": "Bearer a token that is long"})[0] == 404


def test_the_program_in_the_manual_runs(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "guides" / "human.md").read_text()
    program = manual.split("```python\n")[1].split("```")[0]
    exec(program.replace("http://127.0.0.1:8401", f"http://127.0.0.1:{page.port}"), {})
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert page.get("/api/state")["totals"]["answered"] == 4
