"""Steps of decoding as CUDA graphs: captured once for a shape, then repeated without the host.

A step of a model with 24 layers starts some 1,500 kernels. From Python that takes ten times as long as the kernels do.
"""

from __future__ import annotations

from typing import Any

import torch

from shoal.errors import in_brief, say_once
from shoal.policy.decoders.rows import Rows
from shoal.policy.device import Placement


class Graphs:
    """The captured steps of the last shape of a batch, with the tensors that they work on.

    rows = graphs.rows(rows)        # those of the last batch, refilled, if they have the same shape
    graphs.step(rows)
    """

    def __init__(self, model: Any, placement: Placement) -> None:
        """On another device than CUDA nothing is captured: the same steps run one by one."""
        self.model, self.placement = model, placement
        self.copies: dict[Any, torch.Tensor] = {}
        """For `cast_once`: a graph reads the weights where they were when it was captured."""
        self._rows: Rows | None = None
        self._captures = placement.device.type == "cuda"
        self._seen: dict[tuple[object, ...], torch.cuda.CUDAGraph | None] = {}

    def rows(self, made: Rows) -> Rows:
        """`made`, or rows that have its prompts and whose steps are captured already."""
        if self._rows is not None and self._rows.shape == made.shape:
            self._rows.refill(made)
        else:
            self._seen.clear()
            self._rows = made
        return self._rows

    def step(self, rows: Rows) -> None:
        """The first step with a key runs as it is and the second one is captured."""
        rows.make_room()
        key = rows.key
        if self._captures and key in self._seen:
            graph = self._seen[key] or self._capture(rows)
            if graph is not None:
                self._seen[key] = graph
                graph.replay()
                return
        self._seen[key] = None
        rows.step(self.model, self.placement)

    def _capture(self, rows: Rows) -> torch.cuda.CUDAGraph | None:
        """None where the model asks the device for something in between; then nothing more is captured."""
        graph = torch.cuda.CUDAGraph()
        others = [seen for seen in self._seen.values() if seen is not None]
        try:
            with torch.cuda.graph(graph, pool=others[0].pool() if others else None):
                rows.step(self.model, self.placement)
        except RuntimeError as error:  # of CUDA, or of torch
            self._captures = False
            say_once(f"steps of decoding cannot be captured and are slower ({in_brief(error)})")
            return None
        return graph
