"""Takes a model away: to a folder, a GGUF file or a repository on the Hugging Face Hub.

    target = target_of("hub:my-model", public=False)      # asks the Hub whether there is room; UserError if not
    target.write(Exported.of(source_of("runs/one"), merge=False, say=print))

The Hub knows the user by his login (`hf auth login`, or HF_TOKEN). HF_ENDPOINT names another hub.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import httpx2
import huggingface_hub
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

from shoal.errors import UserError, in_brief
from shoal.untrusted import printable
from shoal_extras.export.exported import Exported
from shoal_extras.export.writing import check_folder, keep, scratch_beside
from shoal_extras.gguf.export import GGUFTarget

EMPTY: Final = {".gitattributes"}
"""The files of a repository in which nothing is yet."""


@dataclass(frozen=True)
class FolderTarget:
    """A new or empty folder."""

    out: Path

    def write(self, model: Exported) -> list[str]:
        """Writes the model and its card, as all targets do. Returns paths or addresses of what was written. Raises
        `UserError`."""
        with scratch_beside(self.out) as scratch:
            model.fill(scratch)
            keep(scratch)
            check_folder(self.out)  # meanwhile somebody may have written there
            scratch.replace(self.out)
        return [str(self.out)]


@dataclass(frozen=True)
class HubTarget:
    """A repository that is to be made, or is empty."""

    api: HfApi
    name: str
    """With the user or organisation."""
    public: bool

    @classmethod
    def find(cls, name: str, public: bool) -> Self:
        """Raises `UserError` if the name is none, the user is not logged in, or the repository holds files or is not
        as public as it should be."""
        api = HfApi()
        with hub_errors(name, api):
            if huggingface_hub.get_token() is None:
                raise UserError("you are not logged in to the Hugging Face Hub: `hf auth login`, or set HF_TOKEN")
            if "/" not in name:
                name = f"{api.whoami()['name']}/{name}"
            try:
                there = api.model_info(name)
            except RepositoryNotFoundError:
                return cls(api, name, public)
        if public == there.private or {file.rfilename for file in there.siblings or ()} - EMPTY:
            kind = "private" if there.private else "public"
            raise UserError(f"{name} is on the Hub already ({kind}) and is not overwritten: choose another name")
        return cls(api, name, public)

    @property
    def address(self) -> str:
        """Where people find it."""
        return f"{self.api.endpoint}/{self.name}"

    def write(self, model: Exported) -> list[str]:
        """Uploads the model and its card. Raises `UserError` for adapters of a model that is not on the Hub."""
        if model.as_adapters and not model.origin.hub:
            raise UserError("the adapters belong to a model that is not on the Hub: add --merge")
        with scratch_beside(Path(tempfile.gettempdir()) / self.name.replace("/", "-")) as scratch:
            model.fill(scratch, model.origin.hub)
            model.say(f"uploading to {self.address}")
            self.upload(scratch)
        return [self.address]

    def upload(self, folder: Path) -> None:
        """Makes the repository and uploads all files of `folder` as one commit. Raises `UserError`."""
        with hub_errors(self.name, self.api):
            self.api.create_repo(self.name, private=not self.public, exist_ok=True)
            self.api.upload_folder(repo_id=self.name, folder_path=folder, commit_message="Exported by shoal")


@contextmanager
def hub_errors(name: str, api: HfApi) -> Iterator[None]:
    """Turns what the Hub's client raises into one line."""
    try:
        yield
    except HFValidationError as error:
        raise UserError(
            f"'{name}' is no name on the Hub: write hub:NAME or hub:USER/NAME, of letters, digits, - _ ."
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        why = printable(error.server_message or in_brief(error), 200)
        if status in (401, 403):
            why = "you have no right to write there; take a token that has (`hf auth login`), or another name"
        raise UserError(f"the Hub did not take {name} (HTTP {status}): {why}") from error
    except (OfflineModeIsEnabled, httpx2.HTTPError, ConnectionError, TimeoutError) as error:
        raise UserError(f"cannot reach the Hub at {api.endpoint}: {printable(in_brief(error), 200)}") from error


def target_of(text: str, public: bool) -> FolderTarget | HubTarget | GGUFTarget:
    """Where `text` (hub:NAME, gguf:FILE, NAME.gguf or a folder) says. Raises `UserError` if nothing can be written
    there."""
    scheme, mark, rest = text.partition(":")
    if public and scheme != "hub":
        raise UserError("--public is for --to hub:NAME")
    if scheme == "hub" and rest:
        return HubTarget.find(rest, public)
    if scheme == "gguf" and rest:
        return GGUFTarget.of(rest)
    if text.endswith(".gguf") and not mark:
        return GGUFTarget.of(text)
    if mark and re.fullmatch(r"[A-Za-z]{2,}", scheme):
        raise UserError(f"'{text}' is nowhere to export to: write hub:NAME, gguf:NAME.gguf or a folder")
    check_folder(Path(text))
    return FolderTarget(Path(text))
