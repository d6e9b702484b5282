"""Text in shards, read and written at any address, and what is done with one: all that needs no cluster."""

import gzip
import json
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from calque.anchors import open_anchors
from calque.encoders import load_encoder
from calque.errors import CalqueError, InputError, SettingError
from calque.integrations.ray import verbs
from calque.integrations.ray.shards import (
    WINDOW,
    Shard,
    arriving,
    blocks,
    files_of,
    format_of,
    left_of,
    names_in,
    sentences,
    shards_of,
    written,
)
from calque.runs.anchors import make_anchors
from calque.text import Sentences
from command import fails, works
from shard_text import lines, run_here, vectors_of, write_jsonl, write_parquet


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "text/b.parquet", lines(25, 1), group=4)
    write_parquet(tmp_path / "text/deep/a.parquet", lines(3, 2))
    write_jsonl(tmp_path / "text/c.jsonl", lines(5, 3))
    (tmp_path / "text/_SUCCESS").touch()
    (tmp_path / "text/.b.parquet.crc").touch()
    return tmp_path


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(verbs, "run", run_here)


# -- which shards there are --------------------------------------------------------------------------------------------
def test_files_are_found_and_cut_into_shards(folder):
    files = files_of([str(folder / "text")])
    assert list(files) == ["b", "c", "deep/a"]
    shards = shards_of(files, 10)
    assert [(shard.name, shard.start, shard.rows) for shard in shards] == [
        ("b-00000", 0, 10), ("b-00001", 10, 10), ("b-00002", 20, 5), ("c", 0, None), ("deep/a", 0, 3),
    ]  # fmt: skip
    assert list(files_of([str(folder / "text/*.p*")])) == ["b"]
    assert list(files_of([f"file://{folder}/text/c.jsonl"])) == ["c"]
    assert format_of("x.jsonl.zst") == "jsonl"
    with pytest.raises(SettingError, match="both results would be called b"):
        files_of([str(folder / "text"), str(folder / "text/b.parquet")])
    with pytest.raises(InputError, match="no such file or folder"):
        files_of([str(folder / "never")])
    with pytest.raises(InputError, match=r"neither Parquet nor JSON lines, expected \.parquet or \.jsonl"):
        files_of([str(folder / "text/_SUCCESS")])
    with pytest.raises(InputError, match="cannot be reached .*nonsense"):
        files_of(["nonsense://x"])


def test_a_folder_remembers_what_it_was_made_of(folder):
    def left(lang="en", n=3):
        files = dict(list(files_of([str(folder / "text")]).items())[:n])
        return [s.name for s in left_of(str(folder / "out"), {"lang": lang}, shards_of(files, 100), str_of)]

    def str_of(shard):
        return f"{shard.name}.x"

    assert left(n=2) == ["b", "c"]
    (folder / "out/b.x").touch()
    assert left() == ["c", "deep/a"]  # text was added
    with pytest.raises(SettingError, match="was begun with another lang"):
        left("de")
    (folder / "out/run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: cannot be read"):
        left()


# -- rows --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("start", "rows", "size"), [(0, 25, 7), (10, 10, 10), (3, 14, 4), (20, 5, 100), (0, None, 9)])
def test_rows_of_a_shard_are_those_of_the_file(folder, start, rows, size):
    path = str(folder / "text/b.parquet")
    found = list(blocks(Shard(path, start, rows, "x"), size))
    numbers = [value for _, columns in found for value in columns["id"].to_pylist()]
    assert numbers == list(range(25))[start:][:rows]
    assert [first for first, _ in found] == list(range(start, start + len(numbers), size))
    assert all(len(columns["id"]) == size for _, columns in found[:-1])


def test_json_lines_packed_or_not(folder):
    raw = b'{"text": "a b", "n": {"x": 1}}\n\n{"text": "c"}\n'
    (folder / "x.jsonl.gz").write_bytes(gzip.compress(raw))
    found = list(blocks(Shard(str(folder / "x.jsonl.gz"), 0, None, "x"), 1))
    assert found == [(0, {"text": ["a b"], "n": [{"x": 1}]}), (1, {"text": ["c"]})]
    address = str(folder / "y.jsonl")
    with written(address) as write:
        write({"text": ["ä"], "new": pa.array([[1.5]])})
    assert (folder / "y.jsonl").read_text() == '{"text": "ä", "new": [1.5]}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{"text": 1}\n', "row 1: expected text or a list of words, got 1"), (b'{"tekst": "a"}\n', "no column 'text'"),
     (b"[1]\n", "line 1: expected an object"), (b'{"text": "a"}\n{\n', "line 2: not JSON"), (b"\xff\n", "line 1: not JSON"),
     (b'{"text": "\\ud800"}\n', "rows 1 to 1: not text")],
)  # fmt: skip
def test_rows_that_are_no_text_say_where(folder, content, message):
    path = folder / "x.jsonl"
    path.write_bytes(content)
    how = {"lang": "en", "pretokenized": False, "path": str(path), "first": 0}
    with pytest.raises(InputError, match=message):
        [sentences(rows, ["text"], **how) for _, rows in blocks(Shard(str(path), 0, None, "x"), 9)]


def test_columns_may_be_of_words_or_in_an_object():
    how = {"lang": "en", "pretokenized": False, "path": "", "first": 0}
    found = sentences({"translation": [{"en": "a"}]}, ["en", "translation.en"], **how)
    assert [s.words for s in found] == [("a",)]
    found = sentences({"words": pa.array([["New York", "is"]])}, ["words"], **how)
    assert [s.words for s in found] == [("New York", "is")]


def test_nothing_stands_at_an_address_before_it_is_whole(tmp_path):
    for folder in (str(tmp_path / "deep"), "memory://shards"):
        address = f"{folder}/x"
        with pytest.raises(ZeroDivisionError), arriving(address) as local:
            Path(local).write_text(f"half {1 // 0}")
        assert names_in(folder) == set()
        with arriving(address) as local:
            Path(local).write_text("all")
        assert fsspec.open(address).open().read() == b"all"
        assert names_in(folder) == {"x"}
    with pytest.raises(CalqueError, match="cannot be written"), arriving("/dev/null/x"):
        pass


# -- work --------------------------------------------------------------------------------------------------------------
def test_a_text_cut_at_windows_has_the_vectors_of_the_whole(tiny_encoder):
    text = Sentences.of([line.split() for line in lines(WINDOW + 900, longest=4)], "en")
    whole, (first, second) = (
        tiny_encoder.encode(text),
        (tiny_encoder.encode(part) for part in (text[:WINDOW], text[WINDOW:])),
    )
    np.testing.assert_array_equal(np.concatenate([first.data, second.data]), whole.data)


def test_vectors_are_those_of_one_machine(capsys, here, tiny_folder, folder):
    (folder / "b.txt").write_text("\n".join(lines(25, 1)))
    works(capsys, "encode", tiny_folder, folder / "b.txt", "--lang", "en", "--out", folder / "one", "-q")
    command = ["encode", tiny_folder, folder / "text", "--lang", "en", "--out", folder / "out", "--engine", "ray"]
    _, said = works(capsys, *command)
    assert "in 33 sentences, 32 dimensions; 3 shards" in said
    one = np.asarray(load_encoder(tiny_folder).encode(Sentences.of([x.split() for x in lines(25, 1)], "en")).data)
    np.testing.assert_array_equal(vectors_of(folder / "out/b.parquet"), one)
    table = parquet.read_table(folder / "out/b.parquet")
    assert table.column_names == ["id", "text", "words", "vectors", "covered"]
    assert [" ".join(words) for words in table["words"].to_pylist()] == lines(25, 1)
    expected = load_encoder(tiny_folder).encode(Sentences.of([x.split() for x in lines(5, 3)], "en")).data
    np.testing.assert_array_equal(vectors_of(folder / "out/c.jsonl"), expected)
    # what is there is not made again; what is missing, is
    before = (folder / "out/c.jsonl").stat().st_mtime_ns
    (folder / "out/b.parquet").unlink()
    _, said = works(capsys, *command)
    assert "1 shards, 2 were done before" in said
    assert (folder / "out/c.jsonl").stat().st_mtime_ns == before
    assert "was begun with another pretokenized" in fails(capsys, *command, "--pretokenized")


def test_anchors_are_those_of_one_machine(here, tiny_folder, folder):
    for k, seed in enumerate((1, 3, 2)):
        (folder / f"{k}.txt").write_text("\n".join(lines({1: 25, 3: 5, 2: 3}[seed], seed)))
    how = {"lang": "en", "encoder": str(tiny_folder), "layers": [1, 2]}
    one = make_anchors([str(folder / f"{k}.txt") for k in range(3)], out=folder / "one", **how)
    for out in (str(folder / "out"), "memory://anchors"):
        many = verbs.anchors([str(folder / "text")], out=out, **how)
        for layer in (1, 2):
            assert many[layer].words == one[layer].words
            for name in ("vectors", "variances", "norms", "counts"):
                np.testing.assert_allclose(getattr(many[layer], name), getattr(one[layer], name), rtol=1e-6)
    assert open_anchors(folder / "out")[1].words == one[1].words
    assert names_in("memory://anchors") >= {"anchors.safetensors", "sums.safetensors", "sums/deep/a.safetensors"}


def test_links_are_those_of_one_machine(capsys, here, folder):
    source, target = lines(40, 5), [line[::-1] for line in lines(40, 5)]
    (folder / "text.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(source, target, strict=True)))
    how = ["--langs", "en", "de", "-q", "--pretokenized"]
    tables, pharaoh = folder / "tables", folder / "links"
    taught = ("--model", "fast-align", "--tables", tables)
    works(capsys, "words", folder / "text.tsv", *how, *taught, "--out", folder / "first")
    works(capsys, "words", folder / "text.tsv", *how, "--use", tables, "--out", pharaoh)
    write_parquet(folder / "pairs/a.parquet", source[:30], en=source[:30], de=target[:30])
    objects = [{"en": a, "de": b} for a, b in zip(source[30:], target[30:], strict=True)]
    write_jsonl(folder / "pairs/b.jsonl", source[30:], translation=objects)
    command = ["words", folder / "pairs", *how, "--engine", "ray", "--format", "jsonl", "--out", folder / "linked"]
    works(capsys, *command, "--use", tables)
    found = [json.loads(row)["links"] for k in "ab" for row in (folder / f"linked/{k}.jsonl").read_text().splitlines()]
    assert found == pharaoh.read_text().splitlines()
    assert sum(map(len, found)) > 100
    assert "learn them with --tables on a sample" in fails(capsys, *command)
    assert "parallel text needs two" in fails(capsys, *command, "--use", tables, "--column", "x")


def test_a_shard_that_cannot_be_read_is_one_line(capsys, here, tiny_folder, folder):
    out = ["--lang", "en", "--engine", "ray", "-q", "--out"]
    (folder / "text/b.parquet").write_bytes(b"PAR1 nonsense")
    said = fails(capsys, "encode", tiny_folder, folder / "text", *out, folder / "1")
    assert "text/b.parquet: cannot be read (" in said
    (folder / "text/b.parquet").unlink()
    write_parquet(folder / "text/b.parquet", [None, "a"])
    said = fails(capsys, "anchors", folder / "text/b.parquet", "--encoder", tiny_folder, *out, folder / "2")
    assert "b.parquet: row 1: expected text or a list of words, got None (on " in said
