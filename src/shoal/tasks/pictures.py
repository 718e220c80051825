"""Pictures of questions as addresses that hold them, for pages and for models behind an endpoint."""

import base64
import io

from PIL import Image

from shoal.rollout import Picture


def data_address(picture: Picture, width: int = 0) -> str:
    """The picture as a PNG. `width`: in pixels; each pixel of the picture becomes a square. 0: as it is."""
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
    if scale := width // picture.width:
        image = image.resize((scale * picture.width, scale * picture.height), Image.Resampling.NEAREST)
    out = io.BytesIO()
    image.save(out, "PNG")
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
