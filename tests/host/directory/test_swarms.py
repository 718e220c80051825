"""`shoal announce`, `shoal join --list` and `shoal join NAME`, as a user types them, up to where the node starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from swarm_entries import NOW, directory, send, serving, signed

import shoal.cli.session
import shoal_web.human.command
from shoal.cli.main import main
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.invitations import pinned
from shoal.invitations.entry import DAY
from shoal.invitations.invitation import Invitation, written
from shoal_host.directory.listing import read_directory

Capture = pytest.CaptureFixture[str]
TOML = """
name = "reef"
about = "Easy arithmetic. \\u202e[bold]hello"
relays = ["127.0.0.1:7447"]
rules = ["Be kind."]
[tasks]
suite = "reef"
only = ["products"]
"""
KEY = "ab" * 32


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("time.time", lambda: float(NOW))
    (tmp_path / "reef.toml").write_text(TOML)
    return tmp_path


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The settings of the nodes that would have started."""
    found: list[Config] = []

    def session(config: Config, *_: Any) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr(shoal.cli.session, "join_session", session)
    return found


def complaint(capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


def test_one_command_makes_a_directory_and_its_name_joins(joined: list[Config], capsys: Capture) -> None:
    assert main(["announce", "reef.toml", "--to", "swarms.json"]) == 0
    assert main(["join", "reef", "--directory", "swarms.json", "--rounds", "3"]) == 0
    [config] = joined
    assert (config.network.name, config.network.connect, config.rounds) == ("reef", ["127.0.0.1:7447"], 3)
    assert (config.tasks.suite, config.tasks.only, config.evaluation.judges) == ("reef", ["products"], [])
    said = capsys.readouterr().out
    for part in ("new: the name belongs to this key", "suite reef: products", "127.0.0.1:7447", "Be kind."):
        assert part in said
    assert "[bold]" in said
    assert "\u202e" not in said
    assert main(["join", "reef", "--directory", "swarms.json"]) == 0
    assert "(known)" in capsys.readouterr().out


def test_what_is_listed(capsys: Capture, here: Path) -> None:
    (here / "swarms.json").write_bytes(
        directory(signed(Identity.generate(), name="tide"), signed(Identity.generate(), about="tampered")).replace(
            b"tampered", b"TAMPERED"
        )
    )
    (here / "home").mkdir()
    (here / "home" / "directories").write_text("swarms.json\n")
    assert main(["join", "--list"]) == 0
    said = capsys.readouterr().out
    assert "tide" in said
    assert "relay.example.org:7447" in said
    assert "left out: reef: bad signature" in said
    assert main(["join", "tide", "--list"]) == 0
    assert "Be kind." in capsys.readouterr().out
    assert not (here / "home" / "known_swarms").exists()


def test_flags_go_beside_an_entry_and_not_against_it(joined: list[Config], capsys: Capture, here: Path) -> None:
    main(["announce", "reef.toml", "--to", "swarms.json"])
    words = ["join", "reef", "--directory", "swarms.json"]
    for flags in (["--suite", "pond"], ["--swarm", "other"], ["--task", "gcd"], ["--answer", "tag"]):
        assert "leave out --" in complaint(capsys, *words, *flags)
    assert not (here / "home" / "known_swarms").exists()
    (here / "my.toml").write_text(
        '[tasks]\nsuite = "pond"\n[[tasks.sources]]\nname = "gcd"\n[policy]\ntemperature = 0.5\n'
    )
    assert main([*words, "--config", "my.toml", "--judges", f"http://127.0.0.1:1#{KEY}"]) == 0
    [config] = joined
    assert (config.tasks.suite, config.tasks.sources, config.policy.temperature) == ("reef", [], 0.5)
    assert config.evaluation.judges == [f"http://127.0.0.1:1#{KEY}"]


def test_tasks_that_no_stranger_may_choose(joined: list[Config], capsys: Capture, here: Path) -> None:
    (here / "maths.toml").write_text('name = "maths"\nrelays = ["a.example.org:1"]\nrules = ["--data openai/gsm8k"]\n')
    main(["announce", "maths.toml", "--to", "swarms.json"])
    words = ["join", "maths", "--directory", "swarms.json"]
    assert "give them by --data" in complaint(capsys, *words)
    assert main([*words, "--suite", "paper"]) == 0
    assert joined[0].tasks.suite == "paper"


def test_a_directory_at_a_url_leads_nobody_inside(joined: list[Config], capsys: Capture, here: Path) -> None:
    main(["announce", "reef.toml", "--to", "swarms.json"])
    with serving(lambda handler: send(handler, (here / "swarms.json").read_bytes())) as url:
        assert "127.0.0.1, which is no public address" in complaint(capsys, "join", "reef", "--directory", url)
        assert joined == []
        assert main(["join", "reef", "--directory", url, "--allow-private"]) == 0


def test_words_that_lead_nowhere(capsys: Capture) -> None:
    assert "'reef' is no endpoint: write HOST:PORT" in complaint(capsys, "join", "reef")
    assert "directories" in complaint(capsys, "join", "--list")
    main(["announce", "reef.toml", "--to", "swarms.json"])
    where = ["--directory", "swarms.json"]
    assert "there are reef" in complaint(capsys, "join", "raef", *where)
    assert "stands alone" in complaint(capsys, "join", "reef", "127.0.0.1:1", *where)
    assert "is none" in complaint(capsys, "join", "--list", "127.0.0.1:1", *where)


def test_entries_of_others_are_kept_as_they_are_signed(here: Path, capsys: Capture) -> None:
    theirs = signed(Identity.generate(), name="tide")
    gone = signed(Identity.generate(), name="gone", signed=NOW - 9 * DAY, expires=NOW + 1)
    (here / "theirs.json").write_bytes(directory(theirs, gone))
    main(["announce", "theirs.json", "reef.toml", "--to", "swarms.json"])
    assert [one.entry.name for one in read_directory("swarms.json", NOW).entries] == ["gone", "reef", "tide"]
    (here / "reef.toml").write_text(TOML.replace("7447", "7448"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: NOW + 10.0)
        main(["announce", "reef.toml", "--to", "swarms.json"])
    assert "left out: gone of swarms.json: expired" in capsys.readouterr().out
    found = {one.entry.name: one for one in read_directory("swarms.json", NOW + 10).entries}
    assert found["tide"].signed == theirs
    assert found["reef"].entry.relays == ("127.0.0.1:7448",)
    assert set(found) == {"reef", "tide"}


@pytest.mark.parametrize(
    ("change", "right"),
    [
        (('name = "reef"', ""), "missing required field `name`"),
        (("about", "abaut"), "unknown field `abaut`"),
        (('"127.0.0.1:7447"', '"127.0.0.1"'), "is no endpoint"),
        (('"reef"\nonly', '"raef"\nonly'), "did you mean 'reef'?"),
        (("[tasks]", "[tasks]\nparameters = {max_terms = 9}"), "`parameters`"),
        (("rules", "signed = 5\nrules"), "leave out signed"),
        (("rules", "rules = ["), "is not TOML"),
    ],
)
def test_a_host_is_told_what_is_wrong(change: tuple[str, str], right: str, here: Path, capsys: Capture) -> None:
    (here / "reef.toml").write_text(TOML.replace(*change))
    assert right in complaint(capsys, "announce", "reef.toml", "--to", "swarms.json")
    assert not (here / "swarms.json").exists()


def test_another_key_and_days(here: Path, capsys: Capture) -> None:
    host = Identity.generate()
    path = here / "host.key"
    path.touch(0o600)
    path.write_bytes(host.to_pem())
    main(["announce", "reef.toml", "--to", "swarms.json", "--key", "host.key", "--days", "7"])
    [one] = json.loads((here / "swarms.json").read_text())["entries"]
    assert (one["entry"]["key"], one["entry"]["expires"] - NOW) == (host.id, 7 * DAY)
    assert "--days must be" in complaint(capsys, "announce", "reef.toml", "--to", "x.json", "--days", "401")
    assert "cannot read" in complaint(capsys, "announce", "reef.toml", "--to", "x.json", "--key", "no.key")


def test_an_invitation_joins_and_says_first_what_it_does(joined: list[Config], capsys: Capture, here: Path) -> None:
    host = Identity.generate()
    made = signed(host, relays=("127.0.0.1:7447",), judges=(f"http://127.0.0.1:7448#{KEY}",), about="\u202e[bold]hello")
    word, secret = written(Invitation(made, "correct-horse-battery")), here / "home" / pinned.FOLDER
    assert main(["join", word, "--rounds", "3"]) == 0
    [config] = joined
    assert (config.network.connect, config.tasks.suite) == (["127.0.0.1:7447"], "reef")
    assert config.evaluation.judges == [f"http://127.0.0.1:7448#{KEY}"]
    assert Path(config.network.secret_file).read_text() == "correct-horse-battery\n"
    assert Path(config.network.secret_file).parent == secret
    [said] = capsys.readouterr().out.splitlines()
    for part in ("private swarm reef", host.name, "(key", "new", "connects to 127.0.0.1:7447", "suite reef"):
        assert part in said
    assert main(["join", "--list", word]) == 0
    said = capsys.readouterr().out
    assert "[bold]hello" in said
    assert "\u202e" not in said


def test_a_person_joins_by_an_invitation(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found: list[Config] = []

    def contributor(config: Config, *_: Any) -> None:
        found.append(config)
        raise UserError("enough")

    monkeypatch.setattr(shoal_web.human.command, "Contributor", contributor)
    word = written(Invitation(signed(Identity.generate(), relays=("127.0.0.1:7447",)), "correct-horse-battery"))
    assert "enough" in complaint(capsys, "human", word, "--listen", "127.0.0.1:0", "--display-name", "Ada")
    [config] = found
    assert (config.network.connect, config.network.display_name) == (["127.0.0.1:7447"], "Ada")
    assert (config.tasks.suite, Path(config.network.secret_file).exists()) == ("reef", True)


def test_what_is_wrong_with_an_invitation_is_one_line(joined: list[Config], capsys: Capture, here: Path) -> None:
    word = written(Invitation(signed(Identity.generate(), relays=("127.0.0.1:7447",))))
    assert "copy the whole line" in complaint(capsys, "join", word[:-9])
    assert "not an invitation" in complaint(capsys, "join", word.lower())
    assert "stands alone" in complaint(capsys, "join", word, "127.0.0.1:7447")
    assert "--suite" in complaint(capsys, "join", word, "--suite", "pond")
    assert "expired" in complaint(
        capsys, "join", written(Invitation(signed(Identity.generate(), signed=NOW - 9 * DAY, expires=NOW - DAY)))
    )
    assert main(["join", word]) == 0
    other = written(Invitation(signed(Identity.generate(), relays=("127.0.0.1:7447",))))
    said = complaint(capsys, "join", other)
    assert "ANOTHER HOST" in said
    assert "known_swarms" in said
    assert len(joined) == 1


def test_names_need_a_package_that_knows_directories(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("shoal.cli.swarms.offered", lambda group: {})
    for words in (["reef"], ["--list"]):
        assert main(["join", *words]) == 2
        assert "pip install 'shoal[host]'" in capsys.readouterr().err
