"""Tests of labelled text in every file format, and of errors that name the line."""

import gzip
import json
import warnings

import pytest

from calque.corpora import SkippedWarning, read_labelled
from calque.errors import InputError


def write(folder, content, name="f.tsv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(text):
    columns = [[" ".join(sentence.words) for sentence in column] for column in text.texts]
    return [
        " | ".join((*texts, label))
        for *texts, label in zip(*columns, text.labels.to_list(), strict=True)
    ]


XNLI = (
    "language\tgold_label\tsentence1_parse\tsentence1\tsentence2\tmatch\n"
    "de\tneutral\t( a )\tUnd er.\tSie\tTrue\nen\tentailment\t( a )\tAnd he.\tShe\tTrue\n"
    'en\t-\t( a )\tAnd\tit\tTrue\nen\tcontradiction\t( a )\t"No\tyes"\tTrue\n'
)
SICK = (
    "pair_ID\tsentence_A\tsentence_B\tentailment_label\tsentence_A_original\tsentence_B_original\n"
    "1\tEen hond\tEen kat\tNEUTRAL\tA dog\tA cat\n"
)
JSON = (
    '{"gold_label": "neutral", "sentence1": "A b.", "sentence2": "c", "x": 1}\n\n'
    '{"sentence2": "c", "sentence1": "d", "gold_label": "contradiction"}\n'
)
CASES = {
    "xnli": (XNLI, "en", ["And he . | She | entailment", '" No | yes " | contradiction'], [3, 5]),
    "xnli-de": (XNLI, "de", ["Und er . | Sie | neutral"], [2]),
    "sick-en": (SICK, "en-GB", ["A dog | A cat | neutral"], [2]),
    "sick-nl": (SICK, "nl", ["Een hond | Een kat | neutral"], [2]),
    "translated": (
        "premise\thypo\tlabel\na\tb\tcontradictory\n",
        "fr",
        ["a | b | contradiction"],
        [2],
    ),
    "named": ("Text\tLabel\nA b.\tGood\n", "en", ["A b . | good"], [2]),
    "pairs": (
        "A b.\tc\tentailment\r\n\r\nd\te\tNeutral \r\n",
        "en",
        ["A b . | c | entailment", "d | e | neutral"],
        [1, 3],
    ),
    "label-text": (
        "0\tgood, a\n1\tb\n0\tc\n1\td\n",
        "en",
        ["good , a | 0", "b | 1", "c | 0", "d | 1"],
        [1, 2, 3, 4],
    ),
    "text-label": (
        "a\tx\nb\tx\nc\tx\n\nd\ty\n",
        "en",
        ["a | x", "b | x", "c | x", "d | y"],
        [1, 2, 3, 5],
    ),
    "brackets": ("[ a\t{\tneutral\n", "en", ["[ a | { | neutral"], [1]),
    "jsonl": (JSON, "en", ["A b . | c | neutral", "d | c | contradiction"], [1, 3]),
    "jsonl-text": ('{"text": "a", "label": 2}\n', "en", ["a | 2"], [1]),
}


@pytest.mark.filterwarnings("ignore::calque.corpora.SkippedWarning")
@pytest.mark.parametrize("case", CASES)
def test_formats_of_labelled_text_are_detected_by_content(tmp_path, case):
    content, lang, expected, lines = CASES[case]
    for path in (
        write(tmp_path, content),
        write(tmp_path, gzip.compress(content.encode()), "f.gz"),
    ):
        text = read_labelled(path, lang=lang)
        assert rows(text) == expected
        assert (text.lines.tolist(), text.path, text.texts[0].lang) == (lines, str(path), lang)


def test_pairs_without_an_agreed_label_are_skipped(tmp_path):
    with pytest.warns(
        SkippedWarning,
        match=r"skipped 1 of 3 texts: 1 × no agreed label \(first: .*f\.tsv line 4\)",
    ):
        assert len(read_labelled(write(tmp_path, XNLI), lang="en")) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rows in other languages are not reported as skipped
        assert len(read_labelled(write(tmp_path, XNLI), lang="de")) == 1
    with pytest.raises(
        InputError, match=r"f\.tsv: no text in 'fr'; the file has de, en: choose one"
    ):
        read_labelled(write(tmp_path, XNLI), lang="fr")


def test_columns_in_an_ambiguous_order_require_a_format(tmp_path):
    path = write(tmp_path, "a\tx\nb\ty\nc\tz\n")
    with pytest.raises(
        InputError, match='two columns with 3 and 3 different values in 3 rows.*to "label-text"'
    ):
        read_labelled(path, lang="en")
    assert rows(read_labelled(path, lang="en", format="label-text")) == ["x | a", "y | b", "z | c"]
    assert rows(read_labelled(path, lang="en", format="text-label"))[0] == "a | x"
    assert (
        rows(read_labelled(path, lang="en", format="text-label", pretokenized=True))[1] == "b | y"
    )
    with pytest.raises(
        InputError, match="columns a, x; expected label, and text or both premise and hypothesis"
    ):
        read_labelled(path, lang="en", format="header")
    with pytest.raises(InputError, match=r"f\.tsv: no texts could be read: the file is empty"):
        read_labelled(write(tmp_path, "\n"), lang="en")


def test_labels_of_data_sets_are_read_as_names_instead_of_numbers(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    names["label"] = datasets.ClassLabel(names=["Entailment", "Neutral", "Contradiction"])
    content = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [2, -1, 0]}
    data = datasets.Dataset.from_dict(content, features=datasets.Features(names))
    data.save_to_disk(tmp_path / "saved")
    data.to_parquet(str(tmp_path / "f.parquet"))
    for path in (tmp_path / "saved", tmp_path / "f.parquet", f"hub:{tmp_path / 'saved'}"):
        with pytest.warns(
            SkippedWarning, match=r"skipped 1 of 3 texts: 1 × no agreed label \(first: .* line 2\)"
        ):
            assert rows(read_labelled(path, lang="en")) == [
                "a | d | contradiction",
                "c | f | entailment",
            ]
    plain = write(
        tmp_path, "text,label\na,0\nb,1\n", "f.csv"
    )  # labels without names remain numbers
    assert rows(read_labelled(plain, lang="en")) == ["a | 0", "b | 1"]
    objects = write(tmp_path, json.dumps([{"text": "a", "label": "x"}]), "f.json")
    assert rows(read_labelled(objects, lang="en")) == ["a | x"]
