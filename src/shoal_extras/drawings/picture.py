"""A drawing as points, by resvg: a renderer of SVG without scripts, which opens nothing by itself.

points_PPC = render(read_svg(text))           # PIXELS x PIXELS x 3, bytes
"""

from __future__ import annotations

import importlib.metadata
import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal.errors import UserError
from shoal.tasks.task import Failed
from shoal_extras.drawings.plain_svg import Drawing

PIXELS: Final = 96
"""Points of a side. P: a row or a column, C: red, green, blue."""
RULES_VERSION: Final = 2
"""Another one whenever a drawing may get another score."""


def load() -> str:
    """The version of the renderer and of these rules. It imports what rendering needs, since within the guard nothing
    can be imported. Raises `UserError` if it is not installed."""
    try:
        import resvg_py
        from PIL import PngImagePlugin  # noqa: F401
    except ImportError as error:
        raise UserError("tasks whose answers are drawings need resvg: pip install 'shoal[drawings]'") from error
    return f"resvg {resvg_py.__resvg_version__}+{RULES_VERSION} of {importlib.metadata.version('resvg_py')}"


def render(drawing: Drawing) -> NDArray[np.uint8]:
    """The points of a drawing on white, without smoothed edges. Raises `Failed` for what cannot be drawn."""
    import resvg_py
    from PIL import Image

    options: Any = {"skip_system_fonts": True, "shape_rendering": "crisp_edges", "background": "#ffffff"}
    try:
        data = resvg_py.svg_to_bytes(svg_string=drawing.text(), width=PIXELS, height=PIXELS, **options)
    except ValueError as error:
        raise Failed("no drawing", str(error)) from None
    with Image.open(io.BytesIO(bytes(data)), formats=("PNG",)) as picture:
        points_PPC = np.asarray(picture.convert("RGB"))
    if points_PPC.shape != (PIXELS, PIXELS, 3):
        raise Failed("no drawing", f"a picture of {points_PPC.shape}")
    return points_PPC
