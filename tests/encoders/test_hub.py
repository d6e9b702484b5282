"""What goes to the hub, against a local stand-in of its HTTP interface; and the card, whose code runs as it stands."""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from calque.encoders import load_encoder
from calque.encoders.hub import card, check_repo, push
from calque.encoders.loading import BUNDLED
from calque.errors import InputError, OutputError, SettingError
from calque.text import Sentence
from command import works

PART = 6_000_000  # of a large file that is uploaded in parts


@pytest.fixture
def hub(monkeypatch):
    """The few addresses that an upload needs; what was asked is in `asked`, the last commit's files are in `files`."""
    from huggingface_hub import constants

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self):
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length)) if length else b"".join(self.chunks())
            server.asked.append(self.path)
            server.tokens.add(self.headers.get("Authorization"))
            where = f"http://127.0.0.1:{server.server_port}"
            status, reply = server.refusal or 200, {"error": "no", "url": f"{where}/me/x"}
            if server.refusal is None:
                reply = {}
                if self.path == "/api/repos/create":
                    server.created = json.loads(body)
                    reply = {"url": f"{where}/me/{server.created['name']}", "id": "me/x"}
                elif "/preupload/" in self.path:
                    files = json.loads(body)["files"]
                    modes = {f["path"]: "lfs" if server.is_large(f["path"], f["size"]) else "regular" for f in files}
                    reply = {
                        "files": [{"path": p, "uploadMode": mode, "shouldIgnore": False} for p, mode in modes.items()]
                    }
                elif self.path.endswith("/info/lfs/objects/batch"):
                    reply = {"transfer": "basic", "objects": [
                        {**each, "actions": {
                            "upload": self.place(where, **each), "verify": {"href": f"{where}/verify/{each['oid']}"}
                        }} for each in json.loads(body)["objects"]
                    ]}  # fmt: skip
                elif self.path.startswith("/complete/"):
                    oid, parts = self.path.rpartition("/")[2], json.loads(body)["parts"]
                    assert [part["etag"] for part in parts] == [f"part{k}" for k in range(1, len(parts) + 1)]
                    server.stored[oid] = b"".join(server.stored.pop(f"{oid}.{k}") for k in range(1, len(parts) + 1))
                elif self.path.startswith("/verify/"):
                    said, oid = json.loads(body), self.path.rpartition("/")[2]
                    assert (said["oid"], said["size"]) == (oid, len(server.stored[oid]))
                elif "/commit/" in self.path:
                    lines = [json.loads(line)["value"] for line in body.splitlines()]
                    server.message = lines[0]["summary"]
                    server.files = {
                        line["path"]: base64.b64decode(line["content"])
                        if "content" in line
                        else server.stored[line["oid"]]
                        for line in lines[1:]
                    }
                    server.large = {line["path"]: line["size"] for line in lines[1:] if "oid" in line}
                    reply = {
                        "success": True,
                        "commitOid": "0" * 40,
                        "commitUrl": f"{where}/me/x/commit/0",
                        "hookOutput": "",
                    }
            self.answer(status, json.dumps(reply).encode())

        def do_PUT(self):
            """A large file, or a part of one."""
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length)) if length else b"".join(self.chunks())
            _, _, name = self.path.rpartition("/")
            server.stored[name] = body
            self.answer(200, b"", ETag=f"part{name.partition('.')[2]}")

        def place(self, where, oid, size):
            """One address for a file, or one for each part of `PART` bytes of a larger one."""
            if size <= PART:
                return {"href": f"{where}/store/{oid}"}
            parts = {str(k): f"{where}/store/{oid}.{k}" for k in range(1, -(-size // PART) + 1)}
            return {"href": f"{where}/complete/{oid}", "header": {"chunk_size": str(PART), **parts}}

        def answer(self, status, data, **headers):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def chunks(self):
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.tokens, server.files, server.refusal = [], set(), {}, None
    server.stored, server.large, server.is_large = {}, {}, lambda path, size: False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)  # a protocol of its own, without HTTP
    monkeypatch.setenv("HF_TOKEN", "hf_of_this_test")
    yield server
    server.shutdown()
    server.server_close()


RECORD = {
    "langs": ["en", "de"],
    "scores": [
        {"task": "retrieval", "metric": "accuracy", "data": "news/test.tsv", "languages": ["en", "de"], "value": 0.25},
        {"task": "retrieval", "metric": "form", "data": "news/test.tsv", "languages": ["en", "de"], "value": None},
    ],
}
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
    (folder / "calque-run.json").write_text(json.dumps(RECORD))
    (folder / "training" / "checkpoint").mkdir(parents=True)
    (folder / "training" / "checkpoint" / "state.pt").write_bytes(b"state")
    (folder / ".aligned.lock").write_bytes(b"")
    return folder


def front(text: str):
    from huggingface_hub import ModelCard

    return ModelCard(text).data


def test_an_encoder_s_folder_is_one_commit_without_what_is_no_part_of_it(folder, hub):
    before = (folder / "README.md").read_text()
    url = push(folder, "me/aligned", private=True, message="First", revision="next", license="mit")
    assert url.endswith("/me/x/commit/0")
    assert hub.created["name"] == "aligned"
    assert hub.created.get("organization") == "me"
    assert "private" in json.dumps(hub.created)
    assert (hub.message, hub.tokens) == ("First", {"Bearer hf_of_this_test"})
    assert any(path.endswith("/branch/next") for path in hub.asked)
    assert any(path.endswith("/commit/next") for path in hub.asked)
    assert not [name for name in hub.files if name.startswith((".", "training"))]
    assert {"config.json", "model.safetensors", "tokenizer.json", "calque.json", "modules.json", "1_Pooling/config.json",
            "README.md", "calque-run.json"} <= set(hub.files)  # fmt: skip
    assert hub.files["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert (folder / "README.md").read_text() == before
    data = front(hub.files["README.md"].decode())
    assert (data.license, data.language, data.base_model) == ("mit", ["en", "de"], "somebody/encoder")
    assert (data.pipeline_tag, data.library_name) == ("feature-extraction", "transformers")
    assert data.tags == ["calque", "sentence-transformers"]
    (score,) = data.eval_results
    assert (score.task_type, score.metric_type, score.metric_value) == ("retrieval", "accuracy", 0.25)
    assert (score.dataset_name, score.dataset_config) == ("test.tsv", "en-de")


def test_data_of_the_hub_is_named_by_its_repository(folder):
    """Training text and test sets; files are named as they are called, and a folder here is no repository."""
    (folder / "here" / "data").mkdir(parents=True)
    record = {
        "texts": [{"path": name, "langs": ["en", "de"]} for name in (
            "hub:tatoeba", "hub:Helsinki-NLP/opus-100:de-en:train", "train.tsv", f"hub:{folder / 'here' / 'data'}:x:y",
            "hub:flores", "hub:bucc:validation",
        )],
        "scores": [
            {"task": "probing", "metric": "f1", "data": "hub:udpos:de (pos)", "languages": ["en", "de"], "value": 0.5},
            {"task": "sentences", "metric": "accuracy", "data": "hub:bucc", "languages": ["en", "de"], "value": 0.6},
            {"task": "nli", "metric": "accuracy", "data": "hub:xnli:de:validation", "languages": ["en", "de"], "value": 0.7},
            {"task": "retrieval", "metric": "accuracy", "data": "a/b.tsv", "languages": ["en", "de"], "value": 0.8},
        ],
    }  # fmt: skip
    (folder / "calque-run.json").write_text(json.dumps(record))
    data = front(card(folder, "me/x"))
    assert data.datasets == ["google/xtreme", "Helsinki-NLP/opus-100", "openlanguagedata/flores_plus"]
    places = [(s.dataset_type, s.dataset_name, s.dataset_config, s.dataset_split) for s in data.eval_results]
    assert places == [
        ("google/xtreme", "hub:udpos:de (pos)", "udpos.German", "test"),
        ("google/xtreme", "hub:bucc", "en-de", "test"),
        ("facebook/xnli", "hub:xnli:de:validation", "de", "validation"),
        ("b.tsv", "b.tsv", "en-de", None),
    ]
    (folder / "calque-run.json").write_text(json.dumps({"texts": [{"path": "train.tsv", "langs": ["en", "de"]}]}))
    assert "datasets" not in front(card(folder, "me/x")).to_dict()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # of huggingface_hub's HTTP library; Python shows it to nobody
def test_large_files_go_to_the_large_file_storage(folder, hub, capsys):
    """Weights whatever their size, and what has more than 10 MB, as on the hub: by one request, or in parts."""
    big = torch.arange(11_000_000 // 4, dtype=torch.int32).numpy().tobytes()
    (folder / "maps.bin").write_bytes(big)
    hub.is_large = lambda path, size: path.endswith(".safetensors") or size > 10_000_000
    _, err = works(capsys, "push", folder, "me/aligned", "-q")
    assert err == ""  # no progress bar of the library's either
    assert hub.files["maps.bin"] == big
    assert hub.files["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    assert hub.large == {name: len(hub.files[name]) for name in ("maps.bin", "model.safetensors")}
    assert sum(path.startswith("/complete/") for path in hub.asked) == 1
    assert sum(path.startswith("/verify/") for path in hub.asked) == 2


def test_what_is_no_folder_is_told_as_what_it_is(tmp_path, hub):
    (tmp_path / "file").write_bytes(b"x")
    for name, said in (
        (tmp_path / "none", r"none: no such folder; is the path right\?"),
        (tmp_path / "file", "file: is a file, expected the folder of an encoder"),
        ("mini", "mini: the encoder of this name comes with calque and is no folder"),
    ):
        with pytest.raises(InputError, match=said):
            push(name, "me/x")
    assert not hub.asked


def test_an_encoder_in_memory_says_what_is_known_and_no_more(tiny_encoder, hub):
    tiny_encoder.push_to_hub("me/tiny")
    data = front(hub.files["README.md"].decode()).to_dict()
    assert set(data) == {"library_name", "pipeline_tag", "tags"}
    assert "load_encoder(FOLDER)" in hub.files["README.md"].decode()


@pytest.mark.parametrize(("status", "said"), [
    (401, "does not accept the token"), (403, "may not write there"), (409, "the name is taken"), (500, "the hub refused"),
])  # fmt: skip
def test_refusals_are_one_line(status, said, folder, hub):
    hub.refusal = status
    with pytest.raises(OutputError, match=said) as error:
        push(folder, "me/aligned")
    assert "\n" not in str(error.value)


def test_no_token_no_connection_no_encoder(folder, tmp_path, hub, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(OutputError, match=r"me/aligned: the hub cannot be reached .*: check the connection"):
        push(folder, "me/aligned")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(OutputError, match="no token of the Hugging Face hub: run hf auth login"):
        push(folder, "me/aligned")
    with pytest.raises(InputError, match="no encoder in this folder"):
        push(tmp_path, "me/aligned")
    with pytest.raises(SettingError, match="is no name on the hub, expected USER/NAME"):
        check_repo("a/b/c")


def test_the_card_of_mini_reads_layer_4_with_transformers_alone():
    text = card(BUNDLED["mini"], "me/mini")
    assert "layer 4 of 6, **not the last one**" in text
    assert (front(text).license, front(text).pipeline_tag) == ("cc-by-sa-4.0", "fill-mask")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    space: dict = {}
    exec(compile(code.replace('FOLDER = "."', f"FOLDER = {str(BUNDLED['mini'])!r}"), "card", "exec"), space)
    space["model"].float()  # the weights are stored in half precision
    words = ["The", "old", "ferry", "leaves"]
    ours = load_encoder("mini", device="cpu").encode([Sentence(tuple(words), "en")])[0]
    torch.testing.assert_close(space["word_vectors"](words), torch.from_numpy(ours), rtol=0, atol=2e-5)
