"""`shoal host` without its processes: settings, keys, the commands of its parts, the invitation."""

from __future__ import annotations

import io
import os
import socket
import ssl
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shoal.cli.main import _parser, main
from shoal.config.load import make_config
from shoal.errors import UserError
from shoal_host.host import keys as host_keys_file
from shoal_host.host.command import invite, show
from shoal_host.host.keys import host_keys
from shoal_host.host.parts import parts_of
from shoal_host.host.settings import HostSettings, keep, settled
from shoal_host.host.supervisor import COMMAND, Supervisor
from shoal_host.invitations.invitation import read_invitation

Capture = pytest.CaptureFixture[str]


def made(folder: Path, **given: Any) -> tuple[HostSettings, Any]:
    settings = settled(folder, {"addresses": ("192.0.2.7",), **given})
    return settings, host_keys(folder, settings.reached, settings.private)


def test_a_second_start_needs_no_flags_and_changes_no_key(tmp_path: Path) -> None:
    settings, keys = made(tmp_path, swarm="club", private=True, human=True, port=9000)
    keep(tmp_path, settings)
    word = invite(tmp_path, settings, keys)
    again = settled(tmp_path, {})
    assert again == settings
    same = host_keys(tmp_path, again.reached, again.private)
    first, second = (read_invitation(each, time.time()) for each in (word, invite(tmp_path, again, same)))
    assert (first.secret, first.entry.key, first.entry.certificate) == (
        second.secret,
        second.entry.key,
        second.entry.certificate,
    )
    assert first.entry.judges == second.entry.judges
    assert settled(tmp_path, {"human": False}).human is False


def test_two_new_hosts_have_two_names_and_each_keeps_its_own(tmp_path: Path) -> None:
    """Whoever joins keeps a name with its host's key, and refuses another host of that name."""
    first, second = settled(tmp_path, {}), settled(tmp_path, {})
    assert first.swarm != second.swarm
    keep(tmp_path, first)
    assert settled(tmp_path, {}) == first


def test_the_folder_keeps_its_secrets(tmp_path: Path) -> None:
    settings, keys = made(tmp_path, private=True)
    invite(tmp_path, settings, keys)
    for name in ("identity", "relay.key", "secret", "token", "invitation", "judge/identity"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_a_new_address_takes_a_new_certificate_and_nothing_else(tmp_path: Path) -> None:
    _, keys = made(tmp_path)
    other = host_keys(tmp_path, ["swarm.example.org", "192.0.2.8"], private=False)
    assert other.fingerprint != keys.fingerprint
    assert other.identity.id == keys.identity.id
    assert host_keys(tmp_path, ["192.0.2.8"], private=False).fingerprint == other.fingerprint


def test_key_and_certificate_fit_after_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    write = host_keys_file.replace

    def interrupted(path: Path, data: bytes) -> None:
        write(path, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(host_keys_file, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path, addresses=("192.0.2.8",))
    _, keys = made(tmp_path)  # at the old address again
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(keys.certificate, keys.certificate_key)


def test_who_is_invited_gets_all_that_a_node_needs(tmp_path: Path) -> None:
    settings, keys = made(tmp_path, swarm="club", suite="reef", only=("products",), about="Hello.", answer="strict")
    entry = read_invitation(invite(tmp_path, settings, keys), time.time()).entry
    config = make_config(entry.settings, "the invitation")
    assert config.network.connect == ["tls/192.0.2.7:7447"]
    assert config.evaluation.judges == [f"http://192.0.2.7:7448#{keys.judge.id}"]
    assert (config.tasks.suite, config.tasks.only, config.network.name) == ("reef", ["products"], "club")
    assert config.tasks.answer == "strict"
    assert "with strict answers" in str(entry.tasks)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"human": True, "private": True, "only": ("chain_sum", "spell_backward"), "pages": "0.0.0.0"},
        {"addresses": ("::1",)},
        {"human": True, "answer": "strict"},
    ],
)
def test_shoal_knows_the_command_of_each_part(tmp_path: Path, given: dict[str, Any]) -> None:
    settings, keys = made(tmp_path, **given)
    parts = parts_of(tmp_path, settings, keys)
    assert [part.name for part in parts] == ["relay", "judge", "window", "human"][: 4 if settings.human else 3]
    assert [part.port for part in parts] == list(range(7447, 7447 + len(parts)))
    for part in parts:
        args = _parser(part.words).parse(part.words)
        assert args.command
        assert str(keys.secret_file) in part.words or not settings.private or part.name in ("relay", "judge")
        assert (str(keys.token) in part.words) == (settings.pages != "127.0.0.1" and part.name in ("window", "human"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--swarm", "My Swarm"), "small letters"),
        (("--port", "80"), "1024"),
        (("--suite", "no-such"), "no-such"),
        (("--task", "no-such"), "no-such"),
        (("--address", "a b"), "addresses"),
        (("--suite", "games", "--answer", "strict"), "not for games"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, capsys: Capture, words: tuple[str, ...], told: str) -> None:
    assert main(["host", str(tmp_path / "host"), *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "host").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "thesis.tex").touch()
    assert main(["host", str(tmp_path)]) == 2
    assert "not the folder of a host" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings, keys = made(tmp_path, port=taken.getsockname()[1] - 1, addresses=("127.0.0.1",))
        relay, judge, _ = parts_of(tmp_path, settings, keys)
        relay.check_port()
        with pytest.raises(UserError, match=rf"the judge cannot have port {settings.port + 1} .*--port"):
            judge.check_port()
        assert judge.is_ready()
        assert not relay.is_ready()


def test_a_damaged_certificate_is_told(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "relay.pem").write_text("nonsense")
    with pytest.raises(UserError, match="no certificate that can be read"):
        made(tmp_path)


def test_the_invitation_is_shown_and_kept(tmp_path: Path) -> None:
    settings, keys = made(tmp_path, private=True, swarm="a-swarm-of-a-usual-name", suite="reef")
    word = invite(tmp_path, settings, keys)
    assert (tmp_path / "invitation").read_text() == word + "\n"
    out = Console(file=io.StringIO(), force_terminal=True, width=80, soft_wrap=True, highlight=False)
    show(out, tmp_path, settings, parts_of(tmp_path, settings, keys), word)
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert f"shoal join {word}\n" in said
    assert "members alone" in said


def test_a_part_that_cannot_start_waits_longer_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that fails at once is told in one line each time, with the last line of its log."""
    settings, keys = made(tmp_path)
    part = parts_of(tmp_path, settings, keys)[0]
    said: list[str] = []
    monkeypatch.setattr(
        "shoal_host.host.supervisor.COMMAND", (sys.executable, "-c", "print('no'); raise SystemExit(2)")
    )
    now = [0.0]
    monkeypatch.setattr("shoal_host.host.supervisor.time.monotonic", lambda: now[0])
    with Supervisor([part], tmp_path, said.append) as supervisor:
        [one] = supervisor.parts
        for life in range(8):
            one.look(said.append)  # starts it
            assert one.process is not None
            os.waitid(os.P_PID, one.process.pid, os.WEXITED | os.WNOWAIT)
            one.look(said.append)  # sees its end
            assert one.restarts == life + 1
            now[0] += 60.0
    assert [line.partition(" in ")[2].partition(" s;")[0] for line in said] == "1 2 4 8 16 32 60 60".split()
    assert said[2] == f"the relay ended (exit 2: no): restart 3 in 4 s; see {tmp_path / 'relay.log'}"


def test_a_log_that_is_gone_or_cannot_be_written_ends_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part waits, however often it fails, and the others go on."""
    settings, keys = made(tmp_path)
    part = parts_of(tmp_path, settings, keys)[0]
    said: list[str] = []
    script = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'end')!r}): time.sleep(0.01)\nexit(1)"
    monkeypatch.setattr("shoal_host.host.supervisor.COMMAND", (sys.executable, "-c", script))
    now = [0.0]
    monkeypatch.setattr("shoal_host.host.supervisor.time.monotonic", lambda: now[0])
    with Supervisor([part], tmp_path, said.append) as supervisor:
        [one] = supervisor.parts
        one.start()
        one.log.unlink()
        one.look(said.append)
        assert one.process is not None
        (tmp_path / "end").touch()
        os.waitid(os.P_PID, one.process.pid, os.WEXITED | os.WNOWAIT)
        one.look(said.append)
        one.log.mkdir()
        for _ in range(1100):
            now[0] += 60.0
            one.look(said.append)
        assert one.process is None
        one.log.rmdir()
        now[0] += 60.0
        one.look(said.append)
        assert one.process is not None
    assert said[0] == f"the relay ended (exit 1: its log is gone): restart 1 in 1 s; see {one.log}"
    assert said[1].startswith("cannot start the relay: ")
    assert "restart 1101 in 60 s" in said[-1]


@pytest.mark.slow
def test_a_part_whose_supervisor_is_gone_before_it_begins_ends(tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    ).stdout
    port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
    words = [*COMMAND, gone.strip(), "relay", "--listen", f"127.0.0.1:{port}"]
    with open(os.devnull, "wb") as nowhere:
        assert subprocess.Popen(words, stdout=nowhere, stderr=nowhere).wait(60) == 1


def test_a_swarm_of_pictures_or_games_has_no_judge(tmp_path: Path) -> None:
    for suite, task in (("games", "guess"), ("pictures", "count_dots")):
        (tmp_path / suite).mkdir()
        settings, keys = made(tmp_path / suite, suite=suite)
        assert settings.unjudged == task
        parts = parts_of(tmp_path / suite, settings, keys)
        assert [part.name for part in parts] == ["relay", "window"]
        assert not any("judge" in word for part in parts for word in part.words)
        assert read_invitation(invite(tmp_path / suite, settings, keys), time.time()).entry.judges == ()
    assert settled(tmp_path, {}).unjudged == ""
