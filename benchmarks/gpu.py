"""One command for whoever has a GPU: shoal beside transformers, TRL and vLLM, in speed and memory.

    python benchmarks/gpu.py                        # all parts, at most eight minutes; the table, and gpu.json
    python benchmarks/gpu.py decode update          # these parts alone
    python benchmarks/gpu.py --device cpu --small   # tries the script itself where there is no GPU

It needs what shoal needs, and no network. TRL and vLLM are measured where they are installed. Each part runs in a
process of its own: one that fails leaves the others alone, and the table says why. Send us `gpu.json`.

The model has the shape of Qwen2.5-0.5B (24 layers, 49,152 words) and random weights, so that no answer ends early.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
SMOLLM2 = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
G, WORDS = 8, 49_152
CAPS = {"lora 6": (6, 16), "full 12": (12, 0), "full 24": (24, 0)}
"""Gigabytes of the card that a process may take, and the rank of its adapters (0: all weights are trained)."""
Figures = dict[str, Any]


class Scale:
    """How much work: the usual one, or so little that a processor tries the script in minutes."""

    def __init__(self, small: bool) -> None:
        self.layers, self.width, self.inner = (2, 64, 128) if small else (24, 896, 4864)
        self.length, self.questions, self.many = (8, 2, 4) if small else (256, 8, 32)
        self.repeats, self.rounds, self.reef = (1, 2, 1) if small else (3, 40, 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all that are possible here")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="little work, to try the script")
    parser.add_argument("--minutes", type=float, default=8.0, help="the whole may take so long; default: 8")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device here; `--device cpu --small` tries the script")
    found: dict[str, Figures] = {"machine": machine(args.device)}
    print("  ".join(f"{name}: {value}" for name, value in found["machine"].items()), flush=True)
    end = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as scratch:
        for part in args.parts or PARTS:
            print(f"... {part}", file=sys.stderr, flush=True)
            found[part] = in_child(part, args, Path(scratch), end - time.monotonic())
            args.out.write_text(json.dumps(found, indent=1))
    print(table(found))
    print(f"All figures: {args.out}")
    return 0


def machine(device: str) -> Figures:
    import torch

    cuda = device == "cuda"
    card = torch.cuda.get_device_properties(0) if cuda else None
    return {
        "device": card.name if card else platform.processor() or platform.machine(),
        "memory": f"{card.total_memory / 2**30:.0f} GiB" if card else "",
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "cores": os.cpu_count(),
        **{name: version(name) for name in ("trl", "vllm") if find_spec(name)},
    }


def in_child(part: str, args: argparse.Namespace, scratch: Path, seconds: float) -> Figures:
    """The figures of a part, or {"not run": why}."""
    if seconds < 20:
        return {"not run": f"the {args.minutes:g} minutes are over"}
    out = scratch / f"{part}.json"
    words = [sys.executable, __file__, "--child", part, "--device", args.device, "--out", str(out)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    began = time.monotonic()
    try:
        run = subprocess.run(
            [*words, *["--small"] * args.small], cwd=scratch, env=environment, capture_output=True, text=True,
            timeout=min(seconds, 180),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"not run": f"not done after {time.monotonic() - began:.0f} s"}
    if not out.is_file():
        lines = (run.stderr or run.stdout).strip().splitlines()
        return {"not run": lines[-1][:200] if lines else f"exit code {run.returncode}", "error": lines[-30:]}
    return {**json.loads(out.read_text()), "seconds of all": round(time.monotonic() - began, 1)}


def child(args: argparse.Namespace) -> int:
    figures = PARTS[args.child](args.device, Scale(args.small))
    args.out.write_text(json.dumps(figures))
    return 0


# The parts. Each runs in its own process.


def tests(device: str, scale: Scale) -> Figures:
    """The tests marked gpu."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-o", "addopts=", "-p", "no:cacheprovider", "tests"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    lines = run.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"result": lines[-1] if lines else run.stderr[-200:], "failed": failed, "passed": run.returncode == 0}


def decode(device: str, scale: Scale) -> Figures:
    """Tokens a second of 8 answers to each of few and of many prompts of unequal length: shoal and transformers'
    `generate`, in turns."""
    import torch

    policy, rates = make_policy(device, scale), {}
    plain = policy.lm.model.__class__.from_pretrained(model_folder(scale)).to(device, policy.placement.dtype).eval()
    plain.generation_config.eos_token_id = None
    for name, questions in (("64", scale.questions), ("256", scale.many)):
        chats = make_questions(questions)
        prompts = [policy.prompt_ids(question) for question in chats]
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=device).repeat_interleave(G, 0)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
        options = {
            "attention_mask": mask.repeat_interleave(G, 0), "do_sample": True, "top_k": 0, "top_p": 1.0,
            "max_new_tokens": scale.length, "pad_token_id": 0,
        }  # fmt: skip

        def ours(chats: Any = chats) -> int:
            answers = policy.generate(chats, G, 1)
            return sum(len(completion.token_ids) for group in answers for completion in group)

        @torch.inference_mode()
        def theirs(ids: Any = ids, options: Any = options) -> int:
            return int(plain.generate(ids, **options)[:, ids.shape[1] :].numel())

        for who, work in in_turns({"shoal": ours, "generate": theirs}, scale.repeats).items():
            rates[f"{who} {name}"] = statistics.median(tokens / seconds for tokens, seconds in work[1:])
            rates[f"{who} {name}, first seconds"] = work[0][1]
    return rates


def kernels(device: str, scale: Scale) -> Figures:
    """Kernels, launches and copies to the host for each drawn token, from two lengths of answers, so that reading the
    prompts cancels out. Without CUDA: calls of operators."""
    from torch.profiler import ProfilerActivity, profile

    policy, counted = make_policy(device, scale), {}
    chats = make_questions(scale.questions)
    lengths = (scale.length // 4, scale.length // 2)
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (device == "cuda")]
    for length in lengths:
        policy.sampling = type(policy.sampling)(max_completion_length=length)
        policy.generate(chats, G, 1)
        with profile(activities=activities) as found:
            policy.generate(chats, G, 1)
        names = [event.key for event in found.key_averages() for _ in range(event.count)]
        counted[length] = {
            "operator calls": sum(name.startswith("aten::") for name in names),
            "launches from the host": sum(
                name.startswith(("cudaLaunch", "cudaGraphLaunch", "cuLaunch")) for name in names
            ),
            "graphs replayed": sum(name.startswith("cudaGraphLaunch") for name in names),
            "copies to the host": sum("Memcpy DtoH" in name for name in names),
            "kernels": sum(
                event.count
                for event in found.key_averages()
                if str(event.device_type).endswith("CUDA") and not event.key.startswith(("Mem", "cuda"))
            ),
        }
    short, long = (counted[length] for length in lengths)
    steps = lengths[1] - lengths[0]
    return {name: (long[name] - short[name]) / steps for name in short if device == "cuda" or name == "operator calls"}


def update(device: str, scale: Scale) -> Figures:
    """Seconds of shoal's update on 8 x 8 answers of full length, and its peak memory."""
    import torch

    policy = make_policy(device, scale)
    learner, groups = make_learner(policy), make_groups(policy, scale)
    seconds = []
    for seed in range(1 + scale.repeats):
        reset_peak(device)
        began = now()
        learner.update(groups, seed)
        seconds.append(now() - began)
    return {
        "first": seconds[0],
        "seconds": statistics.median(seconds[1:]),
        "peak": peak(device),
        "torch": torch.__version__,
    }


def trl(device: str, scale: Scale) -> Figures:
    """Seconds of TRL's update, and of its decoding, on as much work, and its peak memory."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    marks: list[tuple[float, float, float]] = []
    peaks: list[int] = []

    class Timed(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            began = now()
            found = super()._generate_and_score_completions(inputs)
            marks.append((began, now(), 0.0))
            reset_peak(device)
            return found

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks[-1] = (*marks[-1][:2], now())
            peaks.append(peak(device))

    def reward(completions: Any, **_: Any) -> list[float]:
        return [float(place % 2) for place in range(len(completions))]

    settings = GRPOConfig(
        output_dir="trl", max_steps=1 + scale.repeats, per_device_train_batch_size=scale.questions * G,
        num_generations=G, max_completion_length=scale.length, gradient_checkpointing=False, use_cpu=device == "cpu",
        bf16=device == "cuda", model_init_kwargs={"dtype": "float32"}, save_strategy="no", report_to="none",
        loss_type="dr_grpo", scale_rewards="none", beta=0.0, learning_rate=1e-6, disable_tqdm=True,
    )  # fmt: skip
    texts = [[{"role": "user", "content": question.text}] for question in make_questions(scale.questions)]
    data = Dataset.from_list([{"prompt": text} for text in texts])
    Timed(
        model=str(model_folder(scale)), reward_funcs=reward, args=settings, train_dataset=data, callbacks=[Clock()]
    ).train()
    learned = [end - made for _, made, end in marks]
    return {
        "first": learned[0],
        "seconds": statistics.median(learned[1:]),
        "generate": statistics.median(made - began for began, made, _ in marks[1:]),
        "peak": max(peaks),
    }


def vllm(device: str, scale: Scale) -> Figures:
    """Tokens a second of vLLM on the work of `decode`."""
    from vllm import LLM, SamplingParams

    folder, rates = model_folder(scale), {}
    llm = LLM(str(folder), dtype="bfloat16", generation_config="vllm", gpu_memory_utilization=0.5, max_model_len=2048)
    sampling = SamplingParams(n=G, max_tokens=scale.length, ignore_eos=True, detokenize=False)
    for name, questions in (("64", scale.questions), ("256", scale.many)):
        chats = [[{"role": "user", "content": question.text}] for question in make_questions(questions)]

        def work(chats: Any = chats) -> int:
            llm.reset_prefix_cache()
            answers = llm.chat(chats, sampling, use_tqdm=False)
            return sum(len(output.token_ids) for answer in answers for output in answer.outputs)

        times = in_turns({"vllm": work}, scale.repeats)["vllm"]
        rates[f"vllm {name}"] = statistics.median(tokens / seconds for tokens, seconds in times[1:])
    return rates


def memory(cap: str) -> Callable[[str, Scale], Figures]:
    """Two rounds of the 0.5B shape in a process that may take only a part of the card."""

    def measure(device: str, scale: Scale) -> Figures:
        import torch

        gigabytes, rank = CAPS[cap]
        if device == "cuda":
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 2**30 / total))
        reset_peak(device)
        policy = make_policy(device, scale, rank)
        learner = make_learner(policy)
        for seed in range(2):
            policy.generate(make_questions(scale.questions), G, seed)
            learner.update(make_groups(policy, scale), seed)
        return {"cap": gigabytes * 2**30, "peak": peak(device)}

    return measure


def guppies(device: str, scale: Scale) -> Figures:
    """Seconds of a round of `shoal run --seed 0`, four guppies, on the device and on the processor."""
    return {where: seconds_a_round(["--seed", "0", "--device", where], scale.rounds) for where in {device, "cpu"}}


def reef(device: str, scale: Scale) -> Figures:
    """Seconds of a round of two nodes of SmolLM2 on the suite `reef`, and what they learned."""
    if not SMOLLM2.is_file():
        raise SystemExit(f"{SMOLLM2} is missing: python scripts/fetch_models.py smollm2")
    words = ["--model", str(SMOLLM2), "--suite", "reef", "--nodes", "2", "--seed", "0", "--device", device]
    return {"seconds": seconds_a_round(words, scale.reef)}


def ranks(device: str, scale: Scale) -> Figures:
    """Two processes of one node, on one card where NCCL allows it."""
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "shoal",
        "run",
        "--nodes",
        "1",
    ]
    began = now()
    run = subprocess.run(
        [sys.executable, *words, "--rounds", "3", "--device", device, "--out", "ranks"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    if run.returncode:
        raise SystemExit((run.stderr.strip().splitlines() or ["no output"])[-1][:200])
    return {"seconds of 3 rounds": now() - began}


PARTS: dict[str, Callable[[str, Scale], Figures]] = {
    "decode": decode, "update": update, "trl": trl, "guppies": guppies, "kernels": kernels,
    **{name: memory(name) for name in CAPS}, "reef": reef, "vllm": vllm, "ranks": ranks, "tests": tests,
}  # fmt: skip
"""In the order of what matters most, for the case that time runs out."""


# What the parts share.


def model_folder(scale: Scale) -> Path:
    """The model, made once for all parts in the folder that they share."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

    folder = Path("model")
    if folder.is_dir():
        return folder
    import torch

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=WORDS, hidden_size=scale.width, intermediate_size=scale.inner, num_hidden_layers=scale.layers,
        num_attention_heads=14 if scale.width > 64 else 4, num_key_value_heads=2, tie_word_embeddings=True,
        max_position_embeddings=4096, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    words = ["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    words += [f"word {n}" for n in range(len(words), WORDS)]  # answers have them, prompts are bytes
    backend = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    making = Path(tempfile.mkdtemp(dir="."))
    AutoModelForCausalLM.from_config(config).save_pretrained(making)
    tokenizer.save_pretrained(making)
    shutil.move(making, folder)
    return folder


def make_policy(device: str, scale: Scale, rank: int = 0) -> Any:
    import torch

    from shoal.policy.decoders.base import Sampling
    from shoal.policy.device import place
    from shoal.policy.language import LanguagePolicy
    from shoal.policy.loading import load

    placement = place(device)
    lm = load(str(model_folder(scale)), torch.device(device))
    if rank:
        from shoal.policy.lora import add_adapters

        lm = add_adapters(lm, rank, 0)
    return LanguagePolicy(lm, Sampling(max_completion_length=scale.length), placement)


def make_learner(policy: Any) -> Any:
    from shoal.config.sections import LearnerConfig, PeersConfig
    from shoal.learn.learner import GRPOLearner

    return GRPOLearner(policy, LearnerConfig(), PeersConfig(), 1e-6)


def make_questions(number: int) -> list[Any]:
    """Prompts of 60 to 180 tokens."""
    from shoal.rollout import Message, Question, QuestionId

    texts = ["".join(chr(97 + (7 * n + k * k) % 26) for k in range(60 + 120 * n // number)) for n in range(number)]
    return [Question(QuestionId("t", "1", "c", 0, n), (Message("user", text),)) for n, text in enumerate(texts)]


def make_groups(policy: Any, scale: Scale) -> list[Any]:
    """Answers of full length to the questions of `decode`, half of them right."""
    import torch

    from shoal.rollout import Completion, FinishReason, Part, Rollout, Scored

    draw, groups = torch.Generator().manual_seed(0), []
    for question in make_questions(scale.questions):
        ids = torch.randint(3, WORDS, (G, scale.length), generator=draw).tolist()
        answers = tuple(Completion((Part(""),), FinishReason.length, tuple(row)) for row in ids)
        rollout = Rollout(question.id, question.hash, answers, "ours", 1)
        groups.append(Scored(rollout, question, tuple(float(n % 2) for n in range(G))))
    return groups


def seconds_a_round(words: list[str], rounds: int) -> float:
    """Of a `shoal run`: the median, without the first ones, which warm up."""
    out = tempfile.mkdtemp(dir=".")
    command = [sys.executable, "-m", "shoal", "run", *words, "--rounds", str(rounds), "--out", f"{out}/run"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit((run.stderr.strip().splitlines() or ["no output"])[-1][:200])
    rows = [json.loads(line) for line in Path(f"{out}/run/metrics.jsonl").read_text().splitlines()]
    ends = [max(row["time"] for row in rows if row["round"] == number) for number in range(rounds + 1)]
    return statistics.median([after - before for before, after in pairwise(ends)][min(3, rounds - 1) :])


def in_turns(works: dict[str, Callable[[], int]], repeats: int) -> dict[str, list[tuple[int, float]]]:
    """Tokens and seconds of each work by its name, once to warm up and then `repeats` times, in turns."""
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in works}
    for _ in range(1 + repeats):
        for name, work in works.items():
            began = now()
            tokens = work()
            found[name].append((tokens, now() - began))
    return found


def now() -> float:
    """Seconds, when all that was asked of the device is done."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def reset_peak(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak(device: str) -> int:
    """Bytes that torch held at most on the card, with what it keeps for later; 0 on a processor."""
    import torch

    return torch.cuda.max_memory_reserved() if device == "cuda" else 0


def table(found: dict[str, Figures]) -> str:
    """The figures beside the targets, in Markdown."""

    def of(part: str, name: str) -> float | None:
        return found.get(part, {}).get(name)

    def ratio(top: float | None, bottom: float | None) -> float | None:
        return top / bottom if top and bottom else None

    best = ratio(of("decode", "shoal 256"), of("vllm", "vllm 256"))
    reef = of("reef", "seconds")
    rows: list[tuple[str, str, float | None, str, str]] = [
        ("decode", "decode, 64 answers of 256 tokens, tokens a second", of("decode", "shoal 64"), ",.0f", "16,000"),
        (
            "decode",
            "the same / transformers generate",
            ratio(of("decode", "shoal 64"), of("decode", "generate 64")),
            ".1f",
            "8",
        ),
        ("vllm", "the same / vLLM", ratio(of("decode", "shoal 64"), of("vllm", "vllm 64")), ".2f", "0.7"),
        ("decode", "decode, 256 answers, tokens a second", of("decode", "shoal 256"), ",.0f", "40,000"),
        ("vllm", "the same / vLLM", best, ".2f", "0.7"),
        ("trl", "update, seconds / TRL's", ratio(of("update", "seconds"), of("trl", "seconds")), ".2f", "at most 0.8"),
        ("trl", "update, memory / TRL's", ratio(of("update", "peak"), of("trl", "peak")), ".2f", "at most 0.5"),
        ("update", "update, seconds", of("update", "seconds"), ".2f", ""),
        ("guppies", "a round of four guppies on the GPU, seconds", of("guppies", "cuda"), ".2f", "at most 0.3"),
        ("guppies", "the same on the processor, seconds", of("guppies", "cpu"), ".2f", ""),
        ("reef", "100 rounds of reef, two SmolLM2, minutes", reef and reef * 100 / 60, ".1f", "at most 2"),
        ("kernels", "kernels for a token", of("kernels", "kernels"), ",.0f", "at most 400"),
        ("kernels", "copies to the host for a token", of("kernels", "copies to the host"), ".2f", "0"),
        ("kernels", "operator calls from Python for a token", of("kernels", "operator calls"), ",.0f", ""),
    ]
    for cap in CAPS:
        bytes_ = of(cap, "peak")
        rows.append((cap, f"0.5B, {cap} GB: peak in GiB", bytes_ and bytes_ / 2**30, ".1f", "within its cap"))
    lines = ["| work | here | target |", "|---|---|---|"]
    for part, name, value, form, target in rows:
        if part in found:
            shown = format(value, form) if value is not None else found[part].get("not run", "-")
            lines.append(f"| {name} | {shown} | {target} |")
    for part in ("ranks", "tests"):
        if part in found:
            said = (
                found[part].get("not run") or found[part].get("result") or f"{found[part]['seconds of 3 rounds']:.0f} s"
            )
            lines.append(f"| {'two processes on one card' if part == 'ranks' else 'tests marked gpu'} | {said} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
