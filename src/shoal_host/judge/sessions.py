"""The nodes and their questions in a judge's memory: bounded, whatever strangers do."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from shoal.admission.bounded import Bucket
from shoal.rollout import QuestionId

PENALTY = 8
"""A node that was trouble to score n times (slow or fatal) is trusted again after PENALTY**n answers without any."""


class Stage(StrEnum):
    """How far a question is."""

    drawing = "drawing"
    """Granted, and not yet on disk."""
    open = "open"
    """On disk; the node may have it."""
    answered = "answered"
    """The answer came in time."""
    scored = "scored"
    lapsed = "lapsed"
    """No answer came in time. It counts as wrong: otherwise a node could wait for a question that it likes."""
    void = "void"
    """No answer came, and the judge was down meanwhile. It is kept and does not count."""


DONE = {Stage.scored, Stage.lapsed, Stage.void}


@dataclass(slots=True)
class Session:
    """One question that was granted to one node."""

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
    """As the node knows it."""
    deadline: float
    """As the judge enforces it: later than `expires` if the judge was down."""
    stage: Stage = Stage.drawing
    task: str = ""
    question: QuestionId | None = None
    posed: bytes = b""
    """Hash of the Posed."""
    answer: bytes = b""
    """Hash of the Answer."""
    score: float = 0.0
    settled: float = 0.0
    """When it was scored, lapsed or became void."""
    interrupted: bool = False


@dataclass(slots=True)
class Node:
    """What a judge knows about one key."""

    key: bytes
    pace: Bucket
    questions: int = 0
    """Its questions so far."""
    round: int = -1
    """The last round after which it asked."""
    session: Session | None = None
    """Its last question."""
    clean: int = 0
    """Answers in a row that were no trouble to score; 0 or less while the node is not trusted."""
    troubles: int = 0

    @property
    def busy(self) -> bool:
        return self.session is not None and self.session.stage not in DONE

    @property
    def trusted(self) -> bool:
        """Whether its answers are scored together with those of other nodes that are no trouble."""
        return self.clean > 0

    def scored(self, trouble: bool) -> None:
        """One more answer has been scored. `trouble`: that took too long, or killed the scorer."""
        if trouble:
            self.troubles = min(self.troubles + 1, 6)
            self.clean = 1 - PENALTY**self.troubles
        else:
            self.clean += 1


class Nodes:
    """The nodes that asked last, out of all nodes on disk. Those with an open question stay."""

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
        for _ in range(64):
            if len(self._nodes) <= self.size:
                return
            key, oldest = self._nodes.popitem(last=False)
            if oldest.busy:
                self._nodes[key] = oldest

    def drop(self, key: bytes) -> None:
        """Forgets a node, so that it is read from disk next time."""
        self._nodes.pop(key, None)

    def __len__(self) -> int:
        return len(self._nodes)
