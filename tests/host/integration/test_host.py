"""`shoal host` as a program: its parts are killed and come back, a second start goes on, and three machines join."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from strangers import Node, Program, program
from test_network import until

pytestmark = [pytest.mark.network, pytest.mark.slow]


def free_ports() -> int:
    """The first of four free ports in a row."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        try:
            with ExitStack() as stack:
                for each in range(port, port + 4):
                    stack.enter_context(socket.create_server(("127.0.0.1", each)))
            return port
        except OSError:
            continue


PART = "shoal_host.host.supervisor"


def children(host: Program) -> dict[str, psutil.Process]:
    """The processes of the parts by their commands."""
    found = [(each, each.cmdline()) for each in psutil.Process(host.process.pid).children()]
    started = [(each, [PART in word for word in words], words) for each, words in found]
    marked = [(each, own.index(True), words) for each, own, words in started if any(own)]  # a child is a copy at first
    return {words[place + 2]: each for each, place, words in marked}


def invitation(host: Program) -> str:
    return re.findall(r"shoal join (SHOAL:[A-Z2-7]+)", host.said)[0]


def answers(port: int, path: str = "") -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def test_parts_come_back_and_a_second_start_goes_on(tmp_path: Path) -> None:
    port, folder = free_ports(), tmp_path / "host"
    words = ("host", folder, "--port", port, "--address", "127.0.0.1", "--private")
    with ExitStack() as stack:
        with program(*words, says="Ctrl-C ends") as host:
            before = children(host)
            assert set(before) == {"relay", "judge", "watch"}
            assert answers(port + 1, "health")
            assert answers(port + 2)

            second = Program(("host", folder))
            assert second.wait() == 2
            assert second.said.count("\n") == 1
            assert f"another `shoal host` runs in {folder}" in second.said

            node = stack.enter_context(Node(tmp_path / "node", invitation(host)))
            until(lambda: node.status.get("links") == 1, 60)
            for each in ("relay", "watch"):
                before[each].kill()
            until(lambda: host.said.count("killed by signal 9): restart 1 in 1 s") == 2)
            until(lambda: set(children(host)) == set(before))
            after = children(host)
            assert {each for each in before if before[each].pid != after[each].pid} == {"relay", "watch"}
            until(lambda: node.status["links"] == 1 and answers(port + 2), 60)

            assert host.stop(signal.SIGINT) == 0
            assert not any(each.is_running() for each in after.values())
            assert "Traceback" not in "".join(path.read_text() for path in (folder / "logs").iterdir())
            until(lambda: node.status["links"] == 0)

        with program("host", folder, says="Ctrl-C ends") as host:  # no flags: they are in the folder
            until(lambda: node.status["links"] == 1)  # the same certificate and secret
            running = children(host)
            assert set(running) == set(before)
            host.process.kill()
            host.wait()
            until(lambda: not any(each.is_running() for each in running.values()))


@contextmanager
def machines(number: int) -> Iterator[list[tuple[str, ...]]]:
    """Network namespaces on one bridge, 10.91.77.1 and so on: what stands before a command to run it there."""
    names = [f"shoal-host-{place}" for place in range(number)]

    def ip(*words: str, check: bool = True) -> None:
        subprocess.run(["ip", *words], check=check, capture_output=True)

    def remove() -> None:
        for name in names:
            ip("netns", "del", name, check=False)
        ip("link", "del", "shoalbr", check=False)

    remove()
    try:
        ip("link", "add", "shoalbr", "type", "bridge")
        ip("link", "set", "shoalbr", "up")
        for place, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"shoalv{place}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"shoalv{place}", "master", "shoalbr", "up")
            ip("-n", name, "addr", "add", f"10.91.77.{place + 1}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield [("ip", "netns", "exec", name, sys.executable, "-u", "-m", "shoal") for name in names]
    finally:
        remove()


class Elsewhere(Node):
    """A node on one of the machines."""

    def __init__(self, command: Sequence[str], folder: Path, *words: object) -> None:
        super().__init__(folder, *words)
        self.command = command

    def start(self, *words: object) -> None:
        running = program("join", *words, home=self.folder / "home", command=self.command)
        self.program = self._stack.enter_context(running)


def may_make_machines() -> bool:
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", "shoal-host-trial"], capture_output=True)
    subprocess.run(["ip", "netns", "del", "shoal-host-trial"], capture_output=True)
    link = subprocess.run(["ip", "link", "add", "shoaltrial", "type", "bridge"], capture_output=True)
    subprocess.run(["ip", "link", "del", "shoaltrial"], capture_output=True)
    return made.returncode == link.returncode == 0


@pytest.mark.skipif(not may_make_machines(), reason="needs root and network namespaces")
def test_three_machines_join_by_the_line(tmp_path: Path) -> None:
    with machines(4) as (host, *others), ExitStack() as stack:
        words = ("host", tmp_path / "host", "--address", "10.91.77.1", "--swarm", "lagoon")
        running = stack.enter_context(program(*words, command=host, says="Ctrl-C ends"))
        began = time.monotonic()
        nodes = [
            stack.enter_context(Elsewhere(command, tmp_path / f"{place}", invitation(running)))
            for place, command in enumerate(others)
        ]

        def heard(node: Node) -> bool:
            status = node.status
            return status.get("peers") == 2 and sum(peer["admitted"] > 0 for peer in status["admission"]["peers"]) == 2

        until(lambda: all(map(heard, nodes)), 240)
        print(f"three machines learn from each other after {time.monotonic() - began:.0f} s")
        for node in nodes:
            assert "tls/10.91.77.1:7447" in node.program.said
            assert "judge" not in node.status["note"]
