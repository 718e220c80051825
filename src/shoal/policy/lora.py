"""LoRA: a frozen base with small trainable matrices beside its linear layers (arXiv 2106.09685), by peft.

    policy = LanguagePolicy(add_adapters(load("guppy", device), PolicyConfig(lora_r=8), seed=0), sampling, placement)

What is saved is peft's own format, so `PeftModel.from_pretrained(base, folder)` reads it; `load(folder)` and
`shoal merge` give an ordinary model, with the adapters added to the weights of the base.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from shoal.config.policy import GUPPY, PolicyConfig
from shoal.errors import UserError
from shoal.policy.loading import ADAPTER_CONFIG, LanguageModel, first_line, load


@dataclass(frozen=True)
class AdaptedModel(LanguageModel):
    """A model of which only adapters are trained, and saved: the base stays where it came from."""

    def save(self, folder: Path) -> None:
        """Writes adapter_config.json and adapter_model.safetensors, as peft does.

        By its parts: whole, it would look on the Hub each time for whether the base's vocabulary has grown.
        """
        model: Any = self.model
        state = _peft().get_peft_model_state_dict(model, save_embedding_layers=False)
        named = {f"base_model.model.{name}": tensor.contiguous() for name, tensor in state.items()}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        model.peft_config["default"].save_pretrained(str(folder))


def add_adapters(base: LanguageModel, config: PolicyConfig, seed: int) -> AdaptedModel:
    """`base` with fresh adapters, which change nothing yet. Its weights are shared, not copied, and frozen.

    Raises `UserError` without peft, and for target modules that the model does not have.
    """
    peft = _peft()
    wanted = config.lora_target_modules
    if wanted != ["all-linear"]:
        _check_targets(base, wanted)
    lora = peft.LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear" if wanted == ["all-linear"] else wanted,
        task_type="CAUSAL_LM",
    )
    model: Any = copy.deepcopy(base.model, {id(p): p for p in base.model.parameters()})
    cuda = [p.device for p in model.parameters() if p.is_cuda][:1]
    with _quiet(), torch.random.fork_rng(cuda):
        torch.manual_seed(seed)
        try:
            model.add_adapter(lora)
        except (ValueError, ImportError) as error:  # a kind of layer, or a version of peft, that does not go
            raise UserError(f"model '{base.name}' takes no LoRA adapters: {first_line(error)}") from error
    lora.base_model_name_or_path = _address(base.name)
    return AdaptedModel(**{**vars(base), "model": model.eval()})


def restore_adapters(base: LanguageModel, config: PolicyConfig, folder: Path) -> AdaptedModel:
    """`base` with the adapters that were saved in `folder`, to be trained further."""
    adapted = add_adapters(base, config, seed=0)
    _fill(adapted.model, folder, base.name)
    return adapted


def load_base(folder: Path, device: torch.device) -> LanguageModel:
    """The model that the adapters in `folder` belong to. Raises `UserError` if it is no longer where it was."""
    name = base_name(folder)
    if (Path(name).expanduser() / ADAPTER_CONFIG).is_file():  # they could go round in a circle
        raise UserError(
            f"the adapters in '{folder}' belong to '{name}', which are adapters too: `shoal merge` those first"
        )
    try:
        return load(name, device)
    except UserError as error:
        raise UserError(
            f"the adapters in '{folder}' belong to a model that is gone: {error} "
            f"(base_model_name_or_path in their {ADAPTER_CONFIG} says where it is)"
        ) from error


def load_merged(folder: Path, device: torch.device) -> LanguageModel:
    """The base of the adapters in `folder` with them added to its weights: an ordinary model."""
    peft = _peft()
    base = load_base(folder, device)
    try:
        with _quiet():
            model = peft.PeftModel(base.model, peft.PeftConfig.from_pretrained(folder))
            _fill(model, folder, base.name)
            merged = model.merge_and_unload()
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # kinds of adapters that cannot be merged
        raise UserError(f"the adapters in '{folder}' cannot be merged: {first_line(error)}") from error
    return LanguageModel(**{**vars(base), "name": str(folder), "model": merged.requires_grad_(True)})


def merge(folder: Path, out: Path) -> None:
    """`shoal merge`: writes the adapters in `folder`, merged into their base, as an ordinary Hugging Face folder."""
    if not (folder / ADAPTER_CONFIG).is_file():
        raise UserError(
            f"'{folder}' holds no adapters: it has no {ADAPTER_CONFIG}"
            + (" and is a whole model already" if (folder / "config.json").is_file() else "")
        )
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"'{out}' is {'not empty' if out.is_dir() else 'a file'}: choose another folder")
        merged = load_merged(folder, torch.device("cpu"))
        out.mkdir(parents=True, exist_ok=True)
        merged.save(out)
    except UserError:
        raise
    except Exception as error:  # what writes the weights has errors of its own
        raise UserError(f"cannot write '{out}': {first_line(error)}") from error


def base_name(folder: Path) -> str:
    """What the adapters in `folder` belong to: a Hugging Face name, a path, or guppy."""
    try:
        name = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / ADAPTER_CONFIG} cannot be read: {first_line(error)}") from error
    if not name or not isinstance(name, str):
        raise UserError(f"{folder / ADAPTER_CONFIG} does not say what model it belongs to (base_model_name_or_path)")
    return name


def _fill(model: Any, folder: Path, base: str) -> None:
    """Puts the saved adapters into those of `model`."""
    peft = _peft()
    try:
        saved = peft.load_peft_weights(str(folder), device=str(model.device))
        misfits = peft.set_peft_model_state_dict(model, saved).unexpected_keys
    except Exception as error:  # a damaged file, other shapes
        reason = first_line(error).replace("Error(s) in loading state_dict for ", "")
        raise UserError(f"the adapters in '{folder}' do not fit model '{base}': {reason}") from error
    if misfits:
        raise UserError(f"the adapters in '{folder}' do not fit model '{base}': it has no {misfits[0]}")


def _check_targets(base: LanguageModel, wanted: list[str]) -> None:
    names = [name for name, _ in base.model.named_modules()]
    unknown = [w for w in wanted if not any(name == w or name.endswith(f".{w}") for name in names)]
    if unknown:
        layers = {n.rpartition(".")[2] for n, m in base.model.named_modules() if getattr(m, "weight", None) is not None}
        raise UserError(f"model '{base.name}' has no layer '{unknown[0]}' for LoRA; it has {', '.join(sorted(layers))}")


def _address(name: str) -> str:
    """`name` as it is found from anywhere on this machine."""
    path = Path(name).expanduser()
    return str(path.resolve()) if name != GUPPY and path.exists() else name


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise UserError("LoRA needs peft, which is not installed: pip install 'shoal[lora]'") from error
    return peft


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what peft says of settings that it mends itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
