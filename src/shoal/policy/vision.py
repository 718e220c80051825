"""Vision-language models: how a question's pictures become tokens and features.

    attach_vision(model, tokenizer, AutoImageProcessor.from_pretrained(folder), folder)
    ids = vision_of(model).ids(model, picture)          # below 0: `policy.pictures`
    read(model, ids_RS, positions_RS, attending)        # a pass; the features of a picture are computed once in it

Shape suffixes: R rows, S tokens of each, C hidden size, N tokens of pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import torch
from PIL import Image

from shoal.errors import UserError, in_brief
from shoal.policy.attention import KeysValues, Reading, attention, reader
from shoal.policy.device import Placement
from shoal.policy.pictures import FAMILIES, MOST, NUMBER_BITS, number_of, picture_ids, place_of, positions
from shoal.rollout import Picture, seed_of

ATTRIBUTE: Final = "_shoal_vision"
INPUTS: Final = ("pixel_values", "pixel_attention_mask", "image_grid_thw")
"""What the forward pass of a model takes of what its image processor gives."""

KEPT: Final = 2**24
"""Bytes of pictures that are kept as the model takes them."""


class Vision:
    """The pictures that a model is shown. Copies of the model share it."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        """Raises `UserError` if the tokenizer has no token for pictures."""
        config = model.config
        self.family = FAMILIES[config.model_type]
        self.processor = processor
        self.image_id = int(config.image_token_id)
        self._options = {"do_image_splitting": False} if self.family.splits else {}
        named = {"image": self.image_id, "begin": config.to_dict().get("boi_token_index")}
        named["end"] = config.to_dict().get("eoi_token_index")
        tokens = {role: tokenizer.convert_ids_to_tokens(id) for role, id in named.items() if id is not None}
        if not tokens["image"]:
            raise UserError(f"model '{name}' has no token for pictures: its tokenizer does not know {self.image_id}")
        self._marker = tokenizer.convert_ids_to_tokens(int(getattr(config, self.family.marked_by)))
        self.written: str = self.family.written.format(**tokens)
        """What stands for a picture in a prompt's text, with one token `image_id`."""
        self._shown: WeakValueDictionary[int, Picture] = WeakValueDictionary()
        self._inputs: dict[Picture, dict[str, torch.Tensor]] = {}
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}
        """The tokens that a picture of one size takes, and its `span` (`picture_ids`)."""

    def __deepcopy__(self, _memo: Any) -> Vision:
        return self

    def in_text(self, piece: str) -> str:
        """A piece of a chat template's text as this family writes pictures in it."""
        return piece.replace(self._marker, self.written)

    def place(self, model: Any, ids: Sequence[int], pictures: Sequence[Picture]) -> list[int]:
        """A prompt with the tokens of `pictures` in their places. Raises `UserError` if it has not as many places."""
        places = [place for place, id in enumerate(ids) if id == self.image_id]
        if len(places) != len(pictures):
            raise UserError(f"the chat template shows {len(places)} of the question's {len(pictures)} pictures")
        found, start = [], 0
        for which, (place, picture) in enumerate(zip(places, pictures, strict=True)):
            found += [*ids[start:place], *self.ids(model, picture, which)]
            start = place + 1
        return [*found, *ids[start:]]

    def ids(self, model: Any, picture: Picture, which: int = 0) -> list[int]:
        """The tokens of the picture `which` of a question. They mean something as long as somebody has the picture.
        Raises `UserError` for one of too many tokens."""
        size = picture.width, picture.height
        if size not in self._sizes:
            with torch.no_grad():
                [features_NC] = self.features(model, [picture])
            count = len(features_NC)
            self._sizes[size] = count, self._span(model, picture) or count
        count, span = self._sizes[size]
        if count > MOST:
            raise UserError(f"a picture of {size[0]} x {size[1]} pixels takes {count} tokens; {MOST} are the most")
        number = seed_of(picture.hash, which) >> (63 - NUMBER_BITS)
        self._shown[number] = picture
        return picture_ids(number, count, span)

    def read(self, model: Any, ids_RS: torch.Tensor, positions_RS: torch.Tensor, attending: Any) -> Any:
        """See `read`."""
        is_text_RS = ids_RS >= 0
        embeddings_RSC = model.get_input_embeddings()(ids_RS.clamp(min=0))
        places = positions_RS
        if not is_text_RS.all():
            ids_N = ids_RS[~is_text_RS]
            numbers, which_N = number_of(ids_N).unique(return_inverse=True)
            features = self.features(model, [self._shown[number] for number in numbers.tolist()])
            starts = torch.tensor([0, *map(len, features)][:-1], device=ids_RS.device).cumsum(0)
            features_NC = torch.cat(features)[starts[which_N] + place_of(ids_N)]
            embeddings_RSC = embeddings_RSC.clone()
            embeddings_RSC[~is_text_RS] = features_NC.to(embeddings_RSC.dtype)
            if self.family.two_way:
                attending.pictures_RS = number_of(ids_RS).masked_fill(is_text_RS, -1)
            if self.family.in_grid:
                places = self._in_grid(model, ids_RS, positions_RS)
        return reader(model)(inputs_embeds=embeddings_RSC, position_ids=places, use_cache=False, attending=attending)

    def own_inputs(self, ids: torch.Tensor, pictures: Sequence[Picture]) -> dict[str, torch.Tensor]:
        """What the model's own forward pass takes, of a prompt (1, S) with `image_id` for each token of pictures."""
        if not pictures:
            return {"input_ids": ids}
        found = {"input_ids": ids, **self._processed(pictures, ids.device)}
        if self.family.kinds:
            found[self.family.kinds] = (ids == self.image_id).long()
        return found

    def save(self, folder: Path) -> None:
        self.processor.save_pretrained(folder)

    def features(self, model: Any, pictures: Sequence[Picture]) -> list[torch.Tensor]:
        """(N, C) of each picture."""
        found = model.get_image_features(**self._processed(pictures, model.device), return_dict=True)
        return list(found.pooler_output)

    def _processed(self, pictures: Sequence[Picture], device: torch.device) -> dict[str, torch.Tensor]:
        each = [self._input(picture) for picture in pictures]
        return {name: torch.cat([one[name] for one in each]).to(device) for name in each[0]}

    def _input(self, picture: Picture) -> dict[str, torch.Tensor]:
        if picture not in self._inputs:
            image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
            made: Mapping[str, Any] = self.processor(images=[image], return_tensors="pt", **self._options)
            found = {name: made[name] for name in INPUTS if name in made}
            if len(self._inputs) >= max(1, KEPT // sum(tensor.nbytes for tensor in found.values())):
                self._inputs.clear()
            self._inputs[picture] = found
        return self._inputs[picture]

    def _span(self, model: Any, picture: Picture) -> int:
        """0: as many positions as tokens."""
        if not self.family.in_grid:
            return 0
        merged: int = model.config.vision_config.spatial_merge_size
        return int(self._input(picture)["image_grid_thw"][0, 1:].max()) // merged

    def _in_grid(self, model: Any, ids_RS: torch.Tensor, positions_RS: torch.Tensor) -> torch.Tensor:
        """Positions (3, R, S): of time, row and column."""
        is_text_RS = ids_RS >= 0
        place_RS = place_of(ids_RS).masked_fill(is_text_RS, 0)
        merged = model.config.vision_config.spatial_merge_size
        width_RS = torch.ones_like(ids_RS)
        for number in number_of(ids_RS[~is_text_RS]).unique().tolist():
            width = int(self._input(self._shown[number])["image_grid_thw"][0, 2]) // merged
            width_RS[~is_text_RS & (number_of(ids_RS) == number)] = width
        start_RS = positions_RS - place_RS
        return torch.stack([start_RS, start_RS + place_RS // width_RS, start_RS + place_RS % width_RS])


def attach_vision(model: Any, tokenizer: Any, processor: Any, name: str) -> None:
    """Lets `model`, of one of `FAMILIES`, be shown pictures. Raises `UserError` if it cannot be."""
    if getattr(model.config.get_text_config(), "use_sliding_window", False):
        raise UserError(f"model '{name}' cannot be shown pictures here: its attention slides (use_sliding_window)")
    setattr(model, ATTRIBUTE, Vision(model, tokenizer, processor, name))


def vision_of(model: Any) -> Vision | None:
    """None: the model reads only text."""
    found: Vision | None = vars(model).get(ATTRIBUTE)
    return found


def read(model: Any, ids_RS: torch.Tensor, positions_RS: torch.Tensor, attending: Any) -> Any:
    """A pass through the model without its output layer, within `attention(model)`. Tokens below 0 are pictures'."""
    vision = vision_of(model)
    if vision is not None:
        return vision.read(model, ids_RS, positions_RS, attending)
    return model.base_model(ids_RS, position_ids=positions_RS, use_cache=False, attending=attending)


def output_logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Logits of last hidden states, in float32 at least."""
    logits: torch.Tensor = model.get_output_embeddings()(hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    config = model.config.get_text_config()
    if times := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * times
    if by := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / by
    softcap = getattr(config, "final_logit_softcapping", None)
    return torch.tanh(logits / softcap) * softcap if softcap else logits


def read_prefix(model: Any, ids: Sequence[int], placement: Placement) -> list[KeysValues]:
    """The keys and values of a prefix, with their gradient if it is enabled."""
    reading = Reading(keep=True)
    ids_1L = torch.tensor([ids], device=placement.device)
    positions_1L = torch.tensor([positions(ids)[:-1]], device=placement.device)
    with attention(model), placement.autocast():
        read(model, ids_1L, positions_1L, reading)
    return reading.layers


def check_pictures(model: Any, name: str, placement: Placement) -> None:
    """Raises `UserError` if log-probabilities behind a picture are not those of the model's own forward pass."""
    vision = vision_of(model)
    if vision is None:
        return
    try:
        error = picture_error(model, vision, placement)
    except Exception as problem:  # architectures refuse in many ways
        raise UserError(f"model '{name}' cannot be shown pictures here: {in_brief(problem)}") from problem
    if not error < placement.tolerance:  # NaN is refused too
        raise UserError(
            f"model '{name}' cannot be shown pictures here: behind one, its log-probabilities come out {error:.2g} "
            "nats off"
        )


@torch.no_grad()
def picture_error(model: Any, vision: Vision, placement: Placement) -> float:
    """The greatest difference in nats, over the tokens that follow a picture."""
    steps = range(256, 256 + 3 * 32 * 32)
    picture = Picture(32, 32, bytes(step * step // 7 % 256 for step in steps))
    shown = vision.ids(model, picture)
    V = model.get_output_embeddings().weight.shape[0]
    after = [5 % V, 9 % V, 7 % V]
    ids = [3 % V, *shown, *after]
    ids_1S = torch.tensor([ids], device=placement.device)
    with attention(model), placement.autocast():
        places = torch.tensor([positions(ids)[:-1]], device=placement.device)
        hidden = read(model, ids_1S, places, Reading()).last_hidden_state
        ours = output_logits(model, hidden[0, -len(after) :])
    with placement.autocast():
        own = vision.own_inputs(ids_1S.masked_fill(ids_1S < 0, vision.image_id), [picture])
        theirs = model(**own, use_cache=False).logits[0, -len(after) :]
    return float((ours.log_softmax(-1) - theirs.to(ours.dtype).log_softmax(-1)).abs().max())
