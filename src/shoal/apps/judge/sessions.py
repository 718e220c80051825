"""The nodes and their questions, as a judge has them in memory: bounded, whatever strangers do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shoal.apps.judge.addresses import Meter
from shoal.rollout import QuestionId

PENALTY = 8
"""Answers that were no trouble to score, for each time more, after which a troublesome node's are scored with the
others' again."""


class Stage(StrEnum):
    """How far a question is."""

    drawing = "drawing"
    """It was granted, and is not yet on disk."""
    open = "open"
    """It is on disk, and may have reached the node."""
    answered = "answered"
    """Its answer has come in time."""
    scored = "scored"
    lapsed = "lapsed"
    """No answer came in time. It counts as wrong: else who does not like a question would wait for the next."""
    void = "void"
    """No answer came, and the judge was down meanwhile. It does not count, and is kept."""


DONE = {Stage.scored, Stage.lapsed, Stage.void}


@dataclass(slots=True)
class Session:
    """One question that one node was granted."""

    id: int
    key: bytes
    number: int
    round: int
    model: str
    in_swarm: bool
    ask: bytes
    """Hash of the Ask."""
    asked: float
    expires: float
    """As it was told to the node."""
    deadline: float
    """As it is held to; later than `expires` if the judge was down."""
    stage: Stage = Stage.drawing
    task: str = ""
    question: QuestionId | None = None
    posed: bytes = b""
    """Hash of the Posed."""
    answer: bytes = b""
    """Hash of the Answer."""
    score: float = 0.0
    settled: float = 0.0
    """When it was scored, lapsed or void."""
    interrupted: bool = False


@dataclass(slots=True)
class Node:
    """What a judge knows of one key."""

    key: bytes
    pace: Meter
    questions: int = 0
    """It had so far."""
    round: int = -1
    """The last one after which it asked."""
    session: Session | None = None
    """Its last question."""
    clean: int = 0
    """Answers in a row that were no trouble to score; below 0 while it is not trusted."""
    troubles: int = 0

    @property
    def busy(self) -> bool:
        return self.session is not None and self.session.stage not in DONE

    @property
    def trusted(self) -> bool:
        """Whether its answers are scored together with those of others that never were any trouble."""
        return self.clean > 0

    def scored(self, trouble: bool) -> None:
        if trouble:
            self.troubles = min(self.troubles + 1, 6)
            self.clean = 1 - PENALTY**self.troubles
        else:
            self.clean += 1


class Nodes:
    """The nodes that were heard of last, above what is on disk of all. Those with a question under way stay."""

    def __init__(self, size: int, load: Callable[[bytes], Node | None]) -> None:
        self.size, self._load = size, load
        self._nodes: OrderedDict[bytes, Node] = OrderedDict()

    def find(self, key: bytes) -> Node | None:
        """The node with `key`, or None if it is new."""
        node = self._nodes.get(key)
        if node is None:
            node = self._load(key)
            if node is None:
                return None
            self.put(node)
        self._nodes.move_to_end(key)
        return node

    def put(self, node: Node) -> None:
        self._nodes[node.key] = node
        looked = 0
        while len(self._nodes) > self.size and looked < 64:
            key, oldest = self._nodes.popitem(last=False)
            looked += 1
            if oldest.busy:
                self._nodes[key] = oldest

    def drop(self, key: bytes) -> None:
        """Forgets it, so that the next look is at the disk."""
        self._nodes.pop(key, None)

    def __len__(self) -> int:
        return len(self._nodes)
