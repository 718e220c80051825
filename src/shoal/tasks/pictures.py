"""The pictures of a question by its identity alone, for those who show a question that somebody else asked.

    [picture] = pictures_of("count_dots", "1", seed=7, index=0)
    png(picture, width=256)          # the bytes of a PNG

Only the tasks of the suite `pictures` are drawn: an identity may come from a stranger's file.
"""

import base64
import io
from functools import cache

from PIL import Image

from shoal.config.tasks import PICTURES, TaskSpec
from shoal.rollout import Picture
from shoal.tasks.create import create_task
from shoal.tasks.suites import SUITES
from shoal.tasks.task import MAX_INDEX, Task


def pictures_of(task: str, version: str, seed: int, index: int) -> tuple[Picture, ...]:
    """Empty for a task or a number that is not that of a question with pictures."""
    spec = next((spec for spec in SUITES[PICTURES] if spec.name == task), None)
    if spec is None or not 0 <= seed < 2**63 or not 0 <= index <= MAX_INDEX:
        return ()
    made = _made(spec.name)
    return made.question(seed, index).pictures if made.version == version else ()


@cache
def _made(task: str) -> Task:
    """The task, which remembers the pictures that it drew last."""
    return create_task(TaskSpec(name=task))


def png(picture: Picture, width: int = 0) -> bytes:
    """The picture as a PNG. `width`: in pixels; each pixel of the picture becomes a square. 0: as it is."""
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
    if scale := width // picture.width:
        image = image.resize((scale * picture.width, scale * picture.height), Image.Resampling.NEAREST)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def data_address(picture: Picture, width: int = 0) -> str:
    """The PNG as an address for pages and for models behind an endpoint."""
    return f"data:image/png;base64,{base64.b64encode(png(picture, width)).decode()}"
