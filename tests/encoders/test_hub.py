"""Tests of uploads to the hub, with a stub of the hub's client, and of the model card."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from calque.encoders import load_encoder
from calque.encoders.card import model_card
from calque.encoders.hub import check_repo, push
from calque.errors import InputError, OutputError, SettingError


@pytest.fixture
def hub(monkeypatch):
    """Replace the hub's client with a stub: `asked` records the calls, and `files` contains the
    files of the last commit.
    """
    import huggingface_hub

    class Api:
        files: ClassVar[dict[str, bytes]] = {}
        asked: ClassVar[list[tuple]] = []
        refusal: ClassVar[Exception | None] = None

        def create_repo(self, repo, *, private, exist_ok):
            if self.refusal:
                raise self.refusal
            self.asked.append(("repository", repo, private))
            return SimpleNamespace(repo_id="me/x")

        def create_branch(self, repo, *, branch, exist_ok):
            self.asked.append(("branch", repo, branch))

        def create_commit(self, repo, operations, *, commit_message, revision):
            self.asked.append(("commit", repo, commit_message, revision))
            for each in operations:
                content = each.path_or_fileobj
                data = content if isinstance(content, bytes) else Path(content).read_bytes()
                self.files[each.path_in_repo] = data
            return SimpleNamespace(commit_url="https://hub/me/x/commit/0")

    Api.files, Api.asked = {}, []
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setenv("HF_TOKEN", "hf_of_this_test")
    return Api


FRONT = """---
library_name: transformers
language: [en, de]
base_model: somebody/encoder
tags: [calque]
---

# Aligned
"""


@pytest.fixture
def folder(tiny_folder, tmp_path):
    folder = tmp_path / "aligned"
    load_encoder(tiny_folder, layer=1).save(folder)
    (folder / "README.md").write_text(FRONT)
    (folder / "calque-run.json").write_text(json.dumps({"langs": ["en", "de"]}))
    (folder / "training" / "checkpoint").mkdir(parents=True)
    (folder / "training" / "checkpoint" / "state.pt").write_bytes(b"state")
    (folder / ".aligned.lock").write_bytes(b"")
    return folder


def front(text: str):
    from huggingface_hub import ModelCard

    return ModelCard(text).data


def test_an_upload_is_one_commit_without_hidden_or_training_files(folder, hub):
    before = (folder / "README.md").read_text()
    url = push(folder, "me/aligned", private=True, message="First", revision="next", license="mit")
    assert url.endswith("/me/x/commit/0")
    assert hub.asked == [
        ("repository", "me/aligned", True),
        ("branch", "me/x", "next"),
        ("commit", "me/x", "First", "next"),
    ]
    assert not [name for name in hub.files if name.startswith((".", "training"))]
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "calque.json",
        "modules.json",
        "1_Pooling/config.json",
        "README.md",
        "calque-run.json",
    } <= set(hub.files)
    assert hub.files["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert (folder / "README.md").read_text() == before
    data = front(hub.files["README.md"].decode())
    assert (data.license, data.language, data.base_model) == (
        "mit",
        ["en", "de"],
        "somebody/encoder",
    )
    assert hub.files["README.md"].endswith(b"# Aligned\n")


def test_an_upload_contains_no_local_path(folder, hub):
    places = {
        "encoder_path": "../../home/ann/e5",
        "adapted": {"place": "/home/ann/Ä/base", "beside": "../base"},
    }
    (folder / "calque-run.json").write_text(json.dumps({"langs": ["en", "de"], **places}))
    (folder / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "~/models/e5", "r": 4}'
    )
    (folder / "README.md").write_text(
        f'{FRONT}\nBASE = "/home/ann/Ä/base"\nsee /home page\n', encoding="utf-8"
    )
    before = {
        name: (folder / name).read_bytes()
        for name in ("calque-run.json", "adapter_config.json", "README.md")
    }
    push(folder, "me/aligned")
    assert {name: (folder / name).read_bytes() for name in before} == before
    record = json.loads(hub.files["calque-run.json"])
    assert record == {
        "langs": ["en", "de"],
        "encoder_path": "e5",
        "adapted": {"place": "base", "beside": "base"},
    }
    assert json.loads(hub.files["adapter_config.json"]) == {"base_model_name_or_path": "e5", "r": 4}
    assert 'BASE = "base"\nsee /home page\n' in hub.files["README.md"].decode()
    assert not any(
        b"ann" in content for name, content in hub.files.items() if name.endswith((".json", ".md"))
    )


def test_an_upload_of_maps_contains_no_local_path_of_their_base_encoder(folder, hub):
    """Check also that the hub's copy has the files from which the encoder is opened."""
    (folder / "base").mkdir()
    (folder / "base" / "calque.json").write_text(
        json.dumps({"kind": "adapters", "adapted": {"place": "/home/ann/e5"}})
    )
    (folder / "base" / "README.md").write_text('BASE = "/home/ann/e5"')
    push(folder, "me/aligned")
    assert json.loads(hub.files["base/calque.json"])["adapted"] == {"place": "e5"}
    assert hub.files["base/README.md"] == b'BASE = "e5"'


def test_the_model_card_names_only_models_and_data_sets_on_the_hub(tmp_path):
    """Check that local files and folders are not listed."""
    (tmp_path / "here" / "data").mkdir(parents=True)
    names = (
        "hub:tatoeba",
        "hub:Helsinki-NLP/opus-100:de-en:train",
        "train.tsv",
        f"hub:{tmp_path / 'here' / 'data'}:x:y",
        "hub:flores",
        "hub:bucc:validation",
    )
    record = {"method": "rotation", "towards": "en", "settings": {}}
    for used, base, sets in (
        (
            names,
            "somebody/encoder",
            ["google/xtreme", "Helsinki-NLP/opus-100", "openlanguagedata/flores_plus"],
        ),
        (["train.tsv"], "mini", None),
    ):
        texts = [{"path": name, "langs": ["en", "de"]} for name in used]
        model_card(tmp_path, {**record, "encoder": base, "texts": texts})
        data = front((tmp_path / "README.md").read_text())
        assert data.to_dict().get("datasets") == sets
        assert data.base_model == (base if "/" in base else None)
        assert (data.pipeline_tag, data.library_name) == ("feature-extraction", "transformers")


def test_failed_uploads_raise_one_line_errors(folder, tmp_path, hub, monkeypatch):
    import huggingface_hub

    hub.refusal = OSError("no\nway")
    with pytest.raises(
        OutputError, match=r"^me/x: the upload failed \(no\); check the conn[^\n]*$"
    ):
        push(folder, "me/x")
    for name in (tmp_path / "none", folder / "README.md", "mini", tmp_path):
        with pytest.raises(InputError, match=f"{name}: this folder contains no encoder"):
            push(name, "me/x")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(OutputError, match="no token for the Hugging Face hub; run hf auth login"):
        push(folder, "me/aligned")
    with pytest.raises(SettingError, match="is not a valid repository name; use USER/NAME"):
        check_repo("a/b/c")
    assert not hub.asked


@pytest.mark.parametrize(
    "content",
    [b"---\nlicense: [mit\n---\n# x\n", b"---\n- mit\n---\n", b"---\nlicense: m\xefit\n---\n"],
)
def test_a_corrupt_model_card_is_not_uploaded(folder, hub, content):
    (folder / "README.md").write_bytes(content)
    with pytest.raises(InputError, match="README.md: not a model card"):
        push(folder, "me/x")
    assert hub.asked == []
