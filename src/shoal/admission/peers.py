"""What a node remembers of each key that sent it something, and of peers whose tasks are others."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from shoal.admission.bounded import Bucket
from shoal.admission.limits import AdmissionLimits
from shoal.identity.keys import name_of
from shoal.rollout import QuestionId
from shoal.untrusted import printable
from shoal.wire.rollouts import Kind
from shoal.wire.signed import OLD

PERIOD = 600.0  # seconds; however much a key sends within a period, it counts once towards being known
KNOWN = 12  # periods with a useful rollout after which a key is known: two hours at least
FUTURE = 60.0  # seconds that a maker's clock may be ahead
PAUSE = 60.0  # seconds for which a key's rollouts of a task are refused after one on which the task took too long
STRIKES = 5.0  # broken rules, minus one per minute, after which a key is muted
YIELD = 3600.0  # seconds of silence after which a key that is not known gives its name up to another
MAX_PEERS, MAX_STRANGERS = 4096, 1024  # keys that are remembered, and how many of them may be strangers
ROUNDS = 256  # newest rounds of a key for which is remembered what came; older ones count as replays
BEHIND = 64  # rounds before the first one heard of a key that may still come
LEAP = 64  # rounds that a key may advance in each second: more would let it choose its questions
AT_ONCE = 1024  # rounds that it may be ahead of that: the last rollouts of a node that shares few come in one instant
LASTING = (
    "latest",
    "last",
    "admitted",
    "periods",
    "period",
    "refused",
    "offences",
    "mutes",
    "muted_until",
    "signed",
    "life",
)
MOST_DIFFERING: Final = 64  # peers that are remembered
SHOWN: Final = 12  # characters of a version


class SeenRounds:
    """Which (round, slot) of one key have come, for its newest `size` rounds. Older rounds count as seen."""

    def __init__(self, size: int, floor: int = -1) -> None:
        self.size = size
        self.floor = floor
        """Rounds up to this one count as seen."""
        self.rounds: dict[int, int] = {}
        """For each later round: its slots, as the bits of a number."""

    def has(self, round: int, slot: int) -> bool:
        return round <= self.floor or bool(self.rounds.get(round, 0) >> slot & 1)

    def add(self, round: int, slot: int) -> None:
        self.rounds[round] = self.rounds.get(round, 0) | 1 << slot
        if round - self.size > self.floor:
            self.floor = round - self.size
            self.rounds = {r: slots for r, slots in self.rounds.items() if r > self.floor}


class Peer:
    """The record of one key: what it sent, what was refused, and whether it is muted."""

    def __init__(self, limits: AdmissionLimits, now: float) -> None:
        self._limits = limits
        self.bucket = Bucket(limits.peer_rate, 4 * limits.peer_rate, now)
        self.seen = SeenRounds(ROUNDS)
        self.kind: Kind = "model"
        """What answers there, by its own word."""
        self.display_name = ""
        """What its owner calls it."""
        self._late = limits.max_seconds > OLD
        self.signed = self.life = 0.0
        """When its newest message was signed, and the last one before it began again."""
        self.latest: int | None = None
        """Its newest round."""
        self.last = now
        self.admitted = 0
        self.periods = 0
        """Periods in which a useful rollout was admitted."""
        self.period = -1
        """The last of them."""
        self.refused: Counter[str] = Counter()
        self.offences = 0
        self.mutes = 0
        self.muted_until = 0.0
        self._ahead = float(AT_ONCE)
        """Rounds that it may advance besides those for the time since it was heard."""
        self._strikes, self._struck = 0.0, now
        self._slow: dict[str, float] = {}
        """Tasks that took too long with its answers, and when they did."""

    @property
    def known(self) -> bool:
        """Whether it has sent useful rollouts for hours."""
        return self.periods >= KNOWN

    def begin(self, round: int, now: float, signed: float) -> None:
        """Starts counting at `round`, if the key is new or all that it sent before is too old to come again. A node
        that lost its folder begins at an earlier round; only time lets a key advance. In a place, where messages come
        late, the times at which they were `signed` say so."""
        if self.latest is not None and self._late:
            began_again = round < self.latest and signed > self.signed + OLD
            self.life = self.signed if began_again else self.life
        else:
            began_again = now - self.last > self._limits.max_seconds + FUTURE
        if self.latest is None or began_again:
            self.seen = SeenRounds(ROUNDS, floor=round - BEHIND - 1)
            self.latest = round if self.latest is None else min(round, self.latest)

    def before(self, round: int, signed: float) -> bool:
        """Whether a message is from before the node began again."""
        later = self.latest is not None and round > self.latest
        return self._late and (signed <= self.life or (later and signed < self.signed - OLD))

    def leaps(self, round: int, now: float) -> bool:
        """Whether `round` is further ahead than time allows."""
        return self._allowed(round, now) < 0

    def came(self, round: int, slot: int, now: float, signed: float) -> None:
        """A rollout of this round and slot came."""
        self.signed = max(signed, self.signed)
        self.seen.add(round, slot)
        self._ahead = min(AT_ONCE, self._allowed(round, now))
        self.latest = max(round, self.latest if self.latest is not None else round)
        self.last = now

    def _allowed(self, round: int, now: float) -> float:
        """The rounds that it may still advance once it is at `round`."""
        advance = 0 if self.latest is None else max(0, round - self.latest)
        return self._ahead + LEAP * max(0.0, now - self.last) - advance

    def admit(self, useful: bool, now: float) -> None:
        """A rollout of it was admitted. `useful`: one can learn from it, and one of its answers has a reward."""
        self.admitted += 1
        period = int(now // PERIOD)
        if useful and period > self.period:
            self.period = period
            self.periods += 1

    def offend(self, now: float, strikes: float) -> None:
        """It broke a rule that no honest program breaks. After several offences it is muted, each time twice as
        long."""
        self.offences += 1
        self._strikes = max(0.0, self._strikes - max(0.0, now - self._struck) / 60) + strikes
        self._struck = now
        if self._strikes >= STRIKES:
            self.muted_until = now + self._limits.mute_seconds * 2**self.mutes
            self.mutes = min(self.mutes + 1, 8)
            self._strikes = 0.0

    def was_slow(self, task: str, now: float) -> None:
        """A task of this node took too long with its answers. That is no offence, but must not take all of the time."""
        self._slow[task] = now

    def may_try(self, task: str, now: float) -> bool:
        """Whether its answers to `task` are examined now."""
        return now >= self._slow.get(task, -PAUSE) + PAUSE

    def state(self) -> dict[str, Any]:
        """What has to outlive the process: replays must be recognised, and the muted stay muted."""
        return {"seen": [self.seen.floor, self.seen.rounds]} | {name: getattr(self, name) for name in LASTING}

    def restore(self, state: dict[str, Any]) -> None:
        self.seen.floor, self.seen.rounds = state["seen"]
        for name in LASTING:
            setattr(self, name, state[name])
        self.refused = Counter(self.refused)


class Peers:
    """The records of all keys that are remembered. There is always room for a new key.

    Keys of which nothing was admitted yet are strangers; the oldest stranger goes first. Of the other keys, the unknown
    one that was silent for longest goes first.
    """

    def __init__(self, limits: AdmissionLimits, own: bytes = b"") -> None:
        """`own`: the key of this node, whose name nobody else has."""
        self._limits = limits
        self._own = own
        self.by_key: OrderedDict[bytes, Peer] = OrderedDict()
        """The key that was heard last stands last."""
        self._strangers: OrderedDict[bytes, None] = OrderedDict()
        self._named: dict[str, bytes] = {}
        """The key that has each name: the first of which something was admitted."""

    def may_use_name(self, key: bytes, now: float) -> bool:
        """Whether no other key has this key's name. Trust and pool go by names, and 2**32 tries make a key with any
        given name. A holder that is not known and was silent for `YIELD` seconds loses the name here."""
        name = name_of(key)
        if self._own and key != self._own and name == name_of(self._own):
            return False
        holder = self._named.get(name, key)
        if holder != key and not self.by_key[holder].known and now - self.by_key[holder].last > YIELD:
            del self._named[name]
            return True
        return holder == key

    def get(self, key: bytes, now: float) -> Peer:
        """The record of `key`, which is created if there is none."""
        peer = self.by_key.get(key)
        if peer is None:
            peer = self.by_key[key] = Peer(self._limits, now)
            self._strangers[key] = None
            if len(self._strangers) > MAX_STRANGERS:
                oldest, _ = self._strangers.popitem(last=False)
                del self.by_key[oldest]
        self.by_key.move_to_end(key)
        return peer

    def admit(self, key: bytes, useful: bool, now: float) -> None:
        """A rollout of `key` was admitted, so it is no stranger any more."""
        self.get(key, now).admit(useful, now)
        self._named.setdefault(name_of(key), key)
        if key in self._strangers:
            del self._strangers[key]
            if len(self.by_key) - len(self._strangers) > MAX_PEERS - MAX_STRANGERS:
                others = [k for k in self.by_key if k not in self._strangers and k != key]
                gone = next((k for k in others if not self.by_key[k].known), others[0])
                if self._named.get(name_of(gone)) == gone:
                    del self._named[name_of(gone)]
                del self.by_key[gone]

    def state(self) -> dict[bytes, Any]:
        return {key: peer.state() for key, peer in self.by_key.items()}

    def restore(self, state: dict[bytes, Any], now: float) -> None:
        self.by_key.clear()
        self._strangers.clear()
        self._named.clear()
        for key, kept in state.items():
            peer = self.by_key[key] = Peer(self._limits, now)
            peer.restore(kept)
            if not peer.admitted:
                self._strangers[key] = None
        admitted = [key for key, peer in self.by_key.items() if peer.admitted]
        for key in sorted(admitted, key=lambda key: (-self.by_key[key].periods, -self.by_key[key].admitted)):
            self._named.setdefault(name_of(key), key)


class Differing:
    """Peers that ask other questions under the same name: another copy of a data set, another version of a task.

        differing = Differing([("gsm8k", "3f2a...", "c0ffee...")])  # own tasks: name, version, hash of the parameters
        differing.note(QuestionId("gsm8k", "9b1c...", ...), "swift-otter")
        differing.line      # "swift-otter has another 'gsm8k', which is refused: 9b1c... there, 3f2a... here"

    Their rollouts are refused: a question is looked up here, never taken from a peer. What peers say of their tasks is
    their word: it is compared, and shown in a few characters. Thread-safe.
    """

    def __init__(self, own: Iterable[tuple[str, str, str]] = ()) -> None:
        """`own`: (name, version, hash of the parameters) of each task, as in the ids of its questions."""
        self._own = list(own)
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()

    def note(self, question: QuestionId, peer: str) -> None:
        """Takes a question that this node does not have, of `peer`."""
        said = self._said(question)
        with self._lock:
            if said and len(self._seen) < MOST_DIFFERING:
                self._seen.setdefault(peer, said)

    @property
    def line(self) -> str:
        """What the first such peer has, and how many others there are; empty if there is none."""
        with self._lock:
            if not self._seen:
                return ""
            peer, said = next(iter(self._seen.items()))
            others = len(self._seen) - 1
        more = f" (so do {others} other peers)" if others > 1 else " (so does another peer)" if others else ""
        return f"{peer} {said}{more}"

    def _said(self, question: QuestionId) -> str:
        """How the question's task differs from this node's; empty if it resembles none."""
        for name, version, config in self._own:
            if question.task == name and question.version != version:
                return (
                    f"has another {name!r}, which is refused: {printable(question.version[:SHOWN])} there, "
                    f"{version[:SHOWN]} here"
                )
            if question.task == name and question.config != config:
                return f"asks {name!r} in another way, which is refused: compare parameters, examples, answer and score"
            if question.task != name and question.version == version and question.config == config:
                theirs = printable(question.task, 64)
                return f"calls your {name!r} by another name, and is refused: give it the name {theirs!r}"
        return ""
