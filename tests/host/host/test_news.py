"""What a host reads in its terminal: who came, left, is silent or limited, and a summary each minute."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shoal_host.host.news import MOST, News


class Swarm:
    """A live swarm by hand. Its clock goes when it is told."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.nodes: dict[str, dict[str, Any]] = {}
        self.said: list[str] = []
        self.log = folder / "relay.log"
        source: Any = SimpleNamespace(summary=self.summary)
        self.news = News(source, self.log, lambda line: self.said.append(line[10:]), lambda: self.now)

    def summary(self) -> dict[str, Any]:
        return {"nodes": [node | {"ago": self.now - node["at"]} for node in self.nodes.values()]}

    def hear(self, name: str, round: int, left: bool = False) -> None:
        self.nodes[name] = {
            "id": name, "name": name, "display_name": "", "round": round, "left": left, "at": self.now
        }  # fmt: skip

    def wait(self, seconds: float) -> list[str]:
        """What is said meanwhile."""
        self.said.clear()
        for _ in range(round(seconds)):
            self.now += 1
            self.news.look()
        return list(self.said)


def test_nodes_come_fall_silent_return_and_leave(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    swarm.hear("otter", 1)
    assert swarm.wait(2) == ["otter came"]
    swarm.hear("otter", 2)
    said = swarm.wait(70)
    assert "otter is silent for 61 s" in said
    assert said.count("1 node; 1 round in the last minute") == 1
    swarm.hear("otter", 3)
    assert swarm.wait(2) == ["otter is back after 70 s"]
    swarm.hear("otter", 3, left=True)
    assert swarm.wait(2) == ["otter left after round 3"]
    assert not [line for line in swarm.wait(300) if "otter" in line]
    swarm.hear("otter", 4)
    assert swarm.wait(2) == ["otter came again"]


def test_a_node_whose_rounds_take_long_is_not_silent(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    said = []
    for round in range(5):
        swarm.hear("slow", round)
        said += swarm.wait(50)
    assert not [line for line in said + swarm.wait(120) if "is silent" in line]
    assert [line for line in swarm.wait(100) if "is silent" in line]


def test_many_keys_do_not_flood_the_terminal(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    for number in range(500):
        swarm.hear(f"key-{number}", 1)
    said = swarm.wait(60)
    assert len([line for line in said if line.endswith("came")]) == MOST
    assert "480 lines more than 20 were left out" in said[-1]


def test_whom_the_relay_limits_is_said_in_the_relays_words(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    swarm.log.write_bytes(b"relay on tls/0.0.0.0:7447\nlimits 203.0.113.7: too many of one address\nup 0:01:00, conn")
    assert swarm.wait(2) == ["the relay limits 203.0.113.7: too many of one address"]
    swarm.log.write_bytes(swarm.log.read_bytes() + b"ections: 3\nlimits \x1b[2J: too many\n")
    [line] = swarm.wait(2)
    assert "\x1b" not in line
    assert "relay, with this host's own: connections: 3" in swarm.wait(70)[-1]
    swarm.log.unlink()
    assert swarm.wait(2) == []


def test_an_error_in_the_news_is_said_once_and_ends_no_host(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    swarm.nodes["odd"] = {"id": "odd", "at": 1000.0}
    assert swarm.wait(3) == ["lines may be missing here, as something failed: KeyError: 'round'"]
    swarm.nodes.clear()
    swarm.hear("otter", 1)
    assert swarm.wait(2) == ["otter came"]
