"""Many small nodes as one batched program: language policies that decode together.

    company = Company()
    policies = stack(policies, company)
    company.together([node.act for node in nodes])

Each policy keeps its own model, whose weights are views of the stacked ones (`layers`): it is saved and loaded as ever,
and what is asked of it outside of `together` it answers alone. What bounds the number of nodes is memory alone.

Shape suffixes: Q prompts, B living completions, of any nodes in any order; N nodes, C cells of a grid of N equal rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from shoal.errors import UserError
from shoal.parallel.lockstep import Company
from shoal.policy.decode import Sampled, cache_bytes_per_token, sample
from shoal.policy.language import CACHE_BYTES, LanguagePolicy
from shoal.policy.layers import stack_models
from shoal.policy.prefix import Bucket
from shoal.rollout import Completion, Question, seed_of


class Stack:
    """N policies' models as one."""

    def __init__(self, policies: Sequence[LanguagePolicy], company: Company) -> None:
        first = policies[0]
        if any((p.sampling, p.placement, p.lm.stop_ids) != (first.sampling, first.placement, first.lm.stop_ids)
               for p in policies):  # fmt: skip
            raise UserError(f"policies that decode unlike cannot be stacked, as '{first.name}' and the others here")
        self.company = company
        self.sampling, self.placement, self.stop_ids = first.sampling, first.placement, first.lm.stop_ids
        self.size = len(policies)
        self.model, self.pairs = stack_models([p.lm.model for p in policies], first.name, first.placement)
        self.vocabulary = int(self.model.get_input_embeddings().weight.shape[1])
        self.learners: dict[int, Any] = {}
        """Those that train these models, by the number of their node."""
        self.reference: Any = None
        """With `beta`: what `alike` made of the models that the nodes began with."""

    def alike(self, models: Sequence[Any]) -> Any:
        """Other models of these nodes, stacked."""
        return stack_models(models, "reference", self.placement)[0]


def stack(policies: Sequence[LanguagePolicy], company: Company) -> list[StackedPolicy]:
    """The same policies, which decode and learn as one when they are together in `company`.

    Raises `UserError` if their models are not of one architecture, or of one that is not known here.
    """
    stacked = Stack(policies, company)
    return [StackedPolicy(policy, stacked, number) for number, policy in enumerate(policies)]


class StackedPolicy(LanguagePolicy):
    """One of N policies."""

    def __init__(self, policy: LanguagePolicy, stack: Stack, number: int) -> None:
        super().__init__(policy.lm, policy.sampling, policy.placement)
        self.stack, self.number = stack, number

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """As alone, but for rounding."""
        if not self.stack.company.present:
            return super().generate(questions, num_generations, seed)
        prompts = [self.prompt_ids(question) for question in questions]
        longest = max(map(len, prompts), default=0) + self.sampling.max_completion_length
        context = getattr(self.lm.model.config.get_text_config(), "max_position_embeddings", longest)
        if longest > context:
            raise UserError(
                f"model '{self.name}' reads {context} tokens, but a question with its answer may take {longest}; "
                "lower --max-completion-length or take other tasks"
            )
        asked = _Asked(prompts, [seed_of(seed, number) for number in range(len(prompts))])
        groups = self.stack.company.ask(_sample, (self.stack, num_generations), self.number, asked)
        return [tuple(self._completion(s.token_ids, s.stopped, s.logps) for s in group) for group in groups]


@dataclass(frozen=True)
class _Asked:
    prompts: list[list[int]]
    seeds: list[int]


def _sample(key: tuple[Stack, int], works: dict[int, _Asked]) -> dict[int, list[list[Sampled]]]:
    """Completions for the prompts of each node: as many prompts of each at once as fit."""
    stack, G = key
    longest = max((len(prompt) for asked in works.values() for prompt in asked.prompts), default=0)
    cached = cache_bytes_per_token(stack.model) * (longest + G * stack.sampling.max_completion_length)
    step = max(1, CACHE_BYTES // (cached * len(works)))
    results: dict[int, list[list[Sampled]]] = {number: [] for number in works}
    for start in range(0, max(len(asked.prompts) for asked in works.values()), step):
        whose, prompts, seeds = [], [], []
        for number, asked in works.items():
            for prompt, seed in list(zip(asked.prompts, asked.seeds, strict=True))[start : start + step]:
                whose.append(number)
                prompts.append([number * stack.vocabulary + token for token in prompt])
                seeds.append(seed)
        model: Any = _Mixed(stack)
        groups = sample(model, prompts, G, stack.sampling, stack.stop_ids, stack.placement, seeds)
        for number, group in zip(whose, groups, strict=True):
            results[number].append(group)
    return results


class _Mixed:
    """The stacked model as `decode.sample` takes one: its rows may be of any nodes, in any order.

    In a prompt, token t of node n is n V + t, which says whose it is. A step's rows are known by their buckets, and a
    bucket by the keys of its prompts.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.config = stack.model.config
        self.set_attn_implementation = stack.model.set_attn_implementation
        self._read: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Keys of the prompts that have been read together, and the nodes of those prompts."""
        self._living: list[int] = []
        self._grid: _Grid

    def base_model(self, ids: torch.Tensor, **options: Any) -> Any:
        buckets = options.get("buckets")
        if buckets is None:
            nodes_Q = ids[:, 0] // self._stack.vocabulary
            self._grid = _Grid(nodes_Q, self._stack.size)
        else:
            self._regroup(buckets)
            options["buckets"] = [_Regrouped(buckets, self._grid)]
            options["position_ids"] = options["position_ids"][self._grid.row_C]
        out = self._stack.model.base_model(ids[self._grid.row_C] % self._stack.vocabulary, **options)
        out.last_hidden_state = out.last_hidden_state[self._grid.cell_B]
        if buckets is None:
            for layer in options["past_key_values"].layers:
                layer.keys, layer.values = layer.keys[self._grid.cell_B], layer.values[self._grid.cell_B]
            self._read.append((options["past_key_values"].layers[0].keys, nodes_Q))
            self._living = []
        return out

    def get_output_embeddings(self) -> Any:
        """The head, for the rows of the last pass."""
        head = self._stack.model.get_output_embeddings()
        return lambda hidden_BI: head(hidden_BI[self._grid.row_C])[self._grid.cell_B]

    def _regroup(self, buckets: Sequence[Bucket]) -> None:
        living = [len(bucket) for bucket in buckets]
        if living != self._living:  # rows change only where some have ended
            self._living = living
            nodes = [self._nodes(bucket)[bucket.place_B // bucket.num_generations] for bucket in buckets]
            self._grid = _Grid(torch.cat(nodes), self._stack.size)

    def _nodes(self, bucket: Bucket) -> torch.Tensor:
        return next(nodes_Q for keys, nodes_Q in self._read if keys is bucket.prompts[0][0])


class _Grid:
    """Where rows of any nodes lie in a grid of nodes by equally many rows, and which row each cell of it shows."""

    def __init__(self, node_B: torch.Tensor, size: int) -> None:
        seen_BN = functional.one_hot(node_B, size).cumsum(0)
        rank_B = seen_BN.gather(1, node_B[:, None])[:, 0] - 1
        width = int(seen_BN[-1].max())
        self.cell_B = node_B * width + rank_B
        rows_B = torch.arange(len(node_B), device=node_B.device)
        self.row_C = rows_B.new_zeros(size * width).index_copy_(0, self.cell_B, rows_B)  # dead cells show row 0


class _Regrouped:
    """All buckets of a step, as attention sees them from within the grid."""

    def __init__(self, buckets: Sequence[Bucket], grid: _Grid) -> None:
        self._buckets, self._grid = buckets, grid

    def __len__(self) -> int:
        return len(self._grid.row_C)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *options: Any
    ) -> torch.Tensor:
        rows = [part[self._grid.cell_B].split([len(b) for b in self._buckets]) for part in (query, key, value)]
        outs = [b.attend(layer, *parts, *options) for b, *parts in zip(self._buckets, *rows, strict=True)]
        return torch.cat(outs)[self._grid.row_C]
