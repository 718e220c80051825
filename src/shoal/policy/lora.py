"""LoRA: a frozen base with small trainable matrices beside its linear layers (arXiv 2106.09685), by peft.

    policy = LanguagePolicy(add_adapters(load("guppy", device), rank=8, seed=0), sampling, placement)

Adapters are saved in peft's own format, so `PeftModel.from_pretrained(base, folder)` reads them. `load(folder)` and
`shoal export --merge` give an ordinary model, with the adapters added to the weights of the base.
"""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from shoal.config.policy import EMBEDDED
from shoal.errors import UserError, in_brief
from shoal.policy.adapters import fill_adapters, import_peft, quiet
from shoal.policy.loading import LanguageModel

ALPHA = 32
"""The output of adapters is multiplied by this divided by their rank."""


@dataclass(frozen=True)
class AdaptedModel(LanguageModel):
    """A model of which only adapters are trained and saved."""

    def save(self, folder: Path, plain: bool = False) -> None:
        """Writes adapter_config.json and adapter_model.safetensors, as peft does; these say nothing of a way of asking,
        so `plain` changes nothing. peft's own `save_pretrained` would look on the Hub each time whether the base's
        vocabulary has grown."""
        model: Any = self.model
        state = import_peft().get_peft_model_state_dict(model, save_embedding_layers=False)
        named = {f"base_model.model.{name}": tensor.contiguous() for name, tensor in state.items()}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        model.peft_config["default"].save_pretrained(str(folder))


def add_adapters(base: LanguageModel, rank: int, seed: int) -> AdaptedModel:
    """`base` with fresh adapters on every linear layer but the output layer, which change nothing yet. Its weights are
    shared, not copied, and frozen. Raises `UserError` without peft, and for models that take no adapters."""
    lora = import_peft().LoraConfig(r=rank, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = copy.deepcopy(base.model, {id(p): p for p in base.model.parameters()})
    cuda = [p.device for p in model.parameters() if p.is_cuda][:1]
    with quiet(), torch.random.fork_rng(cuda):
        torch.manual_seed(seed)
        try:
            model.add_adapter(lora)
        except (ValueError, ImportError) as error:  # an unsupported layer, or version of peft
            raise UserError(f"model '{base.name}' takes no LoRA adapters: {in_brief(error)}") from error
    lora.base_model_name_or_path = _address(base.name)
    return AdaptedModel(**{**vars(base), "model": model.eval()})


def restore_adapters(base: LanguageModel, rank: int, folder: Path) -> AdaptedModel:
    """`base` with the adapters that were saved in `folder`, to be trained further."""
    adapted = add_adapters(base, rank, seed=0)
    fill_adapters(adapted.model, folder, base.name)
    return adapted


def _address(name: str) -> str:
    """`name`, as an absolute path if it is a path."""
    path = Path(name).expanduser()
    return str(path.resolve()) if name not in EMBEDDED and path.exists() else name
