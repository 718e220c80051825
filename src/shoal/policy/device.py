"""Where a policy computes, and in which precision: probed, not assumed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal.errors import UserError


@dataclass(frozen=True)
class Placement:
    """A device and the precision of computation on it. Weights and optimiser states are float32 everywhere."""

    device: torch.device
    dtype: torch.dtype

    def __str__(self) -> str:
        where = str(self.device)
        if self.device.type == "cuda":
            where += f" ({torch.cuda.get_device_name(self.device)})"
        return f"{where}, {str(self.dtype).removeprefix('torch.')}"

    def autocast(self) -> torch.autocast:
        """A context in which matrix products run in `dtype`; without effect for float32."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)


def place(device: str = "auto", dtype: str = "auto") -> Placement:
    """The best placement that this machine has within the given wishes. `auto` never chooses mps, which was not tried.

    Raises `UserError` for a device that is not there, and for bfloat16 where it would be emulated.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"device '{device}' is not available ({reason}); use --device auto, cpu, mps or cuda"
        ) from error
    native = _has_native_bfloat16(chosen)
    if dtype == "bfloat16" and not native:
        raise UserError(f"{chosen} has no bfloat16 in hardware and would emulate it, slowly; use --dtype float32")
    if dtype == "auto":
        dtype = "bfloat16" if native and chosen.type == "cuda" else "float32"
    return Placement(chosen, torch.bfloat16 if dtype == "bfloat16" else torch.float32)


def _has_native_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":  # the only probe that torch 2.6 to 2.13 share; other processors count as without
        return torch.cpu._is_avx512_bf16_supported()
    return False
