"""Where a policy computes, in which precision, and how much memory is free there: probed, not assumed."""

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
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

    @property
    def tolerance(self) -> float:
        """How many nats log-probabilities may be off where they are right: rounding, which bfloat16 does more of."""
        return 1e-2 if self.dtype == torch.float32 else 0.5


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


def free_bytes(device: torch.device) -> int:
    """Free bytes of `device`, or of this machine if the device has no memory of its own."""
    if device.type == "cuda":
        # what torch keeps for later tensors is free, too
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return free_ram()


def free_ram() -> int:
    """Bytes that the system would still give to this process, within the limit of its control group."""
    available = [int(psutil.virtual_memory().available)]
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        (group / "memory.max", group / "memory.current"),
        (group / "memory/memory.limit_in_bytes", group / "memory/memory.usage_in_bytes"),
    ):
        bound, taken = _lines(limit), _lines(used)
        if bound and taken and bound[0].isdigit():  # else "max"
            available.append(max(0, int(bound[0]) - int(taken[0])))
    return min(available)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether it says that memory ran out: a GPU's, or this machine's."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def give_back() -> None:
    """Gives memory that was freed, but that the C library keeps for later, back to the system: some 1.5 GB after the
    updates of four nodes of 135 million parameters. It takes a millisecond, and does nothing without glibc."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        except OSError:  # another C library
            return


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # another system, or another version of control groups
        return []
