"""Tests of tagged words in every file format, and of errors that name the line."""

import gzip
import json

import pytest

from calque.corpora import read_tagged
from calque.errors import InputError, SettingError, SkippedWarning


def write(folder, content, name="f.tsv"):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pairs(text):
    """Return each sentence as a string of `word/tag` pairs."""
    tags = iter(text.tags.to_list())
    return [
        " ".join(f"{word}/{next(tags)}" for word in sentence.words) for sentence in text.sentences
    ]


CONLL_2002 = (
    "-DOCSTART- -DOCSTART- O\nSao NC B-LOC\nPaulo VMI I-LOC\n( Fpa O\n\n- Fg O\nEl DA I-ORG\n"
)
CONLL_2003 = (
    "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\n# NN I-NP O\n\nBonn NNP I-NP I-LOC\nUlm NNP I-NP "
    "B-LOC\n"
)
UNER = (
    "# sent_id = a\n# text = Al-Zaman\n1\tAl\tB-ORG\t-\tx\n2\t#\tI-ORG\t-\tx\n\n# text = "
    "b\n1\tb\tO\t-\ty\n"
)
XSID = (
    "# id = 1\n# intent = "
    "weather/find\n1\tIs\tweather/find\tO\n2\train\tweather/find\tB-weather/attribute\n\n"
    "# intent = alarm\n1\thalf\talarm\tOtime\n"
)
CONLLU = (
    "# newdoc\n# text = al "
    "mar\n1-2\tal\t_\t_\t_\t_\t_\t_\t_\t_\n1\ta\ta\tADP\tIN\t_\t3\tcase\t_\t_\n"
    "2\tel\tel\tDET\tDT\t_\t3\tdet\t_\t_\n3\tmar\tmar\tNOUN\tNN\t_\t0\troot\t_\t_\n3.1\tx\tx\tX\tX\t_\t_\t_\t_\t_\n\n"
)


@pytest.mark.parametrize(
    ("content", "expected", "lines", "repaired"),
    [
        (CONLL_2002, ["Sao/B-LOC Paulo/I-LOC (/O", "-/O El/B-ORG"], [2, 6], 1),
        (CONLL_2003, ["EU/B-ORG #/O", "Bonn/B-LOC Ulm/B-LOC"], [3, 6], 0),
        (
            "'\tO\r\n#\tB-PER\r\n#A\tI-PER\r\n\r\n\r\nx y\tO",
            ["'/O #/B-PER #A/I-PER", "x y/O"],
            [1, 6],
            0,
        ),
        ("en:a\tB-PER\nen::\tO\n\nen:b\tO\n", ["a/B-PER :/O", "b/O"], [1, 4], 0),
        ("# id 7\tdomain=en\na _ _ B-X\nb _ _ I-X\n", ["a/B-X b/I-X"], [2], 0),
        ("# id = 7\n#\tO\n", ["#/O"], [2], 0),
        ("Das\tPRON\nist\tAUX\n", ["Das/PRON ist/AUX"], [1], 0),
        (UNER, ["Al/B-ORG #/I-ORG", "b/O"], [3, 7], 0),
        (XSID, ["Is/O rain/B-weather/attribute", "half/O"], [3, 7], 1),
        (CONLLU, ["a/ADP el/DET mar/NOUN"], [3], 0),
    ],
    ids=["2002", "2003", "panx", "wikiann", "multiconer", "hash", "upos", "uner", "xsid", "conllu"],
)
def test_formats_of_tagged_text_are_detected_by_content(
    tmp_path, content, expected, lines, repaired
):
    path = write(tmp_path, gzip.compress(content.encode()), "f.gz")
    text = read_tagged(path, lang="en")
    assert pairs(text) == expected
    assert (text.lines.tolist(), text.repaired, text.path) == (lines, repaired, str(path))
    assert text.sentences.lang == "en"
    if content == XSID:
        assert text.intents.to_list() == ["weather/find", "alarm"]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER M-PER E-PER O S-PER", "B-PER I-PER I-PER O B-PER"),  # BMES
        ("B-PER M-PER M-PER E-PER W-LOC", "B-PER I-PER I-PER I-PER B-LOC"),  # BMEWO
        ("B M E O S", "B-_ I-_ I-_ O B-_"),
        ("I-PER E-PER E-PER O I-LOC", "B-PER I-PER B-PER O B-LOC"),  # IOE
        ("B-PER Oper O-PER I-PER O", "B-PER O O B-PER O"),
        ("B_PER I_PER O", "B_PER I_PER O"),  # no tag has a known prefix
        ("NOUN M-x W VERB O", "NOUN M-x W VERB O"),
    ],
    ids=["bmes", "bmewo", "untyped", "ioe", "typed O", "no scheme", "plain"],
)
def test_tags_of_every_scheme_become_bio(tmp_path, tags, expected):
    path = write(tmp_path, "".join(f"w\t{tag}\n" for tag in tags.split()))
    assert read_tagged(path, lang="zh").tags.to_list() == expected.split()


@pytest.mark.parametrize(
    ("tag", "remedy"),
    [
        ("B_PER", "write B-PER"),
        ("i-PER", "write I-PER"),
        ("M–PER", "write M-PER"),
        ("X-PER", "correct the tag, or write O"),
        ("PER", "correct the tag, or write O"),
        ("o", "correct the tag, or write O"),
        ("_", "correct the tag, or write O"),
    ],
)
def test_an_unknown_prefix_beside_known_ones_is_an_error_that_names_line_and_tag(
    tmp_path, tag, remedy
):
    rows = f"a\tO\n\nb\tB-LOC\nc\tI-LOC\nd\t{tag}\n\ne\tO\n"
    numbered = "# id = 1\n1\ta\tB-LOC\n2\tb\tI-LOC\n3\tc\tO\n4\td\t" + tag + "\n"
    for content, line in ((rows, 5), (numbered, 5)):
        path = write(tmp_path, content)
        with pytest.raises(
            InputError, match=rf"f\.tsv line {line}: the tag '{tag}' does not belong .*; {remedy}"
        ):
            read_tagged(path, lang="en")
    with pytest.warns(SkippedWarning, match=r"skipped 1 of 3 sentences: 1 × unknown tag"):
        text = read_tagged(write(tmp_path, rows), lang="en", on_error="skip")
    assert pairs(text) == ["a/O", "e/O"]


def test_tags_can_be_read_from_another_column(tmp_path):
    assert pairs(read_tagged(write(tmp_path, CONLL_2003), lang="en", column=2))[0] == "EU/NNP #/NN"
    assert pairs(read_tagged(write(tmp_path, CONLLU), lang="es", column="xpos")) == [
        "a/IN el/DT mar/NN"
    ]
    for content, given, message in (
        (CONLLU, {"column": "feats"}, "no column 'feats' in CoNLL-U, expected one of upos, xpos"),
        (CONLL_2003, {"column": "pos"}, "column must be a column number of at least 1, got 'pos'"),
        (
            CONLL_2003,
            {"format": "conl"},
            "unknown format 'conl', expected one of hub, conllu, .*, columns",
        ),
        (CONLL_2003, {"on_error": "blank"}, "on_error must be 'raise' or 'skip', got 'blank'"),
    ):
        with pytest.raises(SettingError, match=message):
            read_tagged(write(tmp_path, content), lang="en", **given)


def test_files_without_sentences_are_rejected(tmp_path):
    for content in ("", "\n\n", "# only = comments\n"):
        with pytest.raises(InputError, match=r"f: no sentences could be read: the file is empty"):
            read_tagged(write(tmp_path, content, "f"), lang="en")
    with pytest.raises(
        InputError, match=r"no sentences could be read: 1 × empty tag \(first: .*f line 1\)"
    ):
        read_tagged(write(tmp_path, "a\t\n", "f"), lang="en", on_error="skip")
    with pytest.raises(InputError, match=r"no-such: cannot be read"):
        read_tagged(tmp_path / "no-such", lang="en")


def request(intent, slots, text, tokens=None, unit=len):
    """Return a line in Facebook's format; `unit` selects offsets in characters or bytes."""
    columns = [intent, slots, text]
    if tokens is not None:
        spans, at = [], 0
        for token in tokens:
            at = text.index(token, at)
            spans.append({"start": unit(text[:at]), "length": unit(token)})
            at += len(token)
        lowered = [token.lower() for token in tokens]
        columns += [
            "es_XX",
            json.dumps({"tokenizations": [{"tokens": lowered, "tokenSpans": spans}]}),
        ]
    return "\t".join(columns) + "\n"


def test_slots_in_facebook_format_are_widened_to_whole_words(tmp_path):
    rows = (
        request(
            "alarm/set",
            "4:11:datetime,12:16:what",
            "Show Tuesday's list",
            ["Show", "Tuesday's", "list"],
        ),
        request("alarm/set", "0:4:a,4:9:b", "Mikeel 6 x", ["Mikeel", "6", "x"]),
        request("alarm/no", "", "Ok ", ["Ok"]),
    )
    text = read_tagged(write(tmp_path, "".join(rows)), lang="en")
    assert pairs(text) == [
        "Show/O Tuesday's/B-datetime list/B-what",
        "Mikeel/B-a 6/B-b x/O",
        "Ok/O",
    ]
    assert text.repaired == 4  # two slots in Tuesday's, and the slots Mike and el 6
    assert text.intents.names == ("alarm/no", "alarm/set")


@pytest.mark.parametrize(
    "unit", [len, lambda text: len(text.encode())], ids=["characters", "bytes"]
)
def test_offsets_in_facebook_format_can_be_in_characters_or_bytes(tmp_path, unit):
    row = request(
        "x", "10:17:todo", "Muéstrame mañana, ya", ["Muéstrame", "mañana", ",", "ya"], unit
    )
    text = read_tagged(write(tmp_path, row), lang="es")
    assert pairs(text) == ["Muéstrame/O mañana/B-todo ,/I-todo ya/O"]
    assert text.repaired == 0


def test_text_in_facebook_format_without_tokens_is_segmented(tmp_path):
    assert pairs(read_tagged(write(tmp_path, "x\t0:3:a\tGo, don't.\n"), lang="en")) == [
        "Go/B-a ,/I-a don/O 't/O ./O"
    ]
    with pytest.raises(
        InputError, match=r"line 1: the tokens in the last column do not match the text"
    ):
        read_tagged(
            write(tmp_path, request("x", "", "ab cd", ["ab", "cd"]).replace("\tab", "\tba")),
            lang="en",
        )


def test_tags_of_data_sets_are_read_as_names_instead_of_numbers(tmp_path):
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["O", "B-PER", "I-PER"])
    kinds = {
        "tokens": datasets.Sequence(datasets.Value("string")),
        "ner_tags": datasets.Sequence(label),
    }
    kinds["intent"] = datasets.ClassLabel(names=["go", "stay"])
    rows = {"tokens": [["Ann", "B", "x"], ["y"]], "ner_tags": [[1, 2, 0], [2]], "intent": [1, 0]}
    data = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    data.save_to_disk(tmp_path / "saved")
    data.to_parquet(str(tmp_path / "f.parquet"))
    for path in (tmp_path / "saved", tmp_path / "f.parquet", f"hub:{tmp_path / 'saved'}"):
        text = read_tagged(path, lang="en")
        assert pairs(text) == ["Ann/B-PER B/I-PER x/O", "y/B-PER"]
        assert text.repaired == 1
        assert (text.lines.tolist(), text.intents.to_list()) == ([1, 2], ["stay", "go"])


def test_the_error_for_an_unusable_row_of_a_data_set_names_the_row(tmp_path):
    pytest.importorskip("datasets")
    good = {"words": ["a"], "upos": ["X"]}
    for rows, given, message in (
        (
            [good, {"words": ["a"], "upos": ["X", "Y"]}],
            {},
            "line 2: 1 words and 2 tags, expected one tag for each",
        ),
        ([{"words": ["a"], "upos": [3]}], {}, "line 1: the value is 3, expected text, or a number"),
        ([{"words": [""], "upos": ["X"]}], {}, "line 1: the tag has no word"),
        (
            [good],
            {"column": "pos"},
            "has the columns words, upos; expected tokens or words, and pos",
        ),
    ):
        path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "f.jsonl")
        with pytest.raises(InputError, match=message):
            read_tagged(path, lang="en", **given)
