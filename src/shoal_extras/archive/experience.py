"""Learning from an archive: what nodes shared once comes to this node as if peers shared it now.

    swarm = Experience(swarm, config, tasks)        # around any swarm, also one of this node alone
    swarm.receive()                                 # what the swarm has, and rollouts of the archive

An archive is a stranger's file: each group goes through the same checks as what comes over a network. The signature
holds, the question is made again, it is the one that the maker had to answer, and this node's own verifier scores.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from shoal.admission.admission import Admission, Claim
from shoal.admission.limits import AdmissionLimits
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.control import ControlText
from shoal.protocols import Swarm
from shoal.rollout import Rollout, Scored, seed_of
from shoal.sandbox.examiner import Examiner
from shoal.tasks import Tasks
from shoal.wire.rollouts import check_signature, open_envelope
from shoal_extras.archive.reader import read_groups

TRIES: Final = 4
"""Groups that are examined for each rollout that an update can use, at most."""
SWARMS: Final = 16  # whose limits are remembered
FILE: Final = "experience.msgpack"


class Experience:
    """A swarm with an archive beside it. In each round it gives J rollouts with a gradient, in an order of its own
    that begins again when all were given."""

    def __init__(self, swarm: Swarm, config: Config, tasks: Tasks, control: Sequence[str] = ()) -> None:
        """`control`: the control tokens of the node's model, as text. Raises `UserError` for what is no archive, and
        for one without a group of these tasks."""
        self.swarm = swarm
        self._wanted = config.round.peers
        self._seed = seed_of("experience", config.seed, *swarm.seed_key)
        path = Path(config.peers.experience).expanduser()
        self._groups = [group.envelope for group in read_groups(path, tasks.identities)]
        if not self._groups:
            raise UserError(f"{path} has nothing of this run's tasks ({', '.join(tasks.labels)}): shoal archive stats")
        self._config, self._control = config, ControlText(control)
        self._examiner = Examiner(config.tasks)
        self._admissions: dict[str, Admission] = {}
        self._given = 0
        """Groups that were examined so far."""

    @property
    def seed_key(self) -> tuple[str | int, ...]:
        return self.swarm.seed_key

    @property
    def refused(self) -> int:
        """What the swarm refused, and what of the archive did not hold in this pass over it."""
        return self.swarm.refused + sum(one.refused.total() for one in self._admissions.values())

    def share(self, rollouts: Sequence[Rollout]) -> None:
        self.swarm.share(rollouts)

    def receive(self) -> list[Rollout | Scored]:
        found: list[Rollout | Scored] = list(self.swarm.receive())
        useful = 0
        for envelope in self._next(TRIES * self._wanted):
            scored = self._examined(envelope)
            if scored is not None and scored.may_teach:
                found.append(scored)
                useful += 1
            if useful == self._wanted:
                break
        return found

    def save(self, folder: Path) -> None:
        self.swarm.save(folder)
        (folder / FILE).write_bytes(msgspec.msgpack.encode(self._given))

    def load(self, folder: Path) -> None:
        self.swarm.load(folder)
        if (folder / FILE).exists():  # a run may take up an archive when it goes on
            self._given = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=int)

    def close(self) -> None:
        """Ends the process that examines."""
        self._examiner.close()

    def _next(self, count: int) -> Iterator[bytes]:
        """The next groups, of this pass over the archive alone, in its own order."""
        number, place = divmod(self._given, len(self._groups))
        if place == 0:
            self._admissions.clear()  # what was given in an earlier pass is no duplicate
        for at in Random(seed_of(self._seed, number)).sample(range(len(self._groups)), len(self._groups))[place:][
            :count
        ]:
            self._given += 1
            yield self._groups[at]

    def _examined(self, envelope: bytes) -> Scored | None:
        statement, sealed = open_envelope(envelope)  # which the reader has opened before
        if not (admission := self._admissions.get(statement.swarm)):
            if len(self._admissions) == SWARMS:  # whoever made the archive names as many as it likes
                self._admissions.pop(next(iter(self._admissions)))
            limits, generations = AdmissionLimits.of(self._config), self._config.policy.num_generations
            admission = Admission(statement.swarm, self._examiner, limits, num_generations=generations)
            admission.control = self._control
            self._admissions[statement.swarm] = admission
        if not check_signature(sealed, statement):
            admission.refused["signature"] += 1
            return None
        peer = admission.peers.get(statement.key, statement.time)
        return admission.examine(Claim(statement.rollout.public(), statement.key, peer), patient=True)[0]
