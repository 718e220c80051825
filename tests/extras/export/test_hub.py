"""The Hugging Face Hub: a repository of its own, private unless asked; what goes wrong is one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from fake_hub import FakeHub
from huggingface_hub import HfApi

from shoal.errors import UserError
from shoal_extras.export.export import HubTarget


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.utils._http.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    with FakeHub() as hub:
        monkeypatch.setattr("shoal_extras.export.export.HfApi", lambda: HfApi(endpoint=hub.address))
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# a card\n")
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 8)
    return tmp_path


@pytest.mark.parametrize("public", [False, True])
def test_a_folder_becomes_one_commit(hub: FakeHub, folder: Path, public: bool) -> None:
    target = HubTarget.find("mine", public)
    assert target.name == "me/mine"
    assert hub.repos == {}  # nothing is made before there is something to upload
    target.upload(folder)
    assert hub.repos == {"me/mine": {path.name: path.read_bytes() for path in folder.iterdir()}}
    assert hub.private == {"me/mine": not public}
    assert target.address == f"{hub.address}/me/mine"


def test_what_is_there_is_not_overwritten(hub: FakeHub, folder: Path) -> None:
    hub.repos["me/mine"] = {"README.md": b"precious"}
    hub.repos["me/empty"] = {".gitattributes": b""}
    with pytest.raises(UserError, match="me/mine is on the Hub already"):
        HubTarget.find("me/mine", public=False)
    HubTarget.find("me/empty", public=False).upload(folder)  # as an upload that was cut short leaves it
    assert "README.md" in hub.repos["me/empty"]


def test_a_private_model_does_not_get_into_a_public_repository(hub: FakeHub) -> None:
    hub.repos |= {"me/seen": {}, "me/unseen": {}}
    hub.private |= {"me/seen": False, "me/unseen": True}
    with pytest.raises(UserError, match=r"me/seen is on the Hub already \(public\)"):
        HubTarget.find("me/seen", public=False)
    with pytest.raises(UserError, match=r"already \(private\)"):
        HubTarget.find("me/unseen", public=True)
    assert HubTarget.find("me/seen", public=True).public


def test_without_a_login_or_rights_one_line_says_so(
    hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HubTarget.find("theirs/model", public=False)
    with pytest.raises(UserError, match=r"no right to write there"):
        target.upload(folder)
    with pytest.raises(UserError, match="is no name on the Hub"):
        HubTarget.find("a b/c", public=False)
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    with pytest.raises(UserError, match="HTTP 401"):
        HubTarget.find("mine", public=False)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(UserError, match="hf auth login"):
        HubTarget.find("mine", public=False)


def test_without_a_network_one_line_says_so(hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_extras.export.export.HfApi", lambda: HfApi(endpoint="http://127.0.0.1:9"))
    with pytest.raises(UserError, match=r"cannot reach the Hub at http://127.0.0.1:9"):
        HubTarget.find("me/mine", public=False)
    monkeypatch.setattr("huggingface_hub.utils._http.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE"):
        HubTarget.find("me/mine", public=False)


def test_a_server_that_fails_is_named(hub: FakeHub, folder: Path) -> None:
    target = HubTarget.find("mine", public=False)
    hub.fails = True
    with pytest.raises(UserError, match="did not take me/mine"):
        target.upload(folder)
