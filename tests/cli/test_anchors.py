"""Tests of commands for anchors, maps (from dictionaries, unsupervised or released) and nearest
neighbours.
"""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import forked
from calque.anchors import open_anchors, read_avg_embeds
from calque.corpora.plain import stream_sentences
from calque.encoders import load_encoder
from calque.encoders.anchors import compute_anchors
from calque.encoders.per_language import PerLanguage
from calque.encoders.static import StaticEncoder
from calque.errors import InputError
from calque.maps.released import read_released
from calque.storage import part_of
from calque.text import Sentence, Sentences
from command import fails, run, works
from linked_text import WORDS

TURNS = {"en": str, "de": str.upper, "fr": str.title}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Write dictionaries, and text in three languages that share numbers and differ only in the
    case of their letters.
    """
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    lines = [
        [(*WORDS, "1984", "7")[k] for k in rng.integers(0, 12, rng.integers(2, 8))]
        for _ in range(60)
    ]
    for lang, turn in TURNS.items():
        text = "".join(" ".join(map(turn, line)) + "\n" for line in lines)
        (folder / f"{lang}.txt").write_text(text, encoding="utf-8")
        (folder / f"en-{lang}.txt").write_text(
            "".join(f"{w}\t{turn(w)}\n" for w in WORDS), encoding="utf-8"
        )
    return folder


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Write static vectors of 120 words in two languages, the second of which is a noisy rotation
    of the first.
    """
    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(1)
    x = rng.standard_normal((120, 8)) * np.linspace(2, 0.5, 8)
    turned = x @ np.linalg.qr(rng.standard_normal((8, 8)))[0]
    for lang, rows in (("en", x), ("de", turned + 0.05 * rng.standard_normal(x.shape))):
        lines = [f"{lang}{k} {' '.join(map(str, row))}\n" for k, row in enumerate(rows)]
        (folder / f"{lang}.vec").write_text(f"120 8\n{''.join(lines)}", encoding="utf-8")
    (folder / "en-de.txt").write_text(
        "".join(f"en{k} de{k}\n" for k in range(40)), encoding="utf-8"
    )
    return folder


def sentences(data, lang):
    lines = (data / f"{lang}.txt").read_text(encoding="utf-8").splitlines()
    return Sentences.of([line.split() for line in lines], lang)


def test_anchors_are_computed_once_and_reused(capsys, data, tiny_folder, tiny_encoder, tmp_path):
    job = (
        "anchors",
        data / "en.txt",
        "--lang",
        "en",
        "--encoder",
        tiny_folder,
        "--layers",
        "1,-1",
        "--pretokenized",
    )
    _, err = works(capsys, *job, "--out", tmp_path, "--at-least", 2, "--most", 8)
    assert "60 sentences" in err
    assert "8 anchors in 2 layers" in err
    found = open_anchors(tmp_path)
    expected = compute_anchors(tiny_encoder, sentences(data, "en"), (1, -1), at_least=2, most=8)
    assert list(found) == [1, tiny_encoder.n_layers]
    for layer, anchors in expected.items():
        assert found[layer].words == anchors.words
        np.testing.assert_allclose(found[layer].vectors, anchors.vectors, rtol=1e-6)
    # A second run reuses the sums; the published file format contains the same vectors.
    works(capsys, *job, "--out", tmp_path, "--format", "avg_embeds", "--most", 8)
    published, norms = read_avg_embeds(tmp_path)
    np.testing.assert_array_equal(published[1].vectors, found[1].vectors)
    assert set(norms) == set(found)
    assert "another run" in fails(capsys, *job[:-3], "2", "--out", tmp_path)
    assert "another text" in fails(capsys, job[0], data / "de.txt", *job[2:], "--out", tmp_path)


def test_an_interrupted_computation_of_anchors_is_resumed(
    capsys, data, tiny_folder, tmp_path, monkeypatch
):
    calls = []

    def stream(*given, **how):  # interrupts once, at the fourth block of seven sentences
        for part in stream_sentences(*given, **{**how, "block": 7}):
            calls.append(part)
            if len(calls) == 4:
                raise KeyboardInterrupt
            yield part

    job = ("anchors", data / "en.txt", "--lang", "en", "--encoder", tiny_folder, "--pretokenized")
    works(capsys, *job, "--out", tmp_path / "whole")
    monkeypatch.setattr("calque.corpora.plain.stream_sentences", stream)
    monkeypatch.setattr("calque.encoders.anchors.time.monotonic", lambda: 1e9 * len(calls))
    assert run(capsys, *job, "--out", tmp_path / "stopped")[0] == 130
    assert not (tmp_path / "stopped").exists()
    assert (part_of(tmp_path / "stopped", "training") / "new" / "sums.safetensors").is_file()
    works(capsys, *job, "--out", tmp_path / "stopped")
    whole, again = (open_anchors(tmp_path / name) for name in ("whole", "stopped"))
    for layer in whole:
        assert again[layer].words == whole[layer].words
        np.testing.assert_allclose(again[layer].vectors, whole[layer].vectors, atol=1e-5)


@pytest.mark.parametrize("exists", [True, False])
def test_the_anchors_and_their_sums_appear_together(
    capsys, data, tiny_folder, tmp_path, monkeypatch, exists
):
    """Kill the command between the two renames in an existing folder, or at the only rename of a
    new folder.
    """
    job = (
        "anchors",
        data / "en.txt",
        "--lang",
        "en",
        "--encoder",
        tiny_folder,
        "--pretokenized",
        "--out",
        tmp_path / "out",
    )
    if exists:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes").write_text("mine")
    moved, replace = [], os.replace

    def killed(source, target):
        if Path(target).parent == tmp_path / "out" or Path(target) == tmp_path / "out":
            moved.append(Path(target).name)
            if moved[-1] in ("sums.safetensors", "out"):
                raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", killed)
        patch.setattr("os.rename", killed)
        assert run(capsys, *job)[0] == 130
    left = {path.name for path in tmp_path.glob("out/[!.]*")}
    assert left == ({"notes", "anchors.safetensors"} if exists else set())
    works(capsys, *job)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "anchors.safetensors",
        "sums.safetensors",
    } | left & {"notes"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_anchors_can_be_limited_to_a_vocabulary(capsys, data, tiny_folder, tmp_path):
    (tmp_path / "words").write_text("cat\nhouse\n\n", encoding="utf-8")
    job = (
        "anchors",
        data / "en.txt",
        "--lang",
        "en",
        "--encoder",
        tiny_folder,
        "--vocabulary",
        tmp_path / "words",
    )
    works(capsys, *job, "--out", tmp_path / "a")
    assert set(open_anchors(tmp_path / "a").popitem()[1].words) == {"cat", "house"}
    _, err = works(capsys, *job, "--occurrences", 3, "--out", tmp_path / "b")
    assert "6 occurrences of 2 words" in err


def agreement(encoder, data, lang):
    """Return the mean cosine of anchor pairs that are translations minus the mean cosine of all
    anchor pairs.
    """
    sides = []
    for of, turn in (("en", str), (lang, TURNS[lang])):
        anchors = next(iter(compute_anchors(encoder, sentences(data, of)).values()))
        row = dict(zip(anchors.words, anchors.vectors, strict=True))
        sides.append(
            np.stack([row[turn(word)] / np.linalg.norm(row[turn(word)]) for word in WORDS])
        )
    cosines = sides[0] @ sides[1].T
    return np.diag(cosines).mean() - cosines.mean()


@pytest.mark.parametrize("method", ["rotation", "linear"])
def test_a_dictionary_map_brings_translations_closer(
    capsys, data, tiny_folder, tiny_encoder, tmp_path, method
):
    _, err = works(
        capsys,
        "align",
        "--shrinkage",
        0,
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--out",
        tmp_path / "m",
        "--dictionary",
        f"en-de={data / 'en-de.txt'}",
        "--text",
        f"de={data / 'de.txt'}",
        data / "en.txt",
        "--method",
        method,
        "--layers",
        "2,3",
        "--option",
        "refine=0",
        *(["--option", "identical=true"] if method == "linear" else []),
    )
    assert "de, layer 3: " in err
    made = load_encoder(tmp_path / "m")
    assert agreement(made, data, "de") > 0.01 > agreement(tiny_encoder, data, "de")
    record = json.loads((tmp_path / "m" / "calque-run.json").read_text())
    assert record["settings"]["fits"]["de"]["3"]["seeds"] == 10 + 2 * (method == "linear")
    assert f"aligned by {method} from a dictionary" in (tmp_path / "m" / "README.md").read_text()


@pytest.mark.skipif(
    os.environ.get("PYTHONHASHSEED", "random") != "random",
    reason="PYTHONHASHSEED gives every process the same hashes",
)
def test_the_same_command_gives_the_same_maps_in_every_process(capsys, data, tiny_folder, tmp_path):
    """Check that the word order does not depend on Python's hash seed, which differs between
    processes.
    """
    job = [
        "align",
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--dictionary",
        data / "en-de.txt",
        "--langs",
        "en",
        "de",
        "--text",
        data / "en.txt",
        data / "de.txt",
        "--method",
        "rotation",
        "--option",
        "most=2",
        "--option",
        "most_occurrences=3",
        "-q",
        "--out",
    ]
    works(capsys, *job, tmp_path / "here")
    assert forked.run("-c", "print(hash('calque'))").stdout != f"{hash('calque')}\n"
    assert forked.run("-m", "calque", *job, tmp_path / "there").returncode == 0
    here, there = (tmp_path / name / "maps.safetensors" for name in ("here", "there"))
    assert here.read_bytes() == there.read_bytes()


def test_maps_of_several_languages_are_fitted_from_anchors(
    capsys, data, tiny_folder, tiny_encoder, tmp_path
):
    for lang in TURNS:
        works(
            capsys,
            "anchors",
            data / f"{lang}.txt",
            "--lang",
            lang,
            "--encoder",
            tiny_folder,
            "--layers",
            3,
            "--out",
            tmp_path / lang,
            "-q",
        )
    job = (
        "align",
        "--shrinkage",
        0,
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--dictionary",
        data / "en-de.txt",
        data / "en-fr.txt",
        "--langs",
        "en",
        "de",
        "--langs",
        "en",
        "fr",
        "--layers",
        3,
        "--option",
        "refine=0",
        "--anchors",
        *(f"{lang}={tmp_path / lang}" for lang in TURNS),
    )
    works(capsys, *job, "--out", tmp_path / "m", "-q")
    made = load_encoder(tmp_path / "m")
    for lang in ("de", "fr"):
        assert agreement(made, data, lang) > agreement(tiny_encoder, data, lang) + 0.01
        w = made.maps[lang][3].matrix
        np.testing.assert_allclose(w @ w.T, np.eye(32), atol=1e-9)
    assert "--anchors fr=DIR" in fails(capsys, *job[:-1], "--out", tmp_path / "x")
    wrong = fails(capsys, *job[:-1], f"fr={tmp_path / 'en'}", "--out", tmp_path / "x")
    assert "the language of the anchors must be 'fr', got 'en'" in wrong


@pytest.mark.filterwarnings("default::UserWarning")
def test_static_vectors_can_be_mapped_with_and_without_a_dictionary(capsys, vectors, tmp_path):
    both = f"en={vectors / 'en.vec'},de={vectors / 'de.vec'}"
    job = ("align", "--encoder", both, "--towards", "en", "--langs", "en", "de")
    works(capsys, *job, "--dictionary", vectors / "en-de.txt", "--out", tmp_path / "d")
    made = load_encoder(tmp_path / "d")
    assert isinstance(made, StaticEncoder)
    assert set(made.maps) == {"de"}
    x, y = (
        made.encode(Sentences.of([[f"{lang}{k}"] for k in range(120)], lang)).data
        for lang in ("en", "de")
    )
    assert ((x @ y.T).argmax(axis=1) == np.arange(120)).mean() > 0.9
    works(
        capsys,
        "evaluate",
        tmp_path / "d",
        "lexicon",
        "--test",
        vectors / "en-de.txt",
        "--langs",
        "en",
        "de",
    )
    # With unrelated vectors, the failure is reported, but the result is written nevertheless.
    noise = np.random.default_rng(2).standard_normal((120, 8))
    lines = [f"de{k} {' '.join(map(str, row))}\n" for k, row in enumerate(noise)]
    (tmp_path / "noise.vec").write_text(f"120 8\n{''.join(lines)}", encoding="utf-8")
    code, out, err = run(
        capsys,
        "align",
        "--encoder",
        f"en={vectors / 'en.vec'},de={tmp_path / 'noise.vec'}",
        *job[3:],
        "--unsupervised",
        "--option",
        "restarts=1",
        "--option",
        "patience=3",
        "--option",
        "keep=0.8",
        "--out",
        tmp_path / "u",
        "--quiet",
    )
    record = json.loads((tmp_path / "u" / "calque-run.json").read_text())
    assert record["settings"]["start_options"] == {"patience": 3, "keep": 0.8}
    assert (code, out) == (1, "")
    assert "de, layer 0: the map fitted without a dictionary is unreliable" in err
    assert "Unreliable" in (tmp_path / "u" / "README.md").read_text()


def test_static_vectors_can_be_mapped_with_parallel_text(capsys, vectors, tmp_path):
    """Check that the maps are saved with the vectors, and that the mapped vectors can be evaluated
    and analysed.
    """
    lines = [
        f"{' '.join(f'en{k}' for k in some)}\t{' '.join(f'de{k}' for k in some)}\n"
        for some in np.random.default_rng(3).integers(0, 120, (40, 5)).tolist()
    ]
    (tmp_path / "text.tsv").write_text("".join(lines), encoding="utf-8")
    text = ("--langs", "en", "de", "--pretokenized", "-q")
    works(
        capsys,
        "align",
        tmp_path / "text.tsv",
        *text,
        "--encoder",
        f"en={vectors / 'en.vec'},de={vectors / 'de.vec'}",
        "--method",
        "rotation",
        "--towards",
        "en",
        "--out",
        tmp_path / "out",
    )
    made = load_encoder(tmp_path / "out")
    assert isinstance(made, StaticEncoder)
    assert made.maps["de"].kind == "rotation"
    out, _ = works(
        capsys,
        "evaluate",
        tmp_path / "out",
        "retrieval",
        "--test",
        tmp_path / "text.tsv",
        *text,
        "--json",
    )
    assert (
        json.loads(out)["value"] > 0.4
    )  # repeated words have equal vectors, so not all of them can be retrieved
    works(
        capsys,
        "analyze",
        tmp_path / "out",
        "--test",
        tmp_path / "text.tsv",
        *text,
        "--out",
        tmp_path / "a.jsonl",
    )


def test_released_maps_can_be_applied_to_one_encoder_per_language(
    capsys, tiny_folder, tiny_encoder, tmp_path
):
    rng = np.random.default_rng(0)
    matrices = {}
    for layer in (1, 3):
        (tmp_path / str(layer)).mkdir()
        for lang in ("en", "de"):
            matrices[lang, layer] = (
                np.eye(32) / 7 if lang == "en" else rng.standard_normal((32, 32))
            )
            (tmp_path / str(layer) / f"{lang}_best_mapping.pth").write_bytes(
                pickle.dumps(matrices[lang, layer])
            )
    several = f"en={tiny_folder},de={tiny_folder}"
    works(
        capsys,
        "align",
        "--encoder",
        several,
        "--towards",
        "en",
        "--layers",
        "1,3",
        "--combine",
        "concat",
        "--out",
        tmp_path / "m",
        "--released",
        tmp_path / "1",
        tmp_path / "3",
    )
    made = load_encoder(tmp_path / "m")
    assert isinstance(made.base, PerLanguage)
    mixed = [
        Sentence(("the", "cat"), "en"),
        Sentence(("THE",), "de"),
        Sentence((), "en"),
        Sentence(("water",), "en"),
    ]
    for lang in ("de", "en"):
        found = made.encode(
            [Sentence(("the", "cat"), lang), Sentence(("the", "cat"), f"{lang}-XX")]
        )
        np.testing.assert_array_equal(found[0], found[1])
    found = made.encode(mixed)
    for number, sentence in enumerate(mixed):
        plain = tiny_encoder.encode_layers([sentence], (1, 3))
        parts = [
            np.matmul(plain[layer].data, matrices[sentence.lang, layer].transpose())
            for layer in (1, 3)
        ]
        np.testing.assert_allclose(found[number], np.concatenate(parts, axis=1), atol=1e-4)
    np.testing.assert_array_equal(
        read_released(tmp_path / "3" / "de_best_mapping.pth").matrix, matrices["de", 3].T
    )
    job = (
        "align",
        "--towards",
        "en",
        "--out",
        tmp_path / "x",
        "--encoder",
        tiny_folder,
        "--released",
    )
    assert "2 folders of maps for 1 layers" in fails(
        capsys, *job, tmp_path / "1", tmp_path / "3", "--layers", 1
    )
    assert "no file XX_best_mapping.pth" in fails(capsys, *job, tmp_path)
    (tmp_path / "1" / "de_best_mapping.pth").write_bytes(pickle.dumps(np.eye(5)))
    assert "32 dimensions" in fails(capsys, *job, tmp_path / "1", "--layers", 1)
    with pytest.raises(Exception, match="no encoder for language 'fr'"):
        load_encoder(several).encode([Sentence(("a",), "fr")])
    with pytest.raises(Exception, match="must have the same"):
        PerLanguage(
            {"en": load_encoder(tiny_folder, layer=1), "de": load_encoder(tiny_folder, layer=2)}
        )


def test_nearest_neighbours_are_shown_before_and_after_alignment(
    capsys, data, tiny_folder, tiny_encoder, tmp_path
):
    works(
        capsys,
        "align",
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--out",
        tmp_path / "m",
        "--langs",
        "en",
        "de",
        "--dictionary",
        data / "en-de.txt",
        "--text",
        data / "en.txt",
        data / "de.txt",
        "--option",
        "refine=0",
        "-q",
    )
    job = (
        "neighbours",
        "--lang1",
        "en",
        "--sentence1",
        "the cat sees",
        "--word1",
        "Cat",
        "--lang2",
        "de",
    )
    out, _ = works(
        capsys, *job, "--encoder", tmp_path / "m", "--text2", data / "de.txt", "-k", 3, "--json"
    )
    found = json.loads(out)
    assert (found["word"], found["place"]) == ("cat", 1)
    made = load_encoder(tmp_path / "m")
    for name, encoder in (("before", tiny_encoder), ("after", made)):
        rows = found[name]
        assert len({row["word"] for row in rows}) == len(rows) == 3
        x = encoder.encode([Sentence(("the", "cat", "sees"), "en")]).data[1]
        text = sentences(data, "de")
        y = encoder.encode(text).data
        cosines = y @ x / np.linalg.norm(y, axis=1) / np.linalg.norm(x)
        assert rows[0][name] == pytest.approx(cosines.max(), abs=1e-5)
        flat = [word for sentence in text for word in sentence.words]
        assert rows[0]["word"] in {flat[k] for k in np.flatnonzero(cosines > cosines.max() - 1e-5)}
    both = (
        "--encoder",
        tiny_folder,
        "--aligned",
        tmp_path / "m",
        "--sentence2",
        "A CAT",
        "--sentence2",
        "THE",
    )
    out, _ = works(capsys, *job, *both)
    assert out.splitlines()[0] == "cat (en): the [cat] sees"
    assert "nearest in de, before alignment (rank, word, cosine before → after alignment):" in out
    assert "[CAT]" in out
    out, _ = works(capsys, *job, "--encoder", tiny_folder, "--sentence2", "A CAT")
    assert "nearest in de (rank, word, cosine):" in out
    assert "no text to search" in fails(capsys, *job, "--encoder", tiny_folder)


def test_invalid_combinations_of_options_are_rejected(capsys, data, tiny_folder, tmp_path):
    align = (
        "align",
        "--encoder",
        tiny_folder,
        "--towards",
        "en",
        "--out",
        tmp_path / "o",
        "--langs",
        "en",
        "de",
    )
    with_dictionary = (*align, "--dictionary", data / "en-de.txt")
    anchors = (
        "anchors",
        data / "en.txt",
        "--out",
        tmp_path / "a",
        "--lang",
        "en",
        "--encoder",
        tiny_folder,
    )
    for job, message in (
        ((*with_dictionary, "--unsupervised"), "got --dictionary and --unsupervised"),
        (with_dictionary, "give --text en=FILE"),
        (
            (*align, "--unsupervised", "--option", "frequent=ten"),
            "--option frequent = 'ten', expected a whole number",
        ),
        (
            (*align, "--unsupervised", "--option", "growth=2.0"),
            "--option growth=2.0: expected NAME=VALUE with NAME one of start",
        ),
        ((*anchors, "--at-least", 1000), "no word occurs often enough"),
    ):
        assert message in fails(capsys, *job)


@pytest.mark.parametrize("content", [b"1 2\na 1 2\nb 3 4\n", b"1 2\n\xff 1 2\n"])
def test_avg_embeds_with_extra_words_or_invalid_utf8_is_rejected(tmp_path, content):
    (tmp_path / "avg_embeds_0.txt").write_bytes(content)
    with pytest.raises(InputError, match="must contain 1 words after the header"):
        read_avg_embeds(tmp_path)
