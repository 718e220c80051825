"""What a node relies on, whatever carries its messages."""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from local_examiner import LocalExaminer
from test_network import free_port, until

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.membership.connection import SwarmConnection
from shoal.membership.settings import check_network, secret_of
from shoal.rollout import Answer, Completion, QuestionId, Rollout, Scored
from shoal.tasks import Tasks
from shoal.wire.notices import Notice
from shoal.wire.rollouts import seal

PAGE = Path(__file__).parents[3] / "docs" / "extend" / "transport.md"
SWARM = "lagoon"
TASKS = Tasks(TasksConfig())
MakeNode = Callable[..., "Node"]


class Half:
    """A verifier by which every second text is right."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[Answer]]]) -> list[list[float]]:
        return [[float(number % 2) for number, _ in enumerate(texts)] for _, texts in items]

    trouble = ""


class Node(SwarmConnection):
    """A connection that examines in this process, and gathers what it receives."""

    def __init__(self, network: dict[str, Any], **options: Any) -> None:
        identity, config = Identity.generate(), Config.model_validate({"network": {"name": SWARM, **network}})
        examiner, secret = LocalExaminer(TASKS, Half()), secret_of(config)
        admission = Admission(
            config.network.name,
            examiner,
            AdmissionLimits.of(config),
            num_generations=8,
            secret=secret,
            own=identity.public,
        )
        self.round, self.got = 0, list[Scored]()
        super().__init__(config, identity, admission=admission, **options)

    def rollout(self, texts: Sequence[str] = ("a", "b")) -> Rollout:
        """The next honest one."""
        self.round += 1
        question = TASKS.draw(1, self.swarm, self.identity.id, self.round)[0]
        completions = tuple(map(Completion.of, texts))
        return Rollout(question.id, question.hash, completions, self.identity.name, self.round)

    def got_from(self, other: Node) -> list[int]:
        self.got += self.receive()
        return [scored.rollout.round for scored in self.got if scored.rollout.node == other.identity.name]


def words(transport: str, folder: Path, ports: tuple[int, int]) -> list[dict[str, Any]]:
    """The settings of two nodes."""
    here, there = (f"127.0.0.1:{port}" for port in ports)
    return {
        "zenoh": [{"listen": [here]}, {"connect": [here]}],
        "memory": [{"connect": [f"memory://{folder}"]}] * 2,
        "place": [{"connect": [str(folder)]}, {"connect": [str(folder)]}],
        "own_transport:Datagrams": [{"listen": [here], "connect": [there]}, {"listen": [there], "connect": [here]}],
    }[transport]


@pytest.fixture(params=["memory", "place", "own_transport:Datagrams", "zenoh"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeNode]:
    """Makes the first or second node with each transport; one's own is the example of the page."""
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 40
    (tmp_path / "own_transport.py").write_text(example)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("own_transport", None)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    shared = tmp_path / "shared"
    shared.mkdir()
    two = words(request.param, shared, (free_port(), free_port()))
    with ExitStack() as stack:

        def node(number: int, options: dict[str, Any] | None = None, **network: Any) -> Node:
            settings = {"transport": request.param.replace("memory", "place"), **two[number], **network}
            return stack.enter_context(closing(Node(settings, **options or {})))

        yield node


@pytest.mark.parametrize("private", [False, True])
def test_nodes_share_what_they_tried_signed_and_admitted(make: MakeNode, tmp_path: Path, private: bool) -> None:
    secret = {}
    if private:
        (tmp_path / "secret").write_text("a secret of ours")
        secret = {"secret_file": str(tmp_path / "secret")}
    notices: list[Notice] = []
    ada, bob = make(0, {"on_notice": notices.append}, **secret), make(1, **secret)

    def both() -> bool:
        ada.share([ada.rollout()])
        bob.share([bob.rollout()])
        bob.tell({"round": 3, "reward/local": 0.5}, [], {ada.identity.name: (8, 0.25)})
        time.sleep(0.05)
        return bool(ada.got_from(bob) and bob.got_from(ada) and notices)

    until(both)
    assert ada.got[0].rewards == (0.0, 1.0)
    assert notices[0].key == bob.identity.public
    assert (ada.faults, bob.faults) == (0, 0)
    until(lambda: not ada.status()["silo"])
    status = ada.status()
    assert status["limited_by"] == {bob.identity.name: (8, 0.25)}, "who is limited is told"
    assert bob.status()["limited_by"] == {}
    assert (status["peers"], status["note"], status["private"]) == (1, "", private)
    assert set(status["neighbours"]) <= {bob.secret.address(bob.identity.id)}


def test_what_is_forged_or_changed_is_refused(make: MakeNode) -> None:
    """The transport tells it on, and nobody has to trust it."""
    ada, eve = make(0), make(1)
    forged = seal(ada.rollout(), Identity.generate(), SWARM, time.time())
    changed = seal(eve.rollout(), eve.identity, SWARM, time.time()).replace(b"text", b"tfxt")
    other = seal(eve.rollout(), eve.identity, "other", time.time())

    def all_refused() -> bool:
        for data in (forged, changed, other, b"garbage %d" % time.monotonic_ns()):
            eve.transport.publish("rollouts", data)
        time.sleep(0.05)
        return ada.admission.refused.keys() >= {"key", "malformed", "swarm"}

    until(lambda: eve.transport.wait_open(0.1))
    until(all_refused)
    assert ada.receive() == []
    assert ada.faults == 0


def test_who_joins_late_gets_what_came_last_where_it_is_kept(make: MakeNode, request: pytest.FixtureRequest) -> None:
    ada = make(0)
    ada.share([ada.rollout() for _ in range(4)])
    until(lambda: ada.status()["sent"]["messages"] == 4)
    bob = make(1)
    if ada.config.network.transport in ("zenoh", "place"):
        until(lambda: sorted(bob.got_from(ada)) == [1, 2, 3, 4])
    else:
        assert bob.got_from(ada) == []


def test_a_transport_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def make(network, context):\n    return object()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"lacks check, close, .* \(see shoal\.transports\.base\.Transport"):
        Node({"transport": "mine:make"})
    with pytest.raises(UserError, match="there is no transport 'pigeons'; choose from place, zenoh"):
        check_network(Config.model_validate({"network": {"transport": "pigeons"}}))


HALF = """from shoal.transports.base import Presence, Transport
class Half(Transport):
    def presence(self): return Presence(peers=1)
    def close(self): pass
class Full(Half):
    def publish(self, channel, data): raise OSError("the disk is full")
class Taken(Full):
    def __init__(self, network, context): raise OSError("address already in use")
"""


def test_what_is_wrong_with_a_transport_of_ones_own_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half.py").write_text(HALF)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"transport 'half:Half' lacks publish"):
        check_network(Config.model_validate({"network": {"transport": "half:Half"}}))
    with closing(Node({"transport": "half:Full"})) as node:
        node.share([node.rollout()])
        until(lambda: node.faults > 0)
        assert node.status()["first_fault"].endswith("OSError: the disk is full")
    with pytest.raises(UserError, match=r"^transport 'half:Taken' cannot be made: OSError: address already in use$"):
        Node({"transport": "half:Taken"})


def test_a_transport_of_ones_own_refuses_settings_before_anything_is_opened(make: MakeNode) -> None:
    network = Config.model_validate({"network": {"transport": "own_transport:Datagrams"}})
    with pytest.raises(UserError, match="datagrams need the addresses of others, and --listen HOST:PORT"):
        check_network(network)


def test_who_signs_for_another_time_is_named(make: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever carries the messages."""
    ada, bob = make(0), make(1)
    sealed = [seal(bob.rollout(), bob.identity, SWARM, time.time() + 300) for _ in range(99)]

    def named() -> bool:
        bob.transport.publish("rollouts", sealed.pop())
        time.sleep(0.05)
        return bool(ada.admission.refused["future"])

    until(lambda: bob.transport.wait_open(0.1))
    until(named)
    status = ada.status()
    assert f"a clock is wrong: that of {bob.identity.name} is about 5 min ahead of this machine's" in status["note"]
    assert status["warning"] == ada.admission.clocks.warning


def test_a_node_without_peers_says_so(tmp_path: Path) -> None:
    with closing(Node({"connect": [str(tmp_path)]})) as alone:
        nobody = f"alone: nobody else has added anything to {tmp_path} of late; training goes on"
        until(lambda: alone.status()["note"] == nobody)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="another program listens"):
            Node({"listen": [f"127.0.0.1:{taken.getsockname()[1]}"]})
