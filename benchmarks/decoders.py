"""Engines decode the same prompts in turns: 8 questions, 8 completions of each, of 64 and of 256 tokens, with and
without three worked examples before each question.

    python benchmarks/decoders.py WORKLOAD OUT.json [--repeats N] [--threads N] [--lengths 64,256]
        [--python NAME=PYTHON ...] [--only "NAME FORMAT" ...]

`--python`: an engine of `decoder.py` and the Python of its environment; `shoal` and `transformers` need none. Four
questions are of one task and four of another; those of a task share its examples. Each engine is measured in float32
and in the format in which it is fastest. shoal is measured in every repeat, the others in every other one, from the
second on. Beside seconds stand those of processor time: with one thread they count where others use the machine, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FORMATS = {
    "shoal": ["float32", "bfloat16"],
    "transformers": ["float32", "bfloat16"],
    "llama.cpp": ["F32", "Q8_0"],
    "vllm": ["float32", "bfloat16"],
}
Works = dict[str, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", action="append", default=[], help="NAME=PYTHON")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", default="64,256")
    parser.add_argument("--only", action="append", help='such as "vllm bfloat16"; default: all')
    args = parser.parse_args()
    model = args.workload / "model"
    pythons = dict.fromkeys(("shoal", "transformers"), sys.executable)
    pythons |= dict(pair.split("=", 1) for pair in args.python)
    if "llama.cpp" in pythons:
        for format in FORMATS["llama.cpp"]:
            write_gguf(Path(f"{model}.{format}.gguf"), format)
    works = make_works(model, [int(length) for length in args.lengths.split(",")])
    wanted = [(name, format) for name in pythons for format in FORMATS[name]]
    wanted = [pair for pair in wanted if not args.only or " ".join(pair) in args.only]
    contenders = []
    for name, format in wanted:
        try:
            contenders.append(Contender(name, pythons[name], model, format, args.threads))
        except EndedError as error:
            print(f"not run: {error}", file=sys.stderr)
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    loads = [os.getloadavg()[0]]
    for contender in contenders:
        contender.decode({**next(iter(works.values())), "length": 4, "seed": 0})  # the first sets things up
    for repeat in range(args.repeats):
        for contender in contenders:
            if contender.name != "shoal" and repeat % 2 == 0:
                continue
            for work, asked in works.items():
                took = contender.decode({**asked, "seed": 8 * repeat})
                figures.setdefault(contender.label, {}).setdefault(work, []).append(took)
                print(repeat, contender.label, work, took, file=sys.stderr)
                args.out.write_text(json.dumps({"threads": args.threads, "loads": loads, "figures": figures}))
        loads.append(os.getloadavg()[0])
    if figures:
        print(table(figures), file=sys.stderr)


class EndedError(Exception):
    """A contender's process is gone."""


class Contender:
    """An engine in a process of its own."""

    def __init__(self, name: str, python: str, model: Path, format: str, threads: int) -> None:
        self.name, self.label = name, f"{name} {format}"
        command = [python, HERE / "decoder.py", name, model, format, threads]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    def decode(self, work: dict[str, Any]) -> dict[str, float]:
        assert self.process.stdin
        print(json.dumps(work), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise EndedError(f"{self.label} ended with {self.process.wait()}")
        return json.loads(line)  # type: ignore[no-any-return]


def make_works(model: Path, lengths: list[int]) -> Works:
    """The prompts as tokens, so that all engines read the same."""
    import torch
    from prefix import TASKS, make_questions

    from shoal.policy.language import LanguagePolicy
    from shoal.policy.loading import load

    policy = LanguagePolicy(load(str(model), torch.device("cpu")))
    works: Works = {}
    for examples in (0, 3):
        prompts = [policy.prompt_ids(question) for question in make_questions(TASKS[:2], 8, examples)]
        for length in lengths:
            works[f"{length} tokens, {examples} examples"] = {"prompts": prompts, "generations": 8, "length": length}
    return works


def write_gguf(path: Path, format: str) -> None:
    """The workload's model, whose matrices get another format."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants
    from workload import GGUF

    if path.exists():
        return
    read = GGUFReader(GGUF)
    writer = GGUFWriter(path, read.get_field("general.architecture").contents())
    for field in read.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            of_items = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of_items)
    for tensor in read.tensors:
        whole = quants.dequantize(tensor.data, tensor.tensor_type).reshape([int(n) for n in reversed(tensor.shape)])
        kind = GGMLQuantizationType[format] if whole.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quants.quantize(whole, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rate(took: list[dict[str, float]], clock: str) -> float:
    """Tokens a second."""
    return statistics.median(each["tokens"] / each[clock] for each in took)


def table(figures: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    """Tokens a second of each engine and work, and of processor time in brackets."""
    works = list(next(iter(figures.values())))
    lines = ["".join(["tokens/s".ljust(24), *(work.rjust(26) for work in works)])]
    for label, of_works in figures.items():
        cells = [f"{rate(of_works[w], 'seconds'):.0f} ({rate(of_works[w], 'processor'):.0f})" for w in of_works]
        lines.append("".join([label.ljust(24), *(cell.rjust(26) for cell in cells)]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
