"""Loading a model with its tokenizer: one that ships with shoal, a short name (`named`), a folder (of a model or of
adapters), a GGUF file, or a name on the Hugging Face Hub."""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import huggingface_hub
import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from shoal.config.policy import EMBEDDED
from shoal.errors import UserError, in_brief, say_once
from shoal.inside import check_fetched, check_inside
from shoal.policy.adapters import ADAPTER_CONFIG, base_name, is_adapters, merged_with_adapters
from shoal.policy.asking import asked_source, taken
from shoal.policy.converted import converting, is_whole, keep
from shoal.policy.fetch import resolve
from shoal.policy.gguf_facts import facts_of
from shoal.policy.named import check_spelling, named, nearest
from shoal.policy.pictures import FAMILIES
from shoal.policy.plain import ids_of
from shoal.policy.template import LINES, OWN, chat_template, is_in_lines
from shoal.policy.trial import vocabulary
from shoal.policy.vision import Vision, attach_vision, vision_of
from shoal.rollout import Message
from shoal.untrusted import printable


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model, or a vision-language model, with what decoding needs."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: frozenset[int]
    """Tokens that end a completion."""
    eos_id: int
    """The one of `stop_ids` that ends a turn in this model's own format."""
    pad_id: int
    asking: tuple[Message, ...] = ()
    """What stands before a question that comes alone: a system text, worked examples. It is saved with the model."""

    @property
    def answers_in_lines(self) -> bool:
        """Whether it was trained on a question in a line and its answer in the next, as guppy was."""
        return is_in_lines(self.tokenizer)

    @property
    def vision(self) -> Vision | None:
        """Turns pictures into its tokens; None: it reads only text."""
        return vision_of(self.model)

    @property
    def chat_template(self) -> str:
        """The template that says `asking` before a question, in Jinja."""
        return asked_source(chat_template(self.tokenizer, self.name), self.asking, self.tokenizer)

    def save(self, folder: Path, plain: bool = False) -> None:
        """Writes an ordinary Hugging Face model folder that answers a question as this model does here: in the same
        way of asking, by the most likely tokens, up to the same end. `plain`: without that."""
        model: Any = self.model
        model.save_pretrained(folder)
        self.save_asking(folder, plain)
        if self.vision is not None:
            self.vision.save(folder)

    def save_asking(self, folder: Path, plain: bool = False) -> None:
        """Writes the tokenizer, whose chat template has the way of asking, and how an answer is generated and ends."""
        model: Any = self.model
        tokenizer: Any = self.tokenizer
        generation, own = model.generation_config, tokenizer.chat_template
        try:
            if not plain:
                ends = sorted(self.stop_ids.union(_ids(generation.eos_token_id)))
                generation = GenerationConfig(
                    eos_token_id=ends if len(ends) > 1 else ends[0],
                    pad_token_id=self.pad_id,
                    bos_token_id=generation.bos_token_id,
                    max_new_tokens=generation.max_new_tokens,
                    do_sample=False,
                )
                asked = self.chat_template
                tokenizer.chat_template = {**own, "default": asked} if isinstance(own, dict) else asked
            generation.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        finally:
            tokenizer.chat_template = own


LOCAL: Final = {"trust_remote_code": False, "local_files_only": True}
SHOWN: Final = 3
"""Weights that an error names."""
CONSTANT: Final = ".attn.masked_bias"
"""The end of the name of a constant that GPT-2's older files have."""
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
ALIGNMENT = 64
"""Bytes."""
SETTINGS: Final = "generation_config.json"
POINTER: Final = b"version https://git-lfs"


def load(name: str, device: torch.device) -> LanguageModel:
    """Loads `name` (see the module's docstring) in float32. Adapters are added to the weights of their base.

    Raises `UserError` with one line that says what is wrong: an unknown name or architecture, a damaged file, no end-
    of-sequence token.
    """
    transformers.logging.set_verbosity_error()
    huggingface_hub.logging.set_verbosity_error()  # it would report each retry
    transformers.logging.disable_progress_bar()
    folder = Path(name).expanduser()
    if name not in EMBEDDED and is_adapters(folder):
        check_inside(folder)
        base = load_base(folder, device)
        merged = merged_with_adapters(base.model, folder, base.name)
        check_finite(str(folder), merged)
        if not (folder / "tokenizer_config.json").is_file():
            return replace(base, name=str(folder), model=merged)
        try:  # what they were trained with: another chat template, another end
            own: Any = AutoTokenizer.from_pretrained(folder, **LOCAL)
        except Exception as error:
            raise UserError(
                f"the adapters in '{folder}' cannot be loaded: {_reason(name, 'tokenizer', error)}"
            ) from error
        check_vocabulary(name, merged, own)
        asking = _take_asking(own)
        return replace(language_model(name, merged, own), asking=asking)
    check_spelling(name)
    source, options = source_of(name)
    if "gguf_file" not in options:
        return _load(source if named(name) else name, source, options, device)  # on the Hub, if no index has it
    with converting(Path(source) / options["gguf_file"]) as kept:
        if kept and is_whole(kept):
            return _load(name, str(kept), LOCAL, device)
        if kept:
            say_once(f"reading {display_name(name)} for the first time, which takes a minute or so")
        return _load(name, source, options, device, kept)


def _load(
    name: str, source: str, options: dict[str, Any], device: torch.device, keep_in: Path | None = None
) -> LanguageModel:
    """Loads what stands at `source`. `keep_in`: where the model of a GGUF file is kept."""
    # Reading a GGUF file shows a progress bar that nothing turns off; downloads should show theirs.
    silence = contextlib.redirect_stderr(io.StringIO()) if "gguf_file" in options else contextlib.nullcontext()
    part = "config.json"
    try:
        with silence:
            config: Any = AutoConfig.from_pretrained(source, **options)
            sees = "gguf_file" not in options and config.model_type in FAMILIES
            if (Path(source) / SETTINGS).is_file():
                part = SETTINGS
                GenerationConfig.from_pretrained(source, local_files_only=True)  # a damaged one would be left out
            facts = facts_of(Path(source) / options["gguf_file"], config) if "gguf_file" in options else None
            said = {} if facts else config.get_config_dict(source, **options)[0]
            if not (facts.has_eos if facts else "eos_token_id" in {**said, **(said.get("text_config") or {})}):
                config.eos_token_id = config.get_text_config().eos_token_id = None  # not a default of transformers
            if facts and facts.rope:
                config.rope_parameters = facts.rope
            part = "tokenizer"
            tokenizer: Any = AutoTokenizer.from_pretrained(source, **options)
            part = "weights"
            _check_index(Path(source) / INDEX)
            auto: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
            wanted = {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
            model: Any
            model, found = auto.from_pretrained(source, config=config, **wanted, **options)
            processor = AutoImageProcessor.from_pretrained(source, backend="pil", **options) if sees else None
    except UserError as error:
        raise UserError(f"model '{name}' cannot be loaded: {error}") from error
    except MemoryError as error:
        raise UserError(f"model '{name}' does not fit into this machine's memory; take a smaller one") from error
    except Exception as error:  # loaders raise whatever their parsers do
        raise UserError(f"model '{name}' cannot be loaded: {_reason(name, part, error)}") from error
    check_weights(name, found)
    check_finite(name, model)
    check_vocabulary(name, model, tokenizer)
    if facts:
        model.generation_config.eos_token_id = sorted(facts.stop_ids.union(_ids(model.generation_config.eos_token_id)))
        if facts.pre == "superbpe":
            _cut_at_digits(tokenizer)
        # The weights are plain floats now; transformers would refuse to save them.
        del model.config.quantization_config
        model.hf_quantizer, model.is_quantized = None, False
        if keep_in:
            keep(model, tokenizer, keep_in)
    if processor is not None:
        attach_vision(model, tokenizer, processor, name)
    asking = _take_asking(tokenizer)
    loaded = replace(language_model(name, model, tokenizer), asking=asking)
    model.to(device)
    return loaded


def check_weights(name: str, found: Mapping[str, Any]) -> None:
    """Raises `UserError` if a model's files lack weights, or have others than the model: what is missing would be
    random. `found`: what transformers says of the loading."""
    wrong = (
        ("missing_keys", "lack"),
        ("unexpected_keys", "have beside the model's"),
        ("mismatched_keys", "have in other shapes"),
    )
    found = {keys: {key for key in found.get(keys) or () if not str(key).endswith(CONSTANT)} for keys, _ in wrong}
    others = sorted(found["unexpected_keys"])
    for keys, what in wrong:
        # of a weight in another shape this and the model's own
        names = sorted(k if isinstance(k, str) else f"{k[0]} ({list(k[1])} for {list(k[2])})" for k in found[keys])
        if names:
            alike = next((other for other in others for key in names if other.endswith(f".{key}")), "")
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            shown = printable(", ".join(names[:SHOWN]), 300) + more
            hint = f" (they have {printable(alike, 100)})" if keys == "missing_keys" and alike else ""
            raise UserError(f"model '{name}' cannot be loaded: its files {what} the weights {shown}{hint}")


def _check_index(file: Path) -> None:
    """Raises `UserError` if the list of a folder's files names one outside of it, or if the folder has weights beside
    those of the list: transformers would take these and say nothing."""
    if not file.is_file():
        return
    names = {str(name) for name in json.loads(file.read_bytes())["weight_map"].values()}
    check_inside(file.parent, sorted(names))
    if SINGLE not in names and (file.parent / SINGLE).is_file():
        raise UserError(f"it has its weights twice, in {SINGLE} and in the files of {file.name}: remove one of them")


def check_finite(name: str, model: Any) -> None:
    """Raises `UserError` if weights are no numbers, or infinite."""
    for weight, values in model.named_parameters():
        if not values.sum().isfinite() and not values.isfinite().all():  # a sum is fast, and may be too large
            raise UserError(
                f"model '{name}' cannot be loaded: its weights {weight} have values that are NaN or infinite"
            )


def check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    """Raises `UserError` if the tokenizer belongs to another model. Models may have room for more tokens than there
    are, and tokenizers added ones (of pictures) that a model does not read."""
    V = vocabulary(model)
    last = max(set(tokenizer.get_vocab().values()) - set(tokenizer.added_tokens_decoder), default=0)
    if last >= V or 2 * len(tokenizer) < V:
        raise UserError(
            f"model '{name}' cannot be loaded: its tokenizer has {max(last + 1, len(tokenizer))} tokens and its "
            f"weights {V}: they belong to different models"
        )


def language_model(name: str, model: Any, tokenizer: Any) -> LanguageModel:
    """A loaded model and tokenizer, with what decoding needs. Raises `UserError` if no token ends an answer."""
    if model.config.model_type == "rwkv":
        model.config.rescale_every = 0  # outside training it would scale its weights where they are, and save them so
    stop_ids = _stop_ids(name, model, tokenizer)
    if not stop_ids:
        where = (
            "tokenizer.ggml.eos_token_id in the file" if name.endswith(".gguf") else "eos_token_id in its config.json"
        )
        raise UserError(f"model '{name}' has no end-of-sequence token, so its answers could not end; set {where}")
    eos_id = _turn_end(tokenizer, name, stop_ids, vocabulary(model))
    if not tokenizer.chat_template and not is_in_lines(tokenizer):
        # A base model goes on with the next question: what it says in one line is its answer.
        found = (ids_of(tokenizer, text) for text in ("\n", "\n\n"))
        line_ends = [ids[0] for ids in found if len(ids) == 1]  # tokens that are an end of line and nothing else
        stop_ids, eos_id = stop_ids.union(line_ends), next(iter(line_ends), eos_id)
    pad_id = tokenizer.pad_token_id
    pad_id = eos_id if pad_id is None or pad_id >= vocabulary(model) else pad_id
    return LanguageModel(name, model, tokenizer, stop_ids, eos_id, pad_id)


def load_base(folder: Path, device: torch.device) -> LanguageModel:
    """The model below the adapters in `folder`, perhaps with adapters itself. Raises `UserError` if it is gone."""
    name, below, seen = base_name(folder), folder, set[Path]()
    while is_adapters(below):
        if below.resolve() in seen:
            raise UserError(f"the adapters in '{folder}' have no model below them: '{name}' leads back to itself")
        seen.add(below.resolve())
        below = Path(base_name(below)).expanduser()
    if name not in EMBEDDED and not named(name) and not Path(name).expanduser().exists():
        check_fetched(folder, name)
    try:
        return load(name, device)
    except UserError as error:
        raise UserError(
            f"the adapters in '{folder}' belong to a model that is gone: {error} "
            f"(base_model_name_or_path in their {ADAPTER_CONFIG} says where it is)"
        ) from error


def align(model: Any) -> None:
    """Copies weights that are not aligned in memory, before they are trained. Weights from a file may begin at any
    offset, and the last bits of MKL's products depend on the offset. Without the copies a resumed run would differ."""
    for weight in model.parameters():
        if weight.device.type == "cpu" and weight.data_ptr() % ALIGNMENT:
            weight.data = weight.data.clone()


def display_name(name: str) -> str:
    """A short name for people: the last part of a path, without `.gguf`."""
    return name if name in EMBEDDED else Path(name).name.removesuffix(".gguf")


def source_of(name: str) -> tuple[str, dict[str, Any]]:
    """The name and the options for `from_pretrained`. A model's own code is never run, nor asked about."""
    if name in EMBEDDED:
        return str(files("shoal") / EMBEDDED[name]), dict(LOCAL)
    name = resolve(name)
    path = Path(name).expanduser()
    if name.endswith(".gguf"):
        if not path.is_file():
            raise UserError(f"there is no file '{name}'")
        return str(path.parent), LOCAL | {"gguf_file": path.name}
    if path.is_dir():
        if not (path / "config.json").is_file():
            inside = next((f"; there is one in {below.parent}" for below in sorted(path.glob("*/config.json"))), "")
            raise UserError(f"folder '{name}' holds no model: it has no config.json{inside}")
        check_inside(path)
        return str(path), dict(LOCAL)
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"'{name}' is no model: give a Hugging Face name, a model folder or a .gguf file")
    return name, {"trust_remote_code": False}


def _reason(name: str, part: str, error: Exception) -> str:
    """`part`: what was read."""
    if "trust_remote_code" in str(error):
        return "it needs code of its own (auto_map in its files), which shoal never runs"
    if name.endswith(".gguf"):
        return (
            "the GGUF file is damaged, cut short or of an architecture that transformers does not read "
            f"({in_brief(error)})"
        )
    if isinstance(error, OSError) and not Path(name).exists():
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        return (
            f"no folder of this name here, and the Hugging Face Hub did not give it{offline}; "
            f"check the name and the network{nearest(Path(name))}"
        )
    for file in sorted(Path(name).glob("*.*")):
        if file.is_file() and file.open("rb").read(len(POINTER)) == POINTER:
            return f"{file.name} only points to a file in Git LFS: fetch that with git lfs pull"
    if part == "tokenizer" and "backend tokenizer" in str(error):
        return "it has no tokenizer: tokenizer.json, tokenizer.model or the like is missing"
    if part == "weights" and isinstance(error, KeyError):
        return f"its config.json asks for something unknown: {printable(str(error), 100)}"
    return f"its {part} cannot be read: {in_brief(error)}"


def _take_asking(tokenizer: Any) -> tuple[Message, ...]:
    """What `LanguageModel.save` put into the tokenizer's chat template, which then is the model's own."""
    several = tokenizer.chat_template
    source = several.get("default") if isinstance(several, dict) else several
    if not isinstance(source, str):
        return ()
    asking, own = taken(source)
    if own == LINES:
        tokenizer.init_kwargs["prompt_format"] = "lines"  # which a GGUF file cannot say
    if isinstance(several, dict):
        tokenizer.chat_template = {**several, "default": own}
    else:
        tokenizer.chat_template = None if own in OWN else own
    return asking


def _stop_ids(name: str, model: Any, tokenizer: Any) -> frozenset[int]:
    ids: set[int] = set()
    text, V = model.config.get_text_config(), vocabulary(model)
    for value in (model.generation_config.eos_token_id, text.eos_token_id, tokenizer.eos_token_id):
        ids.update(_ids(value))
    if beyond := [i for i in ids if isinstance(i, int) and i >= V]:
        print(f"model '{name}': stop token {max(beyond)} is none of its {V} tokens: left out", file=sys.stderr)
    return frozenset(i for i in ids if isinstance(i, int) and 0 <= i < V)


def _ids(value: Any) -> list[Any]:
    """What a setting says that is one id, several or none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _turn_end(tokenizer: Any, name: str, stop_ids: frozenset[int], V: int) -> int:
    """The stop token that the chat template puts after an answer; without a template, the tokenizer's own."""
    template, chat = chat_template(tokenizer, name), ""
    if template.takes(("user", "assistant")):
        chat = template.frame(("user", "assistant")).text(["a", "b"])
    ids = ids_of(tokenizer, chat)
    for one, what in ((ids, "chat template"), (tokenizer("a").input_ids, "tokenizer")):
        if max(one, default=0) >= V:
            token = printable(str(tokenizer.convert_ids_to_tokens(max(one))), 50)
            raise UserError(f"model '{name}' cannot be asked: its {what} writes {token}, which has no weights")
    ends = [i for i in ids if i in stop_ids]
    if ends:
        return int(ends[-1])
    return int(tokenizer.eos_token_id) if tokenizer.eos_token_id in stop_ids else min(stop_ids)


def _cut_at_digits(tokenizer: Any) -> None:
    """Has `tokenizer`, which transformers read from a GGUF file, cut texts into words as llama.cpp does with this file.

    transformers cuts all of them as GPT-2 does. That gives the same tokens for the models that it knows, and others for
    a tokenizer that cuts at digits alone, as guppy's does: `superbpe`, in llama.cpp's words."""
    if any(re.search(r"\d\d", token) for token in tokenizer.get_vocab()):
        return  # llama.cpp then makes words of three digits
    steps = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(steps)
