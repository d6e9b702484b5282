"""Tests of the model card: its code runs, and its facts match the run record."""

import json
import re
from pathlib import Path

import pytest
import torch
from huggingface_hub import EvalResult, ModelCard

from calque.alignment.driver import make_method
from calque.alignment.validation import UnchangedWarning
from calque.corpora import read_parallel
from calque.corpora.sample import sample_text
from calque.encoders import load_encoder
from calque.pairs import WordPairs
from calque.runs.align import align
from calque.runs.card import add_scores
from calque.runs.settings import AlignSettings
from calque.tasks import Score
from calque.tasks.reporting import Reporting
from calque.tasks.table import TASKS
from calque.text import Sentence
from command import works


@pytest.fixture(scope="module")
def train(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "train.tsv"
    pairs = [(list(s.words), list(t.words)) for s, t in sample_text("de", "train")[:16]]
    path.write_text("".join(f"{' '.join(s)}\t{' '.join(t)}\n" for s, t in pairs), encoding="utf-8")
    return path


def aligned(train: Path, encoder: Path, out: Path, method: str = "contrastive", **load) -> str:
    options = {"epochs": 0.5, "batch": 4} if method == "contrastive" else {}
    how = AlignSettings(
        train=[str(train)],
        langs=["en", "de"],
        encoder=str(encoder),
        method=method,
        towards="en",
        out=out,
    )
    align(how, load=load, options=options)
    return (out / "README.md").read_text(encoding="utf-8")


def run_code(card: str, folder: Path) -> dict:
    # The card of an encoder with maps has a second block, for sentence-transformers.
    code = re.findall(r"```python\n(.*?)```", card, re.DOTALL)[0]
    space: dict = {}
    exec(compile(code.replace('FOLDER = "."', f"FOLDER = {str(folder)!r}"), "card", "exec"), space)
    return space


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_the_code_in_the_card_computes_the_same_vectors_without_calque(
    family_folder, pooling, train, tmp_path
):
    card = aligned(train, family_folder, tmp_path / "out", layer=1, pooling=pooling)
    space = run_code(card, tmp_path / "out")
    assert "import calque" not in card
    words = ["The", "old", "ferry", "leaves", "the", "harbour"]
    ours = load_encoder(tmp_path / "out").encode([Sentence(tuple(words), "en")])[0]
    torch.testing.assert_close(
        space["word_vectors"](words), torch.from_numpy(ours), rtol=0, atol=2e-5
    )
    assert space["vectors"].shape == (5, ours.shape[1])
    assert f"layer {load_encoder(tmp_path / 'out').layer}" in card or "the last layer (1)" in card


@pytest.mark.filterwarnings(
    "ignore::calque.errors.CalqueWarning",
    "ignore::calque.encoders.extraction.UncoveredWordsWarning",
)
def test_the_card_describes_the_method_and_the_skipped_pairs(tiny_folder, train, tmp_path):
    text = train.read_text(encoding="utf-8")
    train = tmp_path / "train.tsv"
    train.write_text(text + f"{'word ' * 70}\t{'Wort ' * 70}\n", encoding="utf-8")
    card = aligned(train, tiny_folder, tmp_path / "one")
    assert "1 sentence pairs with more than 64 words on one side" in card
    assert "Words in de and their translations in en were trained to have similar vectors" in card
    card = aligned(train, tiny_folder, tmp_path / "two", "rotation")
    assert "The word vectors of de were moved towards those of en" in card
    assert run_code(card, tmp_path / "two")["vectors"].shape[0] == 3


def test_the_card_says_that_training_gained_nothing(tiny_folder, tmp_path):
    train, out = tmp_path / "train.tsv", tmp_path / "out"
    pairs = sample_text("de", "train")[:60]
    train.write_text(
        "".join(f"{' '.join(s.words)}\t{' '.join(t.words)}\n" for s, t in pairs), encoding="utf-8"
    )
    how = AlignSettings(
        train=[str(train)],
        langs=["en", "de"],
        encoder=str(tiny_folder),
        method="contrastive",
        towards="en",
        out=out,
    )
    with pytest.warns(UnchangedWarning, match="gained nothing on 12 held-out pairs"):
        align(how, options={"epochs": 0.5, "learning_rate": 1e-9})
    card = " ".join((out / "README.md").read_text(encoding="utf-8").split())
    assert "**The vectors are those of the encoder before training**: contrastive training" in card
    assert "were trained to have similar vectors" not in card
    record = json.loads((out / "calque-run.json").read_text(encoding="utf-8"))
    assert record["held_out"]["unchanged"]
    assert load_encoder(out).fingerprint == record["encoder_fingerprint"]


@pytest.mark.parametrize("name", ["contrastive", "rotation", "means"])
def test_encoders_saved_in_python_have_a_card_and_a_record(
    name, tiny_folder, train, tmp_path, capsys
):
    corpus = read_parallel(train, langs=("en", "de"))
    pairs = WordPairs.of([[(0, 0), (1, 1)]] * len(corpus))
    options = {"epochs": 0.5, "batch": 4} if name == "contrastive" else {}
    method = make_method(name, "en", options)
    made = method.align(load_encoder(tiny_folder), corpus, pairs)
    made.save(tmp_path / "out")
    record = json.loads((tmp_path / "out" / "calque-run.json").read_text())
    assert (record["method"], record["towards"], record["encoder"]) == (
        name,
        "en",
        tiny_folder.name,
    )
    assert record["settings"]
    assert f"aligned by {name}" in (tmp_path / "out" / "README.md").read_text()
    for folder in ("out", "plain"):  # `--record` also works without an existing record
        if folder == "plain":
            load_encoder(tiny_folder).save(tmp_path / folder)
        test = ["--test", train, "--langs", "en", "de", "--non-contextual"]
        works(capsys, "evaluate", tmp_path / folder, "retrieval", *test, "--record", "-q")
        assert json.loads((tmp_path / folder / "calque-run.json").read_text())["scores"]
        assert "| retrieval |" in (tmp_path / folder / "README.md").read_text()


def test_recording_scores_changes_only_the_block_of_scores(tiny_folder, train, tmp_path, capsys):
    """The user's sections before and after the scores stay, and the same score recorded twice is
    one row.
    """
    load_encoder(tiny_folder).save(tmp_path / "out")
    card = tmp_path / "out" / "README.md"
    own = "# My model\n\n## Scores\n\nSee our paper.\n\n## Licence\n\nMIT.\n"
    card.write_text(own)
    test = ["--test", train, "--langs", "en", "de", "--record", "-q"]
    for further in ((), ("--non-contextual",), (), ("--non-contextual",)):
        works(capsys, "evaluate", tmp_path / "out", "retrieval", *test, *further)
    text = card.read_text()
    front, delimiter, rest = text.partition("---\n\n")
    assert front.startswith("---\nmodel-index:\n")
    assert rest.startswith(own)
    rows = [line for line in text.splitlines() if line.startswith("| retrieval | accuracy.all |")]
    assert [row.split(" | ")[-1] for row in rows] == ["contextual: True |", "contextual: False |"]
    assert len(json.loads((tmp_path / "out" / "calque-run.json").read_text())["scores"]) == 2 * len(
        [
            line
            for line in text.splitlines()
            if line.startswith("| retrieval |") and line.endswith("True |")
        ]
    )


def own_score(mode: str, skipped: int) -> dict:
    """Return the score of a task from another package, whose declaration is stored with the
    score.
    """
    settings = {"mode": mode, "skipped": skipped}
    reporting = Reporting(descriptive=("skipped",))
    score = Score(
        "mine", "t", ("en", "de"), "accuracy", 0.5, 0.4, 0.6, 9, 0, settings, reporting=reporting
    )
    return score.to_dict()


def rows_of(folder: Path) -> list[str]:
    return [
        line
        for line in (folder / "README.md").read_text().splitlines()
        if line.startswith("| mine |")
    ]


def test_the_card_shows_only_settings_that_define_the_question_of_a_score(tmp_path):
    add_scores(tmp_path, [own_score("a", 1), own_score("b", 2)])
    add_scores(tmp_path, [own_score("b", 3)])
    assert [row.split(" | ")[-1] for row in rows_of(tmp_path)] == ["mode: a |", "mode: b |"]


def test_a_recorded_score_may_lack_values_that_are_not_needed(tmp_path):
    bare = {**own_score("a", 1), "settings": None, "reporting": None, "n": None}
    (tmp_path / "calque-run.json").write_text(json.dumps({"calque": "1", "scores": [bare]}))
    add_scores(tmp_path, [own_score("b", 2)])
    assert len(rows_of(tmp_path)) == 2


def results_of(folder: Path) -> tuple[str, list[EvalResult]]:
    """Return the name of the model and the results that the hub's library reads from a card."""
    data = ModelCard.load(folder / "README.md").data
    return data.model_name, data.eval_results


def test_the_hub_reads_recorded_scores_from_the_front_matter(tmp_path):
    score = Score(
        "ner",
        "/home/me/my test.tsv",
        ("en", "de"),
        "f1",
        0.512345,
        0.4,
        float("nan"),
        9,
        0,
        {"warnings": ["not converged: the best epoch was the last"]},
    )
    others = [
        own_score("a", 1),
        own_score("b", 2),
        {**own_score("a", 1), "value": None, "metric": "undefined"},
        {**own_score("a", 1), "data": "hub:xnli:de", "settings": None, "n": None},
    ]
    folder = tmp_path / "my-encoder"
    folder.mkdir()
    add_scores(folder, [score.to_dict(), *others])
    name, (ner, first, second, on_hub) = results_of(folder)
    assert name == "my-encoder"
    assert ner == EvalResult(
        task_type="token-classification",
        task_name="named entities",
        dataset_type="my-test.tsv",
        dataset_name="my test.tsv",
        dataset_config="en-de",
        metric_type="f1",
        metric_name="f1 (not converged)",
        metric_value=0.5123,
        metric_args={"low": 0.4, "n": 9},
    )
    assert (first.task_type, first.task_name) == ("feature-extraction", "mine")
    assert first.metric_args == {"low": 0.4, "high": 0.6, "n": 9, "mode": "a"}
    assert second.metric_args == {"low": 0.4, "high": 0.6, "n": 9, "mode": "b"}
    assert (on_hub.dataset_type, on_hub.dataset_name) == ("facebook/xnli", "hub:xnli:de")
    assert on_hub.metric_args == {"low": 0.4, "high": 0.6}


def test_a_score_without_a_value_adds_no_front_matter(tmp_path):
    add_scores(tmp_path, [{**own_score("a", 1), "value": None}])
    assert (tmp_path / "README.md").read_text().startswith("<!-- calque: scores")


def test_all_task_types_and_data_sets_are_valid_on_the_hub(tmp_path):
    """Check the patterns of the hub, which rejects an upload with other names."""
    for data in ("a b/ç.tsv", "日本語.tsv", "hub:pan-x:de", "???", "facebook/xnli"):
        add_scores(tmp_path, [{**own_score("a", 1), "data": data}])
    _, results = results_of(tmp_path)
    assert len(results) == 5
    for result in results:
        assert re.fullmatch(r"([A-Za-z0-9_-]+/)?[A-Za-z0-9_.-]+", result.dataset_type)
    for row in TASKS.rows.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", row.hub_task)


@pytest.mark.parametrize(
    "text", ["a: b", "#1", "- x", "'", "null", "ç\u2028: 日", "\x85b: c", "a\nb: c"]
)
def test_names_with_any_characters_are_one_result(text, tmp_path):
    named = dict.fromkeys(("task", "data", "metric"), text)
    scores = [{**own_score(text, 1), **named}, own_score("b", 2)]
    add_scores(tmp_path, scores)
    before = (tmp_path / "README.md").read_bytes()
    add_scores(tmp_path, scores)
    assert (tmp_path / "README.md").read_bytes() == before
    _, results = results_of(tmp_path)
    shown = re.sub("[\x85\u2028]", " ", text)
    assert [result.metric_type for result in results] == [shown, "accuracy"]
    assert results[0].dataset_name == shown


@pytest.mark.parametrize("rewritten", [False, True])
def test_recording_again_replaces_results_and_keeps_those_of_the_user(rewritten, tmp_path):
    """Also let the hub's library rewrite the card, which drops the comments that mark the
    results.
    """
    card = tmp_path / "README.md"
    own = """---
license: mit
model-index:
  # from our paper
  - name: mine
    results:
    - task: {type: translation}
      dataset: {type: flores, name: FLORES}
      metrics:
      - {type: chrf, value: 55.5}
language: de
---
# Mine
"""
    card.write_text(own)
    add_scores(tmp_path, [own_score("a", 1)])
    if rewritten:
        ModelCard.load(card).save(card)
    add_scores(tmp_path, [{**own_score("a", 1), "value": 0.7}, own_score("b", 1)])
    _, results = results_of(tmp_path)
    values = {(result.metric_type, result.metric_value) for result in results}
    assert values == {("chrf", 55.5), ("accuracy", 0.7), ("accuracy", 0.5)}
    assert len(results) == 3
    data = ModelCard.load(card).data
    assert (data.license, data.language) == ("mit", "de")
    if not rewritten:
        text = card.read_text()
        block = re.compile(r"^ *# calque: results.*# end of calque: results\n", re.DOTALL | re.M)
        assert block.sub("", text).startswith(own)


def test_results_of_a_new_alignment_are_not_those_of_the_former_encoder(
    tiny_folder, train, tmp_path
):
    aligned(train, tiny_folder, tmp_path / "out", "rotation")
    add_scores(tmp_path / "out", [own_score("a", 1)])
    name, results = results_of(tmp_path / "out")
    assert (name, len(results)) == (f"{tiny_folder.name} (rotation)", 1)
    how = AlignSettings(
        train=[str(train)],
        langs=["en", "de"],
        encoder=str(tiny_folder),
        method="means",
        towards="en",
        out=tmp_path / "out",
        overwrite=True,
    )
    align(how, load={}, options={})
    assert "model-index" not in (tmp_path / "out" / "README.md").read_text()


def test_the_text_that_a_user_added_to_a_card_survives_a_new_alignment(
    tiny_folder, train, tmp_path
):
    aligned(train, tiny_folder, tmp_path / "out", "rotation")
    card = tmp_path / "out" / "README.md"
    card.write_text(card.read_text() + "\n## Licence\n\nMIT.\n")
    how = AlignSettings(
        train=[str(train)],
        langs=["en", "de"],
        encoder=str(tiny_folder),
        method="means",
        towards="en",
        out=tmp_path / "out",
        overwrite=True,
    )
    align(how, load={}, options={})
    text = card.read_text()
    assert "aligned by means" in text
    assert "aligned by rotation" not in text
    assert text.endswith("\n## Licence\n\nMIT.\n")


def test_saving_an_aligned_encoder_keeps_the_card_that_a_user_wrote_in_the_folder(
    tiny_folder, train, tmp_path
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    corpus = read_parallel(train, langs=("en", "de"))
    method = make_method("rotation", "en", {})
    pairs = WordPairs.of([[(0, 0), (1, 1)]] * len(corpus))
    method.align(load_encoder(tiny_folder), corpus, pairs).save(tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "# Mine\n" in text
    assert "license: mit\n" in text.partition("# Mine")[0]
    assert "aligned by rotation" in text
