"""The model card: README.md, made from the run, with the licence of the model from which the run began.

    origin = origin_of("smollm2")             # Apache-2.0; that of a folder is what its README.md says
    text = card_of(story, origin, "my-model", "transformers")

What comes from strangers or from settings is shown as plain characters: nothing in it becomes a heading, a link, a row
of a table or a key of the front matter. No path of this machine and no address is in it.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
from huggingface_hub import HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from shoal import __version__
from shoal.config.policy import EMBEDDED, is_endpoint
from shoal.evaluation.pass_at_k import Estimate
from shoal.policy.named import NAMED
from shoal.runs.standing import RIGHT, measured
from shoal.untrusted import encodable, printable, read_regular
from shoal_extras.export.story import Story

Library = Literal["transformers", "peft", "gguf"]
HOME: Final = "https://github.com/shoal-rl/shoal"
MAKERS: Final = 10
"""Peers that are named."""
NAME: Final = 60
"""Characters of a name that are shown."""
SETTINGS: Final = 20_000
"""Characters of the settings that are shown."""
LICENCES: Final = {"smollm2": "apache-2.0", "gemma3-270m": "gemma"}
"""Of the models with short names, as the Hub calls them."""
TRANSFORMERS: Final = """from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

model_name = "."  # this folder, or the model's name on the Hub
tokenizer = AutoTokenizer.from_pretrained(model_name)
model = AutoModelForCausalLM.from_pretrained(model_name)
chat = [{"role": "user", "content": "Your question"}]
inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
settings = GenerationConfig.from_pretrained(model_name)
answer = model.generate(**inputs, generation_config=settings)[0, inputs["input_ids"].shape[1] :]
print(tokenizer.decode(answer, skip_special_tokens=True).strip())
"""
"""Lines that ask a folder."""
MOST_BYTES: Final = 2**18
"""Of a README.md that is read."""
PATIENCE: Final = 10.0
"""Seconds that the Hub has to say a model's licence."""


@dataclass(frozen=True)
class Origin:
    """What is known of a model from which others begin."""

    hub: str = ""
    """Its name on the Hub."""
    licence: str = ""
    """As the Hub calls it; empty: unknown."""
    title: str = ""
    """What it is, where it is not what the Hub has under that name: a quantised copy."""


def origin_of(model: str) -> Origin:
    """What is known of `model`: a short name, a file or folder, or a name on the Hub, which is asked. Never raises."""
    if model in EMBEDDED:
        return Origin(licence=_in_card(Path(str(files("shoal") / EMBEDDED[model]))))
    for named in NAMED.values():
        if model in (named.name, named.hub):
            return Origin(named.hub, LICENCES.get(named.name, ""), "" if model == named.hub else named.title)
    path = Path(model).expanduser()
    if path.exists() or is_endpoint(model):
        return Origin(licence=_in_card(path))
    try:
        data: Any = HfApi().model_info(model, timeout=PATIENCE).card_data
    except (HFValidationError, RepositoryNotFoundError):  # a folder that is gone, or a name that the Hub does not have
        return Origin()
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, OSError, ValueError):
        return Origin(model)
    return Origin(model, _known_licence(data.license if data else None))


def _in_card(folder: Path) -> str:
    """The licence that the README.md in a model's folder says."""
    try:
        text = read_regular(folder / "README.md", MOST_BYTES).decode("utf-8")
        data: Any = ModelCard(text, ignore_metadata_errors=True).data
    except Exception:  # a stranger's file: whatever a parser of YAML raises
        return ""
    return _known_licence(data.license)


def _known_licence(value: object) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[a-z0-9][a-z0-9.\-]{0,39}", value) else ""


def card_of(story: Story | None, origin: Origin, name: str, library: Library, file: str = "") -> str:
    """The card of a model called `name`. `story`: of the run that made it; None: shoal only wrote the model. `file`: of
    GGUF."""
    tags = ["shoal", *(["reinforcement-learning", "grpo"] if story else []), *(["gguf"] if library == "gguf" else [])]
    data = ModelCardData(
        license=origin.licence or None,
        base_model=origin.hub or None,
        library_name=library if library != "gguf" else None,
        tags=tags,
    )
    licence = f"Licence of the {'base' if story else 'model'}: " + (
        f"{escaped(origin.licence)}." if origin.licence else "unknown. Find it out before you pass the model on."
    )
    parts = [f"# {escaped(name)}"]
    if story is None:
        parts += [f"Written by [shoal]({HOME}) {__version__}, which knows of no training of it.", licence]
    else:
        parts += [_made(story, origin), licence, "## Held-out pass@1", *_figures(story), "## What the swarm gave"]
        parts += [*_swarm(story.own, story.makers), "## How to repeat it", *_settings(story)]
    parts += ["## How to ask it", *_asked(library, file)]
    return encodable(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n")


def _asked(library: Library, file: str) -> Iterator[str]:
    yield "What stood before a question in training is in its chat template: send the question alone."
    if library == "peft":
        yield (
            "These are adapters alone: transformers loads the base that `adapter_config.json` names. If that is a GGUF "
            "file or gone, `shoal export --merge` writes a whole model, which these lines ask."
        )
    if library != "gguf":
        yield fenced(TRANSFORMERS, "python")
        return
    file = printable(file, 100)
    made = shlex.quote(file.removesuffix(".gguf") + ".Modelfile")
    yield fenced(
        f"llama-server -m {shlex.quote(file)}    # then POST to /v1/chat/completions at http://127.0.0.1:8080\n"
        f"ollama create my-model -f {made} && ollama run my-model 'Your question'",
        "sh",
    )


def escaped(text: str, length: int = NAME) -> str:
    """`text` in one line as Markdown that shows it as it is."""
    plain = re.sub(r"([\\`*_{}\[\]<>()#|!~&@:$])", r"\\\1", printable(text, length).strip() or "?")
    return plain.replace("www.", "www\\.")  # which some renderers make a link


def fenced(text: str, language: str) -> str:
    """`text` as a block of code that nothing in it can end."""
    longest = max([2, *(len(ticks) for ticks in re.findall("`+", text))])
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _made(story: Story, origin: Origin) -> str:
    config = story.config
    base = f"[{escaped(origin.hub, 100)}](https://huggingface.co/{origin.hub})" if origin.hub else escaped(story.base)
    base += f" ({escaped(origin.title)})" if origin.title else ""
    swarm = "in a swarm of many machines" if story.joined else f"as one of {config.round.nodes} nodes on one machine"
    return (
        f"{base}, trained {swarm} by [shoal]({HOME}) {__version__}: collective reinforcement learning, in which nodes "
        f"share the text of what they tried. In each update it learned from up to {config.round.local} rollouts of its "
        f"own and {config.round.peers} of others."
    )


def _settings(story: Story) -> Iterator[str]:
    yield "Save this as `run.toml`. Paths and addresses are left out, or cut to their last part: put in your own."
    yield fenced(story.settings[:SETTINGS], "toml")
    if story.joined:
        yield "`shoal join ADDRESS --config run.toml` starts such a node; its peers will give other rollouts."
    else:
        yield f"`shoal run --config run.toml{' --allow-code' if story.config.code else ''}` repeats the run."


def _figures(story: Story) -> Iterator[str]:
    """All tasks together, then each. A task's questions are known where all have the same number."""
    if not story.evaluations:
        yield "It was not measured."
        return
    first, last = story.evaluations[0], story.evaluations[-1]
    if first["round"] == last["round"]:
        yield f"It was not measured after round {first['round']}."
        return
    evaluation = story.config.evaluation
    each = int(evaluation.questions)
    tasks = [key for key in last if key.startswith(f"{RIGHT}/") and None not in (first.get(key), last[key])]
    count = int(last.get("eval/questions") or each * max(1, len(tasks)))
    known = dict.fromkeys(tasks, each) if len(tasks) > 1 and count == each * len(tasks) else {}
    rows = []
    for key, n in {RIGHT: count, **known}.items():
        ends = measured([[row[key] for row in story.evaluations if row.get(key) is not None]], n)
        rows.append([escaped(key.removeprefix(RIGHT)[1:] or "all"), str(n), *map(_interval, ends)])
    if last.get("eval/blind") is not None:
        rows.append(["*answers that ignore the question*", "", "", f"{last['eval/blind']:.3f}"])
    yield _table(["tasks", "questions", f"round {first['round']}", f"round {last['round']}"], rows)
    yield (
        f"Right answers to questions that no node trains on, {evaluation.samples} for each question at "
        f"temperature {story.config.policy.temperature:g}, with 95 % Wilson intervals over questions. Scored by the "
        "tasks' own verifier."
    )


def _swarm(own: int, makers: Sequence[tuple[str, int, float]]) -> Iterator[str]:
    if not makers:
        yield f"Nothing: it learned from {own} rollouts of its own alone."
        return
    rows = [[escaped(name), str(rollouts), f"{share:.1%}"] for name, rollouts, share in makers[:MAKERS]]
    if rest := makers[MAKERS:]:
        count, share = sum(rollouts for _, rollouts, _ in rest), sum(share for *_, share in rest)
        rows.append([f"*{len(rest)} others*", str(count), f"{share:.1%}"])
    total = sum(rollouts for _, rollouts, _ in makers)
    yield f"It learned from {own} rollouts of its own and {total} of {len(makers)} other node{'s' * (len(makers) > 1)}."
    yield _table(["from", "rollouts", "contribution (share of the gradient)"], rows)


def _interval(share: Estimate) -> str:
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
