"""What this machine has for a run: devices, processor cores and threads, worker processes, memory."""

import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import huggingface_hub
import psutil
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.optim import STATE_BYTES
from shoal.parallel.ranks import ALONE, Ranks
from shoal.parallel.remote import RemotePolicy
from shoal.policy.decoders.base import OWN
from shoal.policy.device import Placement, free_ram, place
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import display_name, source_of
from shoal.policy.pictures import FAMILIES
from shoal.protocols import Policy

SMALL: Final = 200_000_000
"""Parameters up to which workers help: a larger model keeps all cores busy by itself."""
WORKER_BYTES: Final = 500_000_000
"""Memory of a worker without models."""
PASS_BYTES: Final = 20
"""For each parameter of a model: what learning and answering take beside weights and optimizer, in a worker."""
FREE_SHARE: Final = 0.8
"""Workers may take this share of the free memory."""
WORTH_WORKERS: Final = 2_000
"""Completions of all nodes in a run below which starting workers takes longer than they save."""
LOOK: Final = 0.3
"""Seconds for which the machine is watched."""


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity, within the limit of its control group."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        words = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except OSError:  # another system, or another version of control groups
        words = []
    if len(words) == 2 and words[0].isdigit():  # else "max"
        cores = min(cores, max(1, round(int(words[0]) / int(words[1]))))
    return cores


def free_cores() -> int:
    """Of the cores that this process may use, about how many are free now; one at least."""
    return max(1, min(usable_cores(), round((os.cpu_count() or 1) - busy_cores())))


def busy_cores() -> float:
    """About how many of the machine's cores are busy now. Processes of low priority do not count: they step aside."""
    passed = psutil.cpu_times_percent(LOOK)
    return (os.cpu_count() or 1) * float(passed.user + passed.system) / 100


def count_workers(config: Config, learning: Mapping[str, str], placement: Placement, ranks: Ranks, joined: bool) -> int:
    """How many worker processes keep the models of the nodes in `learning`; 0: this process does."""
    wanted = len(learning) if config.round.on else config.round.workers
    possible = (
        len(learning) > 0
        and (placement.device.type == "cpu" or config.round.on)
        and ranks.size == 1
        and not joined
        and config.policy.engine == OWN
        and not config.learner.factory
        and not config.own_policies
    )
    if wanted != "auto":
        if wanted and not possible:
            raise UserError(
                "--workers and --on ray need nodes that learn in one process of `shoal run`, without another --engine, "
                "several ranks, or a policy or learner of your own; --workers N also needs --device cpu"
            )
        return min(wanted, len(learning))
    count = min(len(learning), usable_cores() // max(1, config.threads))
    completions = config.rounds * len(learning) * config.round.local * config.policy.num_generations
    if not possible or count < 2 or completions < WORTH_WORKERS:
        return 0
    largest = max(parameters(source) for source in learning.values())
    if largest > SMALL:
        return 0
    copies = learning if not config.policy.lora_r else range(count)  # nodes of a process share frozen weights
    needed = count * (WORKER_BYTES + PASS_BYTES * largest) + len(copies) * lasting_bytes(config) * largest
    return count if needed <= FREE_SHARE * free_ram() else 0


def expected_workers(config: Config, ranks: Ranks = ALONE) -> int:
    """How many worker processes `shoal run` would have with these settings."""
    learning = {node: name for node, name in config.node_models.items() if name in config.local_models}
    return count_workers(config, learning, place_rank(config, ranks), ranks, joined=False)


def lasting_bytes(config: Config) -> float:
    """For each parameter of a model: the bytes that its weights and the state of its optimizer take at least."""
    return 4 if config.policy.lora_r else 4 + STATE_BYTES[config.learner.optim]


@cache
def parameters(model: str) -> float:
    """The number of parameters, by the configuration, or by a GGUF file's size at 4 bits. Infinite if unknown."""
    huggingface_hub.logging.set_verbosity_error()  # it would report each retry
    try:
        source, options = source_of(model)
        if "gguf_file" in options:
            size: int = (Path(source) / options["gguf_file"]).stat().st_size
            return 2.0 * size
        with torch.device("meta"):
            of = AutoConfig.from_pretrained(source, **options)
            auto = AutoModelForImageTextToText if of.model_type in FAMILIES else AutoModelForCausalLM
            found: Any = auto.from_config(of)
    except Exception:  # loading the model reports what is wrong with it
        return math.inf
    return float(sum(weight.numel() for weight in found.parameters()))


def check_memory(config: Config, sources: Mapping[str, str], placement: Placement) -> None:
    """Raises `UserError` if the nodes' weights and optimizer states alone are more than what is free here."""
    if placement.device.type != "cpu":
        return
    copies = Counter(source for source in sources.values() if not is_endpoint(source))
    sizes = {source: lasting_bytes(config) * parameters(source) for source in copies}
    known = {source: size for source, size in sizes.items() if math.isfinite(size)}
    needed = sum(size * (1 if config.policy.lora_r else copies[source]) for source, size in known.items())
    free = free_ram()
    if needed > free:
        name = display_name(max(known, key=lambda source: known[source]))
        raise UserError(
            f"weights and optimizers of this run take {needed / 1e9:.1f} GB or more ('{name}' is its largest model), "
            f"and {free / 1e9:.1f} GB are free: "
            "take a smaller model, fewer nodes (--nodes) or adapters (--lora-r 16)"
        )


def checkpoint_bytes(policies: Sequence[Policy], config: Config) -> int:
    """About the size of a checkpoint: trained weights and optimizer states."""
    remote = [policy for policy in policies if isinstance(policy, RemotePolicy)]
    here = (policy for policy in policies if isinstance(policy, LanguagePolicy))
    weights = (weight for policy in here for weight in policy.lm.model.parameters())
    trained: int = sum(weight.numel() for weight in weights if weight.requires_grad) + sum(p.trained for p in remote)
    return round((4 + STATE_BYTES[config.learner.optim]) * trained)


def place_rank(config: Config, ranks: Ranks) -> Placement:
    """Where a rank computes: on a GPU of its own, or on the processor. Ranks cannot communicate over other devices."""
    device = config.policy.device
    if ranks.size > 1 and device in ("auto", "cuda"):
        device = f"cuda:{ranks.local_rank}" if device == "cuda" or torch.cuda.is_available() else "cpu"
    placement = place(device, config.policy.dtype)
    if ranks.size > 1 and placement.device.type not in ("cpu", "cuda"):
        raise UserError(f"several ranks need --device cuda or cpu, and this is {placement.device}")
    if ranks.size > 1 and placement.device.type == "cuda":
        torch.cuda.set_device(placement.device)
    return placement


def use_threads(config: Config, ranks: Ranks = ALONE) -> None:
    """Uses as many threads as `config` says, or all usable cores, divided among the ranks of this machine."""
    compute_with(config.threads or max(1, usable_cores() // ranks.local_size))


def compute_with(threads: int) -> None:
    """Sets the threads of this process, and treats numbers below 1e-38 as 0: processors are slow with them."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
