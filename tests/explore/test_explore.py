"""Tests of the explorer: text, vectors, HTTP responses, and the choice of encoders and texts on the
command line.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import threading
from itertools import product
from urllib.parse import urlencode

import numpy as np
import pytest
import torch

pytest.importorskip("starlette", reason="the extra explore is not installed")

from calque.algebra.normalize import unit_rows
from calque.encoders import load_encoder
from calque.errors import InputError, SettingError
from calque.explore import app as module
from calque.explore.app import listen, make_app, serve, url_of
from calque.explore.explorer import CollectionView, K, WordVectors
from calque.explore.sources import (
    Collection,
    NamedEncoder,
    find_encoders,
    find_text,
    is_collection,
    place_for,
)
from calque.text import Sentence
from calque.vectors import Embeddings
from calque.wordalign.similarity import links_from_embeddings
from command import fails, works
from explored_text import ENGLISH, GERMAN, pairs_of


# -- the text --------------------------------------------------------------------------------------
def test_repeated_sentences_are_merged_and_translations_are_found_through_a_third_language(
    collection,
):
    assert collection.languages == ["en", "de", "he"]
    assert collection.ranges == {"en": (0, 6), "de": (6, 12), "he": (12, 14)}
    assert collection.translations(0) == {"de": 6, "he": 12}
    assert collection.translations(6) == {
        "en": 0,
        "he": 12,
    }  # there is no direct German-Hebrew text
    assert collection.translations(2) == {"de": 8}
    assert collection.related(12) == [0, 6]
    assert collection.trained.tolist() == [True, True, *[False] * 10, True, True]


def test_empty_sentences_are_counted_and_repeated_sentences_are_merged():
    corpus = pairs_of(["a b", "", "a b"], ["c", "d", "e"], ("en", "de"))
    collection = Collection([((corpus.source, corpus.target), False)])
    assert (collection.empty, len(collection)) == (1, 4)
    assert collection.related(0) == [1, 3]
    assert collection.translations(0) == {"de": 1}


def test_search_results_contain_every_word_and_whole_words_come_first(collection):
    assert collection.search("bank") == (3, [3, 2, 9])
    assert collection.search("BANK", "en") == (2, [3, 2])
    assert collection.search("ban the", "en") == (2, [3, 2])
    assert collection.search("bank river") == (1, [2])
    assert collection.search("Fähre", "en") == (0, [])
    assert collection.search("the", limit=1)[0] == 6
    assert collection.search("  ") == (0, [])
    text = [Sentence(("我们", "坐", "在", "河岸", "上"), "zh")]  # Chinese is written without spaces
    assert Collection([([text], False)]).search("坐在河岸") == (1, [0])


@pytest.mark.parametrize(
    ("text", "lang"),
    [("the house of the cat", "en"), ("das Haus der Katze", "de"), ("הבית", "he"), ("!!", "en")],
)
def test_the_language_of_a_typed_sentence_is_guessed(collection, text, lang):
    assert collection.guess_language(text) == lang


# -- vectors ---------------------------------------------------------------------------------------
def planted(collection: Collection, dim: int = 24, seed: int = 0) -> Embeddings:
    rng = np.random.default_rng(seed)
    return Embeddings(
        rng.normal(size=(collection.n_words, dim)).astype(np.float32) + 0.4, collection.offsets
    )


@pytest.mark.parametrize("some", [False, True])
def test_csls_of_neighbours_matches_its_formula(collection, tmp_path, some):
    """Check 2·cos(x, y) − r(x) − r(y), where r is the mean cosine with the nearest other words that
    have a vector.
    """
    vectors, covered = planted(collection), np.ones(collection.n_words, dtype=bool)
    if some:
        covered[[1, 5, collection.rows("de").start]] = covered[collection.rows("he")] = False
    data = np.where(covered[:, None], vectors.data, 0)
    found = Embeddings(data, collection.offsets, covered if some else None)
    store = WordVectors.build(tmp_path / "x.safetensors", collection, found)
    unit = unit_rows(data).astype(np.float64)
    cosines = np.where(covered, unit @ unit.T, -np.inf)
    np.fill_diagonal(cosines, -np.inf)

    def density(row, lang):
        near = np.sort(cosines[row, collection.rows(lang)])[::-1][:K]
        return near[np.isfinite(near)].mean()

    for lang, other in product(collection.languages, repeat=2):
        own, rows = (
            [r for r in range(collection.n_words)[collection.rows(of)] if covered[r]]
            for of in (lang, other)
        )
        for row in own:
            near = store.neighbours(store.embeddings.data[row], lang, 4, but=row)[other]
            csls = {
                r: 2 * cosines[row, r] - density(row, other) - density(r, lang)
                for r in rows
                if r != row
            }
            expected = sorted(csls, key=lambda r: -csls[r])[:4]
            assert [r for r, *_ in near] == expected
            np.testing.assert_allclose(
                [value for _, value, _ in near], [csls[r] for r in expected], atol=2e-6
            )
            np.testing.assert_allclose(
                [value for *_, value in near], cosines[row, expected], atol=2e-6
            )


def view_of(encoder, collection, folder, layers):
    return CollectionView(
        NamedEncoder("tiny", encoder, True), collection, folder, threading.RLock(), layers
    )


def test_vectors_are_computed_once_and_a_corrupt_store_is_rebuilt(
    collection, tiny_encoder, tmp_path, monkeypatch
):
    (tmp_path / "3.safetensors").write_bytes(b"corrupt")
    first = view_of(tiny_encoder, collection, tmp_path, [1, -1])
    assert (first.numbers, first.output_layer) == ({"1": 1, "3": 3}, "3")
    once = {name: np.array(first.store(name)[0].hubness) for name in first.numbers}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.safetensors", "3.safetensors"]
    encoded = tiny_encoder.encode_layers(collection.sentences, [1, 3])
    np.testing.assert_allclose(
        first.store("1")[0].embeddings.data, unit_rows(encoded[1].data), atol=1e-6
    )
    monkeypatch.setattr(
        type(tiny_encoder), "encode_layers", lambda *_, **__: pytest.fail("encoded again")
    )
    again = view_of(tiny_encoder, collection, tmp_path, [1, -1])
    for name in first.numbers:
        np.testing.assert_array_equal(again.store(name)[0].hubness, once[name])


# -- answers ---------------------------------------------------------------------------------------
def test_the_description_lists_languages_and_encoders(explorer):
    about = explorer.about()
    assert [(each["lang"], each["sentences"]) for each in about["languages"]] == [
        ("en", 6),
        ("de", 6),
        ("he", 2),
    ]
    assert [(each["name"], each["layers"], each["own"]) for each in about["encoders"]] == [
        ("tiny", ["0", "1", "3"], "3"),
        ("rotated", ["3"], "3"),
    ]
    assert (about["before"], about["after"]) == ("tiny", "rotated")
    start = explorer.sentence(about["start"]["id"])
    assert len(start["translations"]) == 2
    assert len(start["words"][about["start"]["word"]]) == max(map(len, start["words"]))


def test_neighbours_of_a_word_are_sorted_and_mark_its_translation(explorer):
    answer = explorer.neighbours("tiny", "1", 2, 4, n=3)
    assert [(each["lang"], len(each["words"])) for each in answer["languages"]] == [
        ("en", 3),
        ("de", 3),
        ("he", 3),
    ]
    scores = [hit["csls"] for hit in answer["languages"][1]["words"]]
    assert scores == sorted(scores, reverse=True)
    for each in answer["languages"]:
        for hit in each["words"]:
            assert hit["words"] == list(explorer.collection.sentences[hit["id"]].words)
            assert hit["translation"] == (hit["id"] == 8)
    assert [(hit["id"], hit["word"]) for hit in answer["same"]["nearest"]] == [(3, 1)]
    the = explorer.neighbours("tiny", None, 0, 0)["same"]
    assert the["total"] == 9 - 1
    cosines = [hit["cosine"] for hit in the["nearest"] + the["farthest"]]
    assert len(cosines) == 8
    assert cosines == sorted(cosines, reverse=True)


def test_a_typed_sentence_has_the_same_vectors_as_the_sentence_in_the_text(explorer):
    typed = explorer.typed(ENGLISH[2], "en")
    stored = explorer.neighbours("tiny", "3", 2, 4, n=5)
    live = explorer.neighbours("tiny", "3", typed, 4, n=5)
    assert live["languages"][1]["words"][0]["csls"] == pytest.approx(
        stored["languages"][1]["words"][0]["csls"], abs=2e-3
    )
    first = live["languages"][0]["words"][0]
    assert (first["id"], first["word"]) == (2, 4)  # the nearest word is the typed word itself
    assert first["cosine"] == pytest.approx(1, abs=1e-3)
    german = explorer.neighbours("rotated", None, explorer.typed(GERMAN[2], "de"), 3)
    assert german["languages"][1]["words"][0]["id"] == 8


def test_links_equal_the_links_of_the_aligner(explorer):
    answer = explorer.links("tiny", "1", 2, 8)
    store = explorer.views["tiny"].store("1")[0].embeddings
    parts = [Embeddings(np.array(store[k]), np.array([0, len(store[k])])) for k in (2, 8)]
    expected = links_from_embeddings(*parts)
    assert answer["links"] == np.stack([expected.source, expected.target], axis=1).tolist()
    assert 1 <= len(explorer.links("tiny", "1", explorer.typed("the cat", "en"), 7)["links"]) <= 2


# -- over HTTP -------------------------------------------------------------------------------------
def call(app, path: str, host: str = "127.0.0.1:8000", verb: str = "GET", headers=(), **query):
    """Send a request to the application in this process, and return the status, headers and body of
    the response.
    """
    sent: list[dict] = []
    given = [(b"host", host.encode())] if host else []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(query).encode(),
        "root_path": "",
        "headers": [*given, *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    names = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], names, body


@pytest.fixture(scope="module")
def app(explorer):
    return make_app(explorer)


def test_every_http_response_equals_the_result_in_python(app, explorer):
    def answer_of(path, **query):
        status, headers, body = call(app, f"/api/{path}", **query)
        assert status == 200, body
        assert headers["content-type"] == "application/json"
        return json.loads(body)

    assert answer_of("about") == explorer.about()
    assert answer_of("search", q="bank", lang="en")["sentences"][0] == {
        "id": 3,
        "lang": "en",
        "words": ENGLISH[3].split(),
    }
    sentence = answer_of("sentence", id=0)
    assert sentence["trained"] is True
    assert [each["lang"] for each in sentence["translations"]] == ["de", "he"]
    typed = answer_of("sentence", text="Das  Haus der\nKatze.")
    assert (typed["lang"], typed["guessed"], typed["text"]) == ("de", True, "Das Haus der Katze.")
    assert answer_of("neighbours", encoder="tiny", id=2, word=4) == explorer.neighbours(
        "tiny", None, 2, 4
    )
    assert answer_of("links", encoder="tiny", id=2, to=8) == explorer.links("tiny", None, 2, 8)


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("sentence", {"id": "x"}, "id= must be a whole number, got 'x'"),
        ("sentence", {"text": "  "}, "an empty sentence"),
        ("sentence", {"text": "a" * 1001}, "at most 1,000 characters, got 1,001"),
        (
            "sentence",
            {"text": "a", "lang": "xx"},
            "the language must be one of en, de, he, got 'xx'",
        ),
        (
            "neighbours",
            {"encoder": "y", "id": 0, "word": 0},
            "the encoder must be one of tiny, rotated, got 'y'",
        ),
        (
            "neighbours",
            {"encoder": "tiny", "layer": "7", "id": 0, "word": 0},
            "the layer of tiny must be one of",
        ),
        ("neighbours", {"encoder": "tiny", "id": 0, "word": 0, "n": 0}, "n must be 1 to 50, got 0"),
        ("links", {"encoder": "tiny", "id": 0}, "to= is missing"),
    ],
)
def test_an_invalid_request_returns_a_one_line_json_error(app, path, query, message):
    status, headers, body = call(app, f"/api/{path}", **query)
    assert status == 400
    assert message in json.loads(body)["error"]
    assert b"\n" not in body


def test_the_page_and_its_files_are_served_without_external_addresses(app):
    status, headers, body = call(app, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    for name, kind in (
        ("app.js", "text/javascript"),
        ("style.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
    ):
        status, headers, body = call(app, f"/static/{name}")
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in body
    for wrong in ("/static/../app.py", "/static/app.py", "/nothing", "/api/nothing"):
        status, headers, body = call(app, wrong)
        assert status == 404
        assert json.loads(body) == {"error": "no such page"}
    assert call(app, "/api/about", verb="POST")[0] == 405


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example:8000", "10.0.0.1"])
def test_requests_with_another_host_name_are_rejected(app, host):
    for path in ("/", "/api/about", "/static/app.js"):
        status, _, body = call(app, path, host=host)
        assert (status, body) == (400, b"Invalid host header")


# -- the server ------------------------------------------------------------------------------------
def test_a_free_port_is_found_and_a_port_in_use_is_reported(monkeypatch):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}/"
        with pytest.raises(SettingError, match=f"cannot listen on .* port {port}"):
            listen("127.0.0.1", port)
        monkeypatch.setattr(module, "PORT", port)
        with listen("127.0.0.1", None) as other:
            assert other.getsockname()[1] != port
    with pytest.raises(SettingError, match="choose another --port or --host"):
        listen("no.such.host.invalid", 0)


def test_an_interrupt_stops_the_server(explorer, monkeypatch):
    import uvicorn

    statuses = []
    monkeypatch.setattr(module.webbrowser, "open", lambda url: pytest.fail("a browser was opened"))

    def run(self, sockets):
        app = self.config.app
        statuses.append(call(app, "/", host=f"127.0.0.1:{sockets[0].getsockname()[1]}")[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", run)
    with listen("127.0.0.1", 0) as listening:
        serve(explorer, listening, host="127.0.0.1", browser=False)
    assert statuses == [200]


# -- encoders and texts on the command line --------------------------------------------------------
@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory, tiny_encoder, sources):
    """Write a small folder with the layout of the output of `calque demo`."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "text").mkdir()
    for part, lines in (("train", slice(0, 4)), ("test", slice(4, 6))):
        text = "".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH[lines], GERMAN[lines], strict=True))
        (folder / "text" / f"de.{part}.tsv").write_text(text, encoding="utf-8")
    sources[1].encoder.save(folder / "rotation")
    changed = copy.deepcopy(tiny_encoder)
    with torch.no_grad():
        next(changed.model.parameters()).mul_(1.5)
    changed.save(folder / "contrastive")
    return folder


def test_a_demo_folder_is_opened(demo_folder, tiny_encoder):
    assert is_collection(demo_folder)
    found = find_encoders([str(demo_folder)], None, print)
    assert [each.name for each in found] == [tiny_encoder.name, "contrastive", "rotation"]
    assert [each.before for each in found] == [True, False, False]
    assert found[0].encoder.fingerprint == tiny_encoder.fingerprint
    collection = find_text([str(demo_folder)])
    assert collection.languages == ["en", "de"]
    assert (~collection.trained).sum() == 4
    assert collection.trained[collection.ranges["en"][0]] == np.False_  # the test text comes first
    assert place_for(str(demo_folder)) == demo_folder / "explore"


def test_the_encoder_before_alignment_is_found_through_the_run_record(
    demo_folder, tiny_folder, tmp_path, capsys
):
    tiny = load_encoder(tiny_folder)
    folder = tmp_path / "aligned"
    load_encoder(demo_folder / "contrastive").save(folder)
    record = {
        "encoder": "before",
        "encoder_fingerprint": tiny.fingerprint,
        "towards": "en",
        "texts": [],
    }
    (folder / "calque-run.json").write_text(json.dumps(record))
    said: list[str] = []
    assert [each.before for each in find_encoders([str(folder)], None, said.append)] == [False]
    assert said[0].endswith(
        f"was not found; to compare with it, run calque explore {folder} --base PATH/TO/before"
    )
    found = find_encoders([str(folder)], str(tiny_folder), said.append)
    assert [each.before for each in found] == [True, False]
    tiny.save(tmp_path / "before")
    found = find_encoders([str(folder)], None, said.append)
    assert [(each.name, each.before) for each in found] == [("before", True), ("aligned", False)]
    found = find_encoders([str(tmp_path / "before"), str(folder), str(folder)], None, said.append)
    assert [(each.name, each.before) for each in found] == [("before", True), ("aligned", False)]
    (folder / "calque-run.json").write_text(
        json.dumps({**record, "encoder_fingerprint": "another"})
    )
    assert len(find_encoders([str(folder)], None, said.append)) == 1
    assert f"was changed after the alignment ({tmp_path / 'before'})" in said[-1]
    assert place_for(str(folder)) == tmp_path / "aligned-explore"
    assert place_for("mini").name == "calque-explore"
    with pytest.raises(InputError):
        find_encoders([str(tmp_path / "nothing" / "here")], None, said.append)


def test_the_base_of_a_trained_encoder_is_found_from_any_folder(
    tiny_folder, tmp_path, capsys, monkeypatch
):
    shutil.copytree(tiny_folder, tmp_path / "models" / "base")
    (tmp_path / "train.tsv").write_text("the a in\tder ein in\na in the\tein in der\n" * 4)
    monkeypatch.chdir(tmp_path)
    how = ("--langs", "en", "de", "--towards", "en", "--epochs", 1, "-q")
    works(capsys, "align", "train.tsv", "--encoder", "models/base", "--out", "runs/aligned", *how)
    record = json.loads((tmp_path / "runs" / "aligned" / "calque-run.json").read_text())
    assert record["encoder_path"] == "../../models/base"
    assert str(tmp_path) not in json.dumps(record)
    monkeypatch.chdir("/")
    said: list[str] = []
    assert [
        each.before
        for each in find_encoders([str(tmp_path / "runs" / "aligned")], None, said.append)
    ] == [
        True,
        False,
    ]
    (tmp_path / "runs").rename(
        tmp_path / "elsewhere"
    )  # both folders keep their place relative to each other
    assert [
        each.before
        for each in find_encoders([str(tmp_path / "elsewhere" / "aligned")], None, said.append)
    ] == [
        True,
        False,
    ]
    assert said == []


def test_text_can_be_monolingual_or_parallel_and_defaults_to_the_sample(tmp_path):
    (tmp_path / "a.de.txt").write_text("Das Haus.\n\nDie Katze.\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("The house.\n")
    said: list[str] = []
    collection = find_text(
        [], text=[str(tmp_path / "a.de.txt"), f"en={tmp_path / 'b.txt'}"], say=said.append
    )
    assert collection.ranges == {"de": (0, 2), "en": (2, 3)}
    assert "1 empty lines skipped" in said[-1]
    (tmp_path / "t.tsv").write_text("The house.\tDas Haus.\n", encoding="utf-8")
    collection = find_text([], test=[str(tmp_path / "t.tsv")], langs=[("en", "de")])
    assert collection.translations(0) == {"de": 1}
    with pytest.raises(SettingError, match="one for each of 1 --test files, got 0"):
        find_text([], test=[str(tmp_path / "t.tsv")])
    with pytest.raises(SettingError, match="the language is unknown"):
        find_text([], text=[str(tmp_path / "b.txt")])
    sample = find_text(["mini"], limit=3, say=said.append)
    assert len(sample.languages) == 8
    assert "sample text" in said[-2]


def test_the_command_serves_the_given_encoders_and_text(demo_folder, tmp_path, capsys, monkeypatch):
    served = []
    monkeypatch.setattr(
        "calque.explore.app.serve",
        lambda explorer, listening, **given: served.append((explorer, given)),
    )
    job = (
        "explore",
        demo_folder,
        "--cache",
        tmp_path,
        "--layers",
        "1,-1",
        "--no-browser",
        "--port",
        0,
    )
    assert works(capsys, *job)[0].startswith("http://127.0.0.1:")
    explorer, given = served[0]
    assert list(explorer.views) == [explorer.before, "contrastive", "rotation"]
    assert given["browser"] is False
    assert explorer.after == "contrastive"
    assert list(explorer.views[explorer.before].numbers) == ["1", "3"]
    assert not list(
        tmp_path.rglob("*.safetensors")
    )  # nothing is computed before the page is served
    fails(capsys, "explore", tmp_path / "none" / "x")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'calque-align[explore]'" in fails(capsys, "explore", demo_folder)
