"""Writes a model as a GGUF file, which llama.cpp, Ollama and shoal load.

    write_gguf(load("runs/one/checkpoints/round-000060/node-1", device), Path("model.gguf"), KINDS["Q8_0"])

The facts are those of llama.cpp's `convert_hf_to_gguf.py`. One tensor is in memory beside the model.
"""

from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np

from shoal.policy.loading import LanguageModel, display_name
from shoal.policy.template import chat_template
from shoal.untrusted import printable
from shoal_extras.gguf.families import add_settings, family_of
from shoal_extras.gguf.tensors import Kind, tensors_of
from shoal_extras.gguf.vocabulary import begins, special_tokens, vocabulary_of

LINES: Final = "{% for message in messages %}{{ message.content.rstrip() }}\n{% endfor %}"
"""The chat template of a model that answers in lines."""


def write_gguf(lm: LanguageModel, path: Path, kind: Kind, name: str = "") -> None:
    """Writes `lm`, called `name`, with matrices of `kind`.

    Raises `UserError` for a model that llama.cpp would compute differently, and `OSError`."""
    config: Any = lm.model.config
    name = name or display_name(lm.name)
    family = family_of(config, name)
    vocabulary = vocabulary_of(lm.tokenizer, config.vocab_size, name)
    writer = gguf.GGUFWriter(None, gguf.MODEL_ARCH_NAMES[family.arch])
    writer.add_name(printable(name, 100))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if kind == Kind.F32 else 'MOSTLY'}_{kind.name}"])
    add_settings(writer, family, config)
    vocabulary.write(writer)
    _add_ends(writer, lm)
    tensors = list(tensors_of(lm.model, family, kind))
    for tensor in tensors:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.nbytes, raw_dtype=tensor.kind)
    try:
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            writer.write_tensor_data(tensor.data())
    finally:
        writer.close()


def _add_ends(writer: gguf.GGUFWriter, lm: LanguageModel) -> None:
    """Adds how a text begins and ends, and how a chat is written."""
    tokenizer: Any = lm.tokenizer
    for token, id in special_tokens(tokenizer).items():
        {"bos": writer.add_bos_token_id, "unk": writer.add_unk_token_id, "pad": writer.add_pad_token_id}[token](id)
    chats = chat_template(tokenizer, lm.name) is not None
    # the end of a turn where there are turns; a line's end, which stops a base model here, is no end of a text
    end = lm.eos_id if chats or tokenizer.eos_token_id is None else tokenizer.eos_token_id
    writer.add_eos_token_id(end)
    if tokenizer.eos_token_id not in (None, end):
        writer.add_eot_token_id(tokenizer.eos_token_id)
    writer.add_add_bos_token(begins(tokenizer))
    writer.add_add_eos_token(False)
    if chats:
        writer.add_chat_template(tokenizer.get_chat_template())
    elif lm.answers_in_lines:
        writer.add_chat_template(LINES)
