"""Reading folders of LoRA adapters in peft's format."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.errors import UserError, in_brief
from shoal.untrusted import parse_json, read_regular

ADAPTER_CONFIG = "adapter_config.json"
"""The file that marks a folder of adapters."""
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
PREFIX = "base_model.model."
"""Of the names in a file, if peft's own class wrote it."""
MOST_BYTES = 2**20
"""Of that file."""


def is_adapters(folder: Path) -> bool:
    """Whether `folder` holds adapters."""
    return (folder / ADAPTER_CONFIG).is_file()


def base_name(folder: Path) -> str:
    """The model that the adapters in `folder` belong to: a Hugging Face name, a path, or guppy."""
    try:
        name = parse_json(read_regular(folder / ADAPTER_CONFIG, MOST_BYTES))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / ADAPTER_CONFIG} cannot be read: {in_brief(error)}") from error
    if not name or not isinstance(name, str):
        raise UserError(f"{folder / ADAPTER_CONFIG} does not say what model it belongs to (base_model_name_or_path)")
    return name


def fill_adapters(model: Any, folder: Path, base: str) -> None:
    """Loads the adapters in `folder` into those of `model`, whose base has the name `base`."""
    peft = import_peft()
    if not any((folder / file).is_file() for file in WEIGHTS):  # peft would look on the Hub
        raise UserError(f"the adapters in '{folder}' have no weights: {' or '.join(WEIGHTS)} is missing")
    try:
        saved = peft.load_peft_weights(str(folder), device=str(model.device))
        misfits = peft.set_peft_model_state_dict(model, saved).unexpected_keys
    except Exception as error:  # a damaged file, or other shapes
        reason = in_brief(error).replace("Error(s) in loading state_dict for ", "")
        raise UserError(f"the adapters in '{folder}' do not fit model '{base}': {reason}") from error
    if misfits:
        raise UserError(f"the adapters in '{folder}' do not fit model '{base}': it has no {misfits[0]}")
    there, wanted = (
        {name.removeprefix(PREFIX) for name in one} for one in (saved, peft.get_peft_model_state_dict(model))
    )
    lacking = sorted(wanted - there)
    if lacking:
        raise UserError(f"the adapters in '{folder}' lack {len(lacking)} matrices, such as {lacking[0]}")


def merged_with_adapters(model: Any, folder: Path, base: str) -> Any:
    """`model`, whose name is `base`, with the adapters in `folder` added to its weights: an ordinary model."""
    peft = import_peft()
    try:
        with quiet():
            settings = peft.PeftConfig.from_pretrained(folder)
            _untie(model, settings)
            adapted = peft.PeftModel(model, settings)
            fill_adapters(adapted, folder, base)
            merged = adapted.merge_and_unload()
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:  # some kinds cannot be merged
        raise UserError(f"the adapters in '{folder}' cannot be merged: {in_brief(error)}") from error
    return merged.requires_grad_(True)


def _untie(model: Any, settings: Any) -> None:
    """Gives the output layer a matrix of its own if it shares one with the embeddings, and either has adapters."""
    targets = settings.target_modules or ()
    named = [targets] if isinstance(targets, str) else targets
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if module in ends}
    if ends[0].weight is ends[1].weight and any(name.rpartition(".")[2] in names or "|" in name for name in named):
        ends[1].weight = type(ends[1].weight)(ends[1].weight.detach().clone())
        model.config.get_text_config().tie_word_embeddings = model.config.tie_word_embeddings = False


def import_peft() -> Any:
    """The module peft. Raises `UserError` if it is not installed."""
    try:
        import peft
    except ImportError as error:
        raise UserError("LoRA needs peft, which is not installed: pip install 'shoal[lora]'") from error
    return peft


@contextmanager
def quiet() -> Iterator[None]:
    """Hides peft's warnings about settings that it corrects by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
