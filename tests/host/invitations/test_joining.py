"""`shoal join --show` and `shoal join INVITATION`, as a user types them, until the node starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from swarm_entries import NOW, signed

import shoal.cli.session
import shoal.cli.swarms
import shoal_web.human.command
from shoal.cli.main import main
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal_host.invitations import joining
from shoal_host.invitations.entry import DAY, EntryTasks
from shoal_host.invitations.invitation import written

Capture = pytest.CaptureFixture[str]
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("time.time", lambda: float(NOW))
    return tmp_path


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The settings of the nodes that would have started."""
    found: list[Config] = []

    def session(config: Config, *_: Any, **__: Any) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr(shoal.cli.session, "run_session", session)
    return found


def complaint(capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


WORD = written(
    signed(
        Identity.generate(),
        about="Easy arithmetic. \u202e[bold]hello",
        relays=("127.0.0.1:7447",),
        tasks=EntryTasks("reef", ("products",)),
        judges=(),
    )
)


def test_an_invitation_joins(joined: list[Config], capsys: Capture, here: Path) -> None:
    assert main(["join", "--show", WORD]) == 0
    said = capsys.readouterr().out
    for part in ("new: once you join, the name belongs to this key", "suite reef: products", "127.0.0.1:7447"):
        assert part in said
    assert "[bold]" in said
    assert "\u202e" not in said
    assert not (here / "home" / joining.FOLDER).exists()
    assert main(["join", WORD, "--rounds", "3"]) == 0
    [config] = joined
    assert (config.network.name, config.network.connect, config.rounds) == ("reef", ["127.0.0.1:7447"], 3)
    assert (config.tasks.suite, config.tasks.only, config.evaluation.judges) == ("reef", ["products"], [])
    assert main(["join", "--show", WORD]) == 0
    assert "(known)" in capsys.readouterr().out


def test_flags_go_beside_an_entry_and_not_against_it(joined: list[Config], capsys: Capture, here: Path) -> None:
    words = ["join", WORD]
    for flags in (["--suite", "pond"], ["--swarm", "other"], ["--task", "gcd"], ["--answer", "tag"]):
        assert "leave out --" in complaint(capsys, *words, *flags)
    assert not (here / "home" / joining.FOLDER).exists()
    (here / "my.toml").write_text(
        '[tasks]\nsuite = "pond"\nanswer = "tag"\n[[tasks.sources]]\nname = "gcd"\n[policy]\ntemperature = 0.5\n'
    )
    assert main([*words, "--config", "my.toml", "--judges", f"http://127.0.0.1:1#{KEY}"]) == 0
    [config] = joined
    assert (config.tasks.suite, config.tasks.sources, config.tasks.answer) == ("reef", [], "task")
    assert config.policy.temperature == 0.5
    assert config.evaluation.judges == [f"http://127.0.0.1:1#{KEY}"]


def test_an_invitation_joins_and_says_first_what_it_does(joined: list[Config], capsys: Capture, here: Path) -> None:
    host = Identity.generate()
    made = signed(
        host,
        "correct-horse-battery",
        relays=("127.0.0.1:7447",),
        judges=(f"http://127.0.0.1:7448#{KEY}",),
        about="\u202e[bold]hello",
    )
    word, secret = written(made), here / "home" / joining.FOLDER
    assert main(["join", word, "--rounds", "3"]) == 0
    [config] = joined
    assert (config.network.connect, config.tasks.suite) == (["127.0.0.1:7447"], "reef")
    assert config.evaluation.judges == [f"http://127.0.0.1:7448#{KEY}"]
    assert Path(config.network.secret_file).read_text() == "correct-horse-battery\n"
    assert Path(config.network.secret_file).parent == secret
    said = capsys.readouterr().out
    for part in ("reef (private)", host.name, ", key", "new", "127.0.0.1:7447", "suite reef"):
        assert part in said
    assert main(["join", "--show", word]) == 0
    said = capsys.readouterr().out
    assert "[bold]hello" in said
    assert "\u202e" not in said


def test_a_person_joins_by_an_invitation(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found: list[Config] = []

    def contributor(config: Config, *_: Any) -> None:
        found.append(config)
        raise UserError("enough")

    monkeypatch.setattr(shoal_web.human.command, "Contributor", contributor)
    word = written(signed(Identity.generate(), "correct-horse-battery", relays=("127.0.0.1:7447",)))
    assert "enough" in complaint(capsys, "human", word, "--listen", "127.0.0.1:0", "--display-name", "Ada")
    [config] = found
    assert (config.network.connect, config.network.display_name) == (["127.0.0.1:7447"], "Ada")
    assert (config.tasks.suite, Path(config.network.secret_file).exists()) == ("reef", True)


def test_what_is_wrong_with_an_invitation_is_one_line(joined: list[Config], capsys: Capture, here: Path) -> None:
    word = written(signed(Identity.generate(), relays=("127.0.0.1:7447",)))
    assert "copy the whole line" in complaint(capsys, "join", word[:-9])
    assert "cut or changed" in complaint(capsys, "join", f"{word[:90]}{'B' if word[90] == 'A' else 'A'}{word[91:]}")
    assert "nothing else" in complaint(capsys, "join", word, "127.0.0.1:7447")
    assert "--suite" in complaint(capsys, "join", word, "--suite", "pond")
    assert "expired" in complaint(
        capsys, "join", written(signed(Identity.generate(), signed=NOW - 9 * DAY, expires=NOW - DAY))
    )
    assert main(["join", word]) == 0
    other = written(signed(Identity.generate(), relays=("127.0.0.1:7447",)))
    said = complaint(capsys, "join", other)
    assert "ANOTHER HOST" in said
    assert str(joining.key_file("reef")) in said
    assert len(joined) == 1


def test_an_invitation_is_read_as_people_paste_it(joined: list[Config]) -> None:
    word = written(signed(Identity.generate(), relays=("127.0.0.1:7447",)))
    pasted = [[word.lower()], ["shoal", "join", word], [f" shoal join {word[:70]}\n{word[70:]} "]]
    for words in [*pasted, [word[:76], word[76:152], word[152:]]]:
        assert main(["join", *words]) == 0
    assert main(["join", "--show", word.removeprefix("SHOAL:")]) == 0
    assert len(joined) == 4


def test_the_core_alone_says_who_reads_invitations(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(shoal.cli.swarms, "offered", lambda group: {})
    assert "needs the package shoal_host" in complaint(capsys, "join", "SHOAL:AAAA")
    assert "needs the package shoal_host" in complaint(capsys, "join", "--show", "SHOAL:AAAA")


def test_an_invitation_with_resume_is_of_the_same_swarm(joined: list[Config], capsys: Capture, here: Path) -> None:
    assert "nothing to resume" in complaint(capsys, "join", WORD, "--resume", "gone")
    kept = {"round": {"nodes": 1}, "network": {"name": "reef", "connect": ["203.0.113.9:7447"]}}
    run = here / "run"
    run.mkdir()
    tasks = {"suite": "reef", "only": ["products"]}
    for other, said in (
        ({"network": {"name": "lagoon"}}, "trains in the swarm 'lagoon', and this invitation is to 'reef'"),
        ({"tasks": {"suite": "pond"}}, "trains on other tasks than this invitation asks for"),
    ):
        settings = {"tasks": tasks, **kept, **other}
        (run / "config.toml").write_text(Config.model_validate(settings).to_toml())
        assert said in complaint(capsys, "join", WORD, "--resume", "run")
    (run / "config.toml").write_text(Config.model_validate(kept | {"tasks": tasks}).to_toml())
    assert main(["join", WORD, "--resume", "run"]) == 0
    assert joined[-1].network.connect == ["127.0.0.1:7447"]
