"""The questions of `linear`, and policies that answer them: a linear softmax over answers and a logit for the format.

Shape suffixes as in `linear`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

PURPOSES = ("world", "questions", "answers", "pool", "shuffle")
CERTAIN = 40.0
"""A logit whose sigmoid is 1 in float64: of the format where everybody has it."""


def noise(seed: int, purpose: str, round: int = 0) -> np.random.Generator:
    """Random numbers for one purpose in one round, so that no arm's draws shift another's."""
    return np.random.default_rng([seed, PURPOSES.index(purpose), round])


@dataclass(frozen=True)
class Groups:
    """Rollouts of every node: what was asked and answered, with the log-probabilities of those who answered."""

    asked_NB: Ids
    answers_NBG: Ids
    formatted_NBG: NDArray[np.bool_]
    logps_NBG: Floats
    rewards_NBG: Floats

    @property
    def live_NB(self) -> NDArray[np.bool_]:
        """Whether the rewards differ, so that the group carries a gradient."""
        live: NDArray[np.bool_] = np.ptp(self.rewards_NBG, axis=2) > 0
        return live

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        return self.asked_NB, self.answers_NBG, self.formatted_NBG, self.logps_NBG, self.rewards_NBG

    def slots(self, start: int, end: int | None) -> Groups:
        """Those in some of the slots, of every node."""
        return Groups(*(array[:, start:end] for array in self.arrays))  # type: ignore[arg-type]

    def joined(self, other: Groups) -> Groups:
        """These and then the other's, node by node."""
        pairs = zip(self.arrays, other.arrays, strict=True)
        return Groups(*(np.concatenate(pair, axis=1) for pair in pairs))


@dataclass(frozen=True)
class Table:
    """Every node's policy, written out for every question, as log-probabilities."""

    answers_NCA: Floats
    formatted_NC: Floats
    unformatted_NC: Floats

    def answer(self, asked_NB: Ids, uniforms_NBG2: Floats, key_C: Ids) -> Groups:
        """Answers to what each node is asked, by the random numbers given; 1 for the answer of `key` in the format."""
        row_N1 = np.arange(len(asked_NB))[:, None]
        edges_NBA = np.exp(self.answers_NCA[row_N1, asked_NB]).cumsum(2)[:, :, None, :-1]
        answers_NBG = (uniforms_NBG2[..., 0, None] >= edges_NBA).sum(3)
        formatted_NBG = uniforms_NBG2[..., 1] < np.exp(self.formatted_NC[row_N1, asked_NB])[:, :, None]
        rewards_NBG = (formatted_NBG & (answers_NBG == key_C[asked_NB][:, :, None])).astype(np.float64)
        logps_NBG = self.logps(asked_NB, answers_NBG, formatted_NBG)
        return Groups(asked_NB, answers_NBG, formatted_NBG, logps_NBG, rewards_NBG)

    def logps(self, asked_NB: Ids, answers_NBG: Ids, formatted_NBG: NDArray[np.bool_]) -> Floats:
        """Log-probability (nats) that each node's policy has for the completions in its row, whoever made them."""
        row_N11, asked_NB1 = np.arange(len(asked_NB))[:, None, None], asked_NB[:, :, None]
        formatted_NB1, unformatted_NB1 = self.formatted_NC[row_N11, asked_NB1], self.unformatted_NC[row_N11, asked_NB1]
        format_NBG = np.where(formatted_NBG, formatted_NB1, unformatted_NB1)
        logps_NBG: Floats = self.answers_NCA[row_N11, asked_NB1, answers_NBG] + format_NBG
        return logps_NBG

    def scores(self, groups: Groups, coefficients_NBG: Floats) -> Floats:
        """(N, B, X): derivative by the logits of each group's sum of coefficients times log-probabilities. For a
        softmax it is what was chosen less what was expected."""
        row_N1 = np.arange(len(groups.asked_NB))[:, None]
        total_NB1 = coefficients_NBG.sum(2, keepdims=True)
        chosen_NBGA = groups.answers_NBG[..., None] == np.arange(self.answers_NCA.shape[2])
        chosen_NBA = (coefficients_NBG[:, :, None, :] @ chosen_NBGA)[:, :, 0]
        answers_NBA = chosen_NBA - total_NB1 * np.exp(self.answers_NCA[row_N1, groups.asked_NB])
        formatted_NB1 = (coefficients_NBG * groups.formatted_NBG).sum(2, keepdims=True)
        format_NB1 = formatted_NB1 - total_NB1 * np.exp(self.formatted_NC[row_N1, groups.asked_NB])[:, :, None]
        return np.concatenate([answers_NBA, format_NB1], axis=2)


@dataclass(frozen=True)
class World:
    """The questions, their features and answers. A linear teacher made the answers, so that they can be learned."""

    features_CF: Floats
    """A constant 1, then a block for each task: a direction (of length 1) in that of the question's, 0 elsewhere."""
    key_C: Ids
    teacher_KDA: Floats
    lean_CA: Floats
    """Logits that every policy has from the start and keeps: how easy the questions of a task are."""
    format: float
    """The format's logit at the start."""

    @classmethod
    def make(
        cls, tasks: int, questions: int, features: int, answers: int, p0: float | tuple[float, ...], seed: int
    ) -> World:
        """A world of `tasks` times `questions` questions. `p0`: see `LinearConfig`."""
        rng = noise(seed, "world")
        teacher_KDA = rng.standard_normal((tasks, features, answers))
        x_KMD = rng.standard_normal((tasks, questions, features))
        x_KMD /= np.linalg.norm(x_KMD, axis=2, keepdims=True)
        features_KMF = np.zeros((tasks, questions, 1 + tasks * features))
        features_KMF[:, :, 0] = 1
        for task in range(tasks):
            features_KMF[task, :, 1 + task * features : 1 + (task + 1) * features] = x_KMD[task]
        key_C = (x_KMD @ teacher_KDA).argmax(2).reshape(-1)
        lean_CA, format = np.zeros((len(key_C), answers)), CERTAIN
        if isinstance(p0, float):
            format = float(np.log(p0 * answers / (1 - p0 * answers)))
        else:
            chance_C = np.resize(p0, tasks).repeat(questions)
            lean_CA[np.arange(len(key_C)), key_C] = np.log(chance_C * (answers - 1) / (1 - chance_C))
        return cls(features_KMF.reshape(len(key_C), -1), key_C, teacher_KDA, lean_CA, format)

    def start(self, nodes: int, speciality: float) -> Floats:
        """Weights (N, F, X) at the start: the format's, and node n has `speciality` times the teacher's weights for
        task n mod K."""
        tasks, features, answers = self.teacher_KDA.shape
        weights_NFX = np.zeros((nodes, self.features_CF.shape[1], answers + 1))
        weights_NFX[:, 0, -1] = self.format
        for node in range(nodes):
            first = 1 + node % tasks * features
            weights_NFX[node, first : first + features, :-1] = speciality * self.teacher_KDA[node % tasks]
        return weights_NFX

    def table(self, weights_NFX: Floats) -> Table:
        """The policies of these weights."""
        logits_NCX = self.features_CF @ weights_NFX
        answers_NCA, format_NC = logits_NCX[..., :-1] + self.lean_CA, logits_NCX[..., -1]
        ones_A1 = np.ones((answers_NCA.shape[2], 1))
        answers_NCA -= np.log(np.exp(answers_NCA) @ ones_A1)  # logits stay far below 700; a product is a fast sum
        return Table(answers_NCA, -np.logaddexp(0, -format_NC), -np.logaddexp(0, format_NC))

    def expected(self, table: Table) -> Floats:
        """Exact pass@1 (N, K): the mean chance of success over all questions of a task."""
        right_NC = table.answers_NCA[:, np.arange(len(self.key_C)), self.key_C] + table.formatted_NC
        expected_NK: Floats = np.exp(right_NC).reshape(len(right_NC), len(self.teacher_KDA), -1).mean(2)
        return expected_NK
