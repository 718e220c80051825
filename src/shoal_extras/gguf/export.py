"""`shoal export --to gguf:FILE`: a model as one GGUF file, which llama.cpp, Ollama and shoal load, and its card.

The facts are those of llama.cpp's `convert_hf_to_gguf.py`. Tensors wait in a temporary file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import gguf
import numpy as np
import torch

from shoal.errors import UserError
from shoal.policy.loading import LanguageModel, display_name
from shoal.policy.template import chat_template
from shoal.untrusted import printable
from shoal_extras.export.exported import Exported
from shoal_extras.export.writing import keep, scratch_beside
from shoal_extras.gguf.families import Family, add_settings, family_of, head_dim_of, rope_of
from shoal_extras.gguf.modelfile import modelfile
from shoal_extras.gguf.vocabulary import add_vocabulary

Kind = gguf.GGMLQuantizationType
KINDS: Final = {kind.name: kind for kind in (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0)} | {
    kind.name: kind for kind in (Kind.Q5_1, Kind.Q5_0, Kind.Q4_1, Kind.Q4_0)
}
"""How matrices may be written, the most exact first."""
FINE: Final = ("token_embd.weight", "output.weight")
"""They have 8 bits where others have 4 or 5: all answers go through them."""


def tensors_of(model: Any, family: Family, kind: Kind) -> Iterator[tuple[str, np.ndarray[Any, Any], Kind]]:
    """Name, bytes and kind of each tensor of `model`, made one at a time. Matrices are of `kind` if their rows divide
    into its blocks, else F16; the rest is F32.

    Raises `UserError` for a weight that llama.cpp does not know, and for numbers that its kind cannot hold."""
    config = model.config
    names = gguf.get_tensor_name_map(family.arch, config.num_hidden_layers)
    if rope_of(config)["rope_type"] == "llama3":
        yield "rope_freqs.weight", _rope_factors(model), Kind.F32
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise UserError(f"the weight {name} has no name in llama.cpp's {gguf.MODEL_ARCH_NAMES[family.arch]}")
        values = weight.detach().to("cpu", torch.float32)
        if family.shifted_norms and name.endswith("norm.weight"):
            values = values + 1
        heads = _heads(name, config) if family.paired else None
        array = (values if heads is None else _paired(values, heads)).numpy()
        as_kind = _kind_of(known, weight, kind)
        if as_kind == Kind.F16 and not (np.abs(array) <= np.finfo(np.float16).max).all():
            raise UserError(f"{known} has numbers that F16 cannot hold: write BF16 or F32, as in gguf:NAME.BF16.gguf")
        yield known, gguf.quants.quantize(np.ascontiguousarray(array), as_kind), as_kind


def _kind_of(name: str, weight: torch.Tensor, kind: Kind) -> Kind:
    if weight.dim() < 2:
        return Kind.F32
    if name in FINE and kind.name.startswith(("Q4", "Q5")):
        kind = Kind.Q8_0
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return kind if weight.shape[-1] % block == 0 else Kind.F16


def _heads(name: str, config: Any) -> int | None:
    """The number of heads in a weight of queries or keys; None for all others."""
    found = re.search(r"self_attn\.([qk])_proj\.(weight|bias)$", name)
    if not found:
        return None
    return int(config.num_attention_heads if found[1] == "q" else config.num_key_value_heads)


def _paired(values: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of each head in llama.cpp's order. transformers turns dimension i with i + half, llama.cpp 2 i with
    2 i + 1."""
    halves: torch.Tensor = values.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


def _rope_factors(model: Any) -> np.ndarray[Any, Any]:
    """What llama.cpp divides the usual frequencies by."""
    head_dim, base = head_dim_of(model.config), rope_of(model.config)["rope_theta"]
    usual = 1 / base ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    factors: np.ndarray[Any, Any] = (usual / model.model.rotary_emb.inv_freq.double()).float().numpy()
    return factors


DEFAULT_KIND: Final = Kind.F16
"""Of a GGUF file whose name says none."""


@dataclass(frozen=True)
class GGUFTarget:
    """A GGUF file, and beside it the card and a Modelfile for Ollama."""

    out: Path
    kind: Kind

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises `UserError` if `text` is no name of a GGUF file, or files are there already."""
        out = Path(text)
        if out.suffix != ".gguf" or not out.name.isprintable():
            raise UserError(f"'{out}' is no name of a GGUF file: write gguf:NAME.gguf, or gguf:NAME.Q8_0.gguf")
        said = re.fullmatch(r".*[.\-_]((?:I?Q\d|B?F\d|TQ\d)\w*)", out.stem, re.IGNORECASE)
        if said and said[1].upper() not in KINDS:
            raise UserError(f"GGUF files are not written as {said[1]}: choose from {', '.join(KINDS)}")
        target = cls(out, KINDS[said[1].upper()] if said else DEFAULT_KIND)
        target.check()
        return target

    @property
    def files(self) -> list[Path]:
        """The file, its card and its Modelfile."""
        return [self.out, self.out.with_suffix(".md"), self.out.with_suffix(".Modelfile")]

    def check(self) -> None:
        """Raises `UserError` if one of the files exists."""
        for file in self.files:
            if file.exists():
                raise UserError(f"'{file}' exists and is not overwritten: choose another name")

    def write(self, model: Exported) -> list[str]:
        """Adapters are added to the weights of their base."""
        lm = model.load()
        model.say(f"writing {self.out} ({self.kind.name})")
        with scratch_beside(self.out) as scratch:
            file, *others = (scratch / path.name for path in self.files)
            others[0].write_text(model.card("gguf", self.out.name), encoding="utf-8")
            others[1].write_text(modelfile(lm, self.out.name, model.plain), encoding="utf-8")
            write_gguf(lm, file, self.kind, model.name, model.plain)
            keep(scratch)
            self.check()  # meanwhile somebody may have written there
            for path in reversed(self.files):
                (scratch / path.name).replace(path)
        return [str(path) for path in self.files]


def write_gguf(lm: LanguageModel, path: Path, kind: Kind, name: str = "", plain: bool = False) -> None:
    """Writes `lm`, called `name`, with matrices of `kind`. `plain`: without its way of asking.

    Raises `UserError` for a model that llama.cpp would compute differently, and `OSError`."""
    config: Any = lm.model.config
    name = name or display_name(lm.name)
    family = family_of(config, name)
    writer = gguf.GGUFWriter(None, gguf.MODEL_ARCH_NAMES[family.arch], use_temp_file=True)
    writer.add_name(printable(name, 100))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if kind == Kind.F32 else 'MOSTLY'}_{kind.name}"])
    add_settings(writer, family, config)
    add_vocabulary(writer, lm.tokenizer, config.vocab_size, name)
    _add_ends(writer, lm, plain)
    try:
        for tensor, data, as_kind in tensors_of(lm.model, family, kind):
            writer.add_tensor(tensor, data, raw_dtype=as_kind)
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _add_ends(writer: gguf.GGUFWriter, lm: LanguageModel, plain: bool) -> None:
    """Adds how a text begins and ends, and how a chat is written."""
    tokenizer: Any = lm.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    for id, add in (
        (bos, writer.add_bos_token_id),
        (tokenizer.unk_token_id, writer.add_unk_token_id),
        (tokenizer.pad_token_id, writer.add_pad_token_id),
    ):
        if id is not None:
            add(id)
    chats = bool(tokenizer.chat_template)
    # the end of a turn where there are turns; a line's end, which stops a base model here, is no end of a text
    end = lm.eos_id if chats or eos is None else eos
    writer.add_eos_token_id(end)
    said = lm.model.generation_config.eos_token_id
    others = dict.fromkeys([eos, *(said if isinstance(said, list) else [said])])
    ends = [id for id in others if id not in (None, end)]
    if len(ends) > 2:
        raise UserError(f"a GGUF file holds three stop tokens, and the model has {len(ends) + 1}")
    if not plain:  # it then answers as here, where a base model answers in a line
        ends += sorted(lm.stop_ids.difference([end, *ends]), key=lambda id: id != lm.eos_id)[: 2 - len(ends)]
    for id, add in zip(ends, (writer.add_eot_token_id, writer.add_eom_token_id), strict=False):
        add(id)
    writer.add_add_bos_token(bos is not None and tokenizer("x").input_ids[0] == bos)
    writer.add_add_eos_token(False)
    if not plain or lm.answers_in_lines or chats:
        writer.add_chat_template(chat_template(tokenizer, lm.name).source if plain else lm.chat_template)
