"""Test that zero-shot transfer succeeds if and only if both languages have the same vectors."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from calque.algebra.trees import maximum_spanning_trees
from calque.annotated import Labels, TaggedText, Treebank
from calque.errors import InputError, SettingError
from calque.runs.card import add_scores
from calque.runs.score_table import table
from calque.tasks.bootstrap import measure, measure_all
from calque.tasks.classification import Classification
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.parsing import Parsing, ParsingHead
from calque.tasks.tagging import Tagging, renamed
from calque.text import Sentences
from calque.training.sources import WordRows
from calque.training.supervised import tuned_rate
from command import works
from planted import QUICK, Planted, jobs, labelled, tagged


@pytest.mark.parametrize(
    "name", ["ner", "slots", "pos", "sentiment", "nli", "parsing", "probing", "qa"]
)
def test_transfer_succeeds_between_languages_with_the_same_vectors(name):
    score = jobs()[name].evaluate(Planted())[0]
    assert score.languages == ("en", "de")
    assert score.value > (0.75 if name == "nli" else 0.85), score
    assert score.low <= score.value <= score.high


def test_every_span_type_has_its_own_score():
    job = jobs()["ner"]
    whole, locations, people = [s for s in job.evaluate(Planted()) if s.languages[-1] == "de"]
    assert [s.metric for s in (whole, locations, people)] == ["f1", "f1.LOC", "f1.PER"]
    assert min(locations.value, people.value) <= whole.value <= max(locations.value, people.value)


def test_transfer_fails_with_unrelated_vectors_and_the_gap_is_recorded():
    german, english = (s for s in jobs()["ner"].evaluate(Planted(apart=True)) if s.metric == "f1")
    assert english.value > 0.9 > 0.5 > german.value
    assert german.settings["gap"] == pytest.approx(english.value - german.value, abs=1e-4)
    assert "gap" not in english.settings


def test_frozen_vectors_are_computed_once_for_all_seeds():
    encoder = Planted()
    last = [
        Tagging("ner", [tagged(5, "en")], [tagged(5, "de")], tune=tune).seeds[-1]
        for tune in (False, True)
    ]
    assert last == [4, 2]
    dev, settings = tagged(10, "en", 2), {"seeds": (0, 1, 2), "options": {"epochs": 1}, "hidden": 8}
    job = Tagging("ner", [tagged(30, "en")], [dev, tagged(5, "de")], dev=[dev], **settings)
    score = job.evaluate(encoder)[0]
    assert (
        encoder.passes == 3
    )  # one training text and two test texts, one of which is also a development text
    assert len(score.settings["values"]) == 3
    assert score.value == pytest.approx(np.mean(score.settings["values"]), abs=1e-4)
    assert score.settings["sd"] == pytest.approx(np.std(score.settings["values"], ddof=1), abs=1e-4)


def test_the_epoch_is_chosen_on_source_text_unless_target_text_is_requested():
    data = {"train": [tagged(40, "en")], "tests": [tagged(20, "de", 1)]}
    dev = [tagged(20, "en", 2, name="dev.en"), tagged(20, "de", 2, name="dev.de")]
    settings = {"seeds": (0,), "options": {"epochs": 2}, "hidden": 8, "bootstrap": 0}
    by_source = Tagging("ner", **data, dev=dev, **settings)
    by_target = Tagging("ner", **data, dev=dev, select="target", **settings)
    assert [each.name for each in by_source.dev] == ["dev.en"]
    assert [each.name for each in by_target.dev] == [
        "dev.en",
        "dev.de",
    ]  # all languages, as in Cao et al. (2020), §3.5
    about = by_target.evaluate(Planted())[0].settings
    assert (about["select"], about["dev"]) == ("target", ["dev.en", "dev.de"])
    alone = Tagging("ner", **data, dev=dev[1:], select="target", **settings)
    assert [each.name for each in alone.dev] == ["dev.de"]
    with pytest.raises(SettingError, match="target requires development text"):
        Tagging("ner", **data, dev=dev[:1], select="target", **settings)
    last = Tagging("ner", **data, select="last", **settings).evaluate(Planted())[0]
    assert last.settings["chosen_epochs"] == [0]


def test_scores_of_heads_that_have_not_converged_say_so_in_the_record_and_in_the_table(tmp_path):
    settings = {"seeds": (0, 1), "hidden": 8, "bootstrap": 2}
    data = [tagged(40, "en")], [tagged(20, "de", 1), tagged(20, "en", 1)]
    scores = Tagging("ner", *data, options={"epochs": 1}, **settings).evaluate(Planted())
    about = scores[0].settings
    assert (about["chosen_epochs"], about["trained_epochs"], about["converged"]) == (
        [1, 1],
        [1, 1],
        [False, False],
    )
    assert all(
        "not converged: the best epoch was the last" in score.settings["warnings"]
        for score in scores
    )
    shown = table(scores)
    assert (
        "Not converged: the best epoch was the last for 2 of 2 heads; set --epochs above 1. "
        "Reports do not" in shown
    )
    add_scores(tmp_path, [score.to_dict() for score in scores])
    assert "(not converged) |" in (tmp_path / "README.md").read_text()
    scores = Tagging("ner", *data, options={**QUICK, "epochs": 60}, **settings).evaluate(Planted())
    assert "warnings" not in scores[0].settings
    assert max(scores[0].settings["trained_epochs"]) < 60
    assert "onverged" not in table(scores)


def test_scores_of_heads_that_predict_no_span_say_so():
    """All scores on development text are 0, so the first epoch is the best one, and the head seems
    to have converged.
    """

    class Silent(Tagging):
        def counts(self, head, given, answers):
            return {
                metric: sums * [0, 0, 1]
                for metric, sums in super().counts(head, given, answers).items()
            }

    job = Silent(
        "ner",
        [tagged(40, "en")],
        [tagged(20, "de", 1)],
        options={"epochs": 3},
        seeds=(0,),
        hidden=8,
        bootstrap=2,
    )
    (score, *_) = scores = job.evaluate(Planted())
    assert (score.value, score.settings["chosen_epochs"], score.settings["converged"]) == (
        0.0,
        [1],
        [True],
    )
    assert score.settings["warnings"] == ["nothing learned: f1 is 0.0 on every test set"]
    assert "Nothing learned: f1 is 0.0 on every test set; increase --epochs" in table(scores)


def test_the_chosen_epoch_has_the_best_mean_over_languages():
    """Plan scores whose best epoch on average is not the best epoch of either language."""
    dev = [tagged(20, "en", 2, name="dev.en"), tagged(20, "de", 2, name="dev.de")]
    planned = {"dev.en": [0.9, 0.7, 0.1], "dev.de": [0.1, 0.7, 0.9]}

    class WithPlan(Tagging):
        def answers(self, each):
            answers = super().answers(each)
            answers.plan = iter(planned.get(each.name, ()))
            return answers

        def counts(self, head, given, answers):
            found = super().counts(head, given, answers)
            value = next(
                getattr(answers, "plan", iter(())), None
            )  # each development text is a single batch
            if value is None:
                return found
            return {
                metric: np.tile([value, 1.0, 1.0], (len(sums), 1)) for metric, sums in found.items()
            }

    settings = {"seeds": (0,), "options": {"epochs": 3, "patience": 9}, "hidden": 8, "bootstrap": 0}
    for given, chosen, best in ((dev, 2, 0.7), (dev[1:], 3, 0.9)):
        job = WithPlan(
            "ner", [tagged(40, "en")], [tagged(20, "de", 1)], dev=given, select="target", **settings
        )
        score = job.evaluate(Planted())[0]
        assert score.settings["chosen_epochs"] == [chosen]
        assert score.settings["dev_scores"] == [pytest.approx(best)]


def test_a_tenth_of_each_training_text_is_held_out_and_training_texts_are_concatenated():
    seen = []

    class Watched(Tagging):
        def losses(self, head, given, answers):
            seen.extend(given.numbers.tolist())
            return super().losses(head, given, answers)

    train = [tagged(15, "en"), tagged(15, "fr")]
    job = Watched("ner", train, [tagged(5, "de")], seeds=(0,), options={"epochs": 1}, hidden=8)
    assert job.evaluate(Planted())[0].languages == ("en", "fr", "de")
    assert sorted(seen) == [k for k in range(30) if k not in (9, 24)]
    both = Answers.joined([job.answers(each) for each in train])
    alone = job.answers(train[1])
    assert (
        both.of_words("tags", np.array([15])).tolist()
        == alone.of_words("tags", np.array([0])).tolist()
    )


@pytest.mark.parametrize("head", ["linear", "linear-crf"])
def test_fine_tuning_trains_a_copy_of_the_encoder(head, tiny_encoder):
    before = {name: value.clone() for name, value in tiny_encoder.model.state_dict().items()}
    kinds = {"the": "B-DET", "a": "B-DET", "in": "B-PREP", "de": "O", "e": "O"}
    rng = np.random.default_rng(0)

    def text(n):
        drawn = [
            [list(kinds)[k] for k in rng.integers(0, len(kinds), rng.integers(1, 6))]
            for _ in range(n)
        ]
        tags = Labels.of([kinds[word] for words in drawn for word in words])
        return Dataset("en", "en", TaggedText(Sentences.of(drawn, "en"), tags))

    options = {"epochs": 8, "learning_rate": 3e-3, "batch": 16}
    job = Tagging(
        "ner",
        [text(120)],
        [text(30)],
        head=head,
        tune=True,
        seeds=(0, 1),
        options=options,
        bootstrap=0,
    )
    score = job.evaluate(tiny_encoder)[0]
    assert min(score.settings["values"]) > 0.8
    assert score.settings["features"] == "tuned"
    after = tiny_encoder.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("head", ["linear", "linear-crf"])
def test_a_linear_head_learns_from_vectors_that_differ_little_from_their_mean(head):
    """In published encoders, cosines between any two words can be above 0.9."""

    class Narrow(Planted):
        def vector(self, word):
            return 1.0 + 0.01 * super().vector(word)

    rng = np.random.default_rng(0)

    def text(n):
        drawn = [[f"e{k}" for k in rng.integers(0, 12, rng.integers(1, 6))] for _ in range(n)]
        tags = Labels.of([f"T{int(word[1:]) % 3}" for words in drawn for word in words])
        return Dataset("en", "en", TaggedText(Sentences.of(drawn, "en"), tags))

    job = Tagging("pos", [text(800)], [text(40)], head=head, seeds=(0, 1), bootstrap=0)
    score = job.evaluate(Narrow())[0]
    assert min(score.settings["values"]) > 0.95
    assert score.settings["normalise"] is True


@pytest.mark.parametrize("name", ["ner", "sentiment", "parsing"])
def test_the_default_learning_rate_of_fine_tuning_depends_on_the_encoder_width(name):
    """Check that it is 5e-5 at 768 dimensions, as usual for BERT-base, and higher for narrower
    encoders.
    """
    assert tuned_rate(768) == pytest.approx(5e-5)
    assert tuned_rate(128) == pytest.approx(5e-4, rel=0.01)
    base = SimpleNamespace(dim=768)
    job = jobs(20, tune=True, options={})[name]
    assert job.training(base) == job.defaults() | {"learning_rate": pytest.approx(5e-5)}
    assert (
        jobs(20, tune=True, options={"learning_rate": 1e-2})[name].training(base)["learning_rate"]
        == 1e-2
    )
    assert jobs(20, options={})[name].training(base)["learning_rate"] == 1e-3


def test_labels_that_occur_only_in_a_test_text_are_rejected_or_count_as_missed():
    train, test = (
        tagged(30, "en"),
        tagged(12, "de", 1, tag=lambda k: "B-PER" if k < 4 else "B-MISC" if k == 7 else "O"),
    )
    first, encoder = (
        next(k for k, s in enumerate(test.data.sentences) if "d7" in s.words),
        Planted(),
    )
    with pytest.raises(
        InputError,
        match=r"de.tsv line \d+: label 'B-MISC' is not in the training text, which has labels "
        r"LOC, PER;.*--rename MISC=",
    ) as caught:
        Tagging("ner", [train], [test], seeds=(0,), options={"epochs": 1}).evaluate(encoder)
    assert (caught.value.line, encoder.passes) == (
        test.data.lines[first],
        0,
    )  # the error precedes encoding
    with pytest.raises(InputError, match="has only the tag O; expected spans, e.g. B-PER"):
        Tagging("ner", [tagged(30, "en", tag=lambda k: "O")], [tagged(5, "de")], seeds=(0,))
    few = {"seeds": (0,), "options": QUICK, "hidden": 16, "bootstrap": 0}
    dropped = replace(test, data=renamed(test.data, {"MISC": ""}))
    missed, known = (
        Tagging("ner", [tagged(120, "en")], [each], unknown="miss", **few).evaluate(Planted())[0]
        for each in (test, dropped)
    )
    assert missed.value < known.value
    assert missed.n == known.n == 12


def test_tags_that_are_not_span_tags_are_rejected_in_every_file():
    train, other = tagged(30, "en"), tagged(9, "de", 1, tag=lambda k: "B-PER" if k < 4 else "B_LOC")
    for given in (([other], [train], []), ([train], [other], []), ([train], [train], [other])):
        with pytest.raises(
            InputError,
            match=r"de\.tsv line \d+: the tag 'B_LOC' is not a span tag, expected tags such as",
        ):
            Tagging("ner", *given[:2], dev=given[2], seeds=(0,), unknown="miss", select="last")
    renamed_back = replace(other, data=renamed(other.data, {"B_LOC": "B-LOC"}))
    assert Tagging("ner", [renamed_back], [train], seeds=(0,)).span_types == ("LOC", "PER")


def test_the_number_of_repaired_tags_is_recorded_and_shown_even_with_q(
    tmp_path, capsys, monkeypatch
):
    (tmp_path / "ner.train.en.tsv").write_text("Ann\tB-PER\nin\tO\nRome\tB-LOC\n\n" * 12)
    (tmp_path / "ner.test.de.tsv").write_text(
        "Ann\tI-PER\nin\tO\nRom\tI-LOC\n\n" + "Ann\tB-PER\n\n" * 5
    )
    monkeypatch.chdir(tmp_path)
    few = ("--seeds", "1", "--epochs", "1", "--head", "linear")
    arguments = ("ner", "--train", "ner.train.en.tsv", "--test", "ner.test.de.tsv", *few)
    printed, errors = works(capsys, "evaluate", "mini", *arguments, "--json", "-q")
    assert "ner.test.de.tsv: 2 tags repaired" in errors
    assert json.loads(printed)["settings"]["repaired_tags"] == {"train": 0, "dev": 0, "test": 2}


def test_tags_and_intents_can_be_renamed():
    data = tagged(10, "en", intents=True).data
    found = renamed(data, {"PER": "PERSON", "LOC": "", "odd": "strange"})
    assert set(found.tags.names) == {"B-PERSON", "O"}
    assert set(found.intents.names) == {"even", "strange"}
    assert [a == "B-PER" for a in data.tags.to_list()] == [
        b == "B-PERSON" for b in found.tags.to_list()
    ]


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: Tagging("ner", [], [tagged(2, "de")]), "at least one training text"),
        (lambda: Tagging("chunks", [tagged(2, "en")], [tagged(2, "de")]), "kind of tagging"),
        (
            lambda: Tagging("ner", [tagged(2, "en")], [tagged(2, "de")], head="x"),
            "head must be one of .* got 'x'",
        ),
        (
            lambda: Classification("nli", [labelled(9, "en")], [labelled(9, "de")]),
            "nli needs 2 texts a line, got 1",
        ),
        (lambda: jobs(tune=True)["parsing"].evaluate(Planted()), "cannot be fine-tuned"),
        (
            lambda: Tagging("pos", [tagged(5, "en")], [tagged(0, "de")]),
            r"de\.tsv contains no texts",
        ),
        (
            lambda: Tagging("ner", [tagged(30, "en")], [tagged(5, "en")], dev=[tagged(5, "de")]),
            "requires development text in en, got text only in de",
        ),
    ],
)
def test_invalid_settings_are_rejected(make, fact):
    with pytest.raises(SettingError, match=fact):
        make()


def test_attachment_scores_equal_those_of_the_conll_script():
    """Count words like eval.pl of CoNLL-X: skip punctuation, and count labels only if the head is
    correct.
    """
    rng = np.random.default_rng(0)
    text = [["Ann", ",", "Bob", "ran", "..."], ["—", "go"], ["so", "!", "$"]]
    n = sum(map(len, text))

    def tree(length):  # each head precedes its word in a random order
        order, heads = rng.permutation(length), np.zeros(length, dtype=np.int64)
        for k in range(1, length):
            heads[order[k]] = order[rng.integers(k)] + 1
        return heads

    gold, found = (np.concatenate([tree(len(words)) for words in text]) for _ in range(2))
    names = ("a", "b", "c")
    right, guess = rng.integers(3, size=n), rng.integers(3, size=n)
    bank = Treebank(
        Sentences.of(text, "en"),
        Labels.of(["X"] * n),
        gold.astype(np.int32),
        Labels(right.astype(np.int32), names),
    )
    job = Parsing(
        [Dataset("t", "en", bank)],
        [Dataset("t", "en", bank)],
        hidden=4,
        layers=1,
        arc=4,
        label=4,
        upos=2,
        seeds=(0,),
    )

    class Fixed(ParsingHead):
        def arcs(self, states, lengths):
            table = torch.full((len(lengths), int(lengths.max()), int(lengths.max()) + 1), -1.0)
            place = 0
            for s, length in enumerate(lengths.tolist()):
                table[s, torch.arange(length), torch.from_numpy(found[place : place + length])] = (
                    5.0
                )
                place += length
            return table

        def labels(self, states, heads, lengths):
            read_off.append(heads.tolist())
            return torch.eye(3)[guess]

    read_off: list[list[int]] = []
    head = Fixed(2, 3, 1, hidden=4, layers=1, arc=4, label=4, upos=2, dropout=0.0)
    lengths = torch.tensor([len(words) for words in text])
    sums = job.counts(
        head, WordRows(torch.zeros(n, 2), lengths, np.arange(3)), job.answers(job.train[0])
    )
    assert read_off == [
        found.tolist()
    ]  # the relation of a word is that to its predicted head, not to its gold head
    counted = attached = labelled_too = 0
    for k, word in enumerate(word for words in text for word in words):
        if word in (",", "...", "—", "!"):
            continue
        counted += 1
        attached += found[k] == gold[k]
        labelled_too += found[k] == gold[k] and guess[k] == right[k]
    total = sums["las"].sum(axis=0)
    assert total.tolist() == [attached, labelled_too, counted]
    assert job.statistics["uas"](total) == attached / counted
    assert job.statistics["las"](total) == labelled_too / counted


def test_a_relation_counts_only_at_the_predicted_head():
    """Compare LAS with a loop over the words, for a parser whose relations depend on the heads."""
    rng, n = np.random.default_rng(0), 60
    text = [["ran"] * 4] * (n // 4)
    gold = np.tile([0, 1, 2, 3], n // 4)  # each word depends on the word before it
    right = rng.integers(3, size=n)
    bank = Treebank(
        Sentences.of(text, "en"),
        Labels.of(["X"] * n),
        gold.astype(np.int32),
        Labels(right.astype(np.int32), ("a", "b", "c")),
    )
    job = Parsing(
        [Dataset("t", "en", bank)],
        [Dataset("t", "en", bank)],
        hidden=8,
        layers=1,
        arc=6,
        label=6,
        upos=2,
        seeds=(0,),
    )
    torch.manual_seed(0)
    head = ParsingHead(5, 3, 1, hidden=8, layers=1, arc=6, label=6, upos=2, dropout=0.0).eval()
    with torch.no_grad():
        for weight in head.parameters():
            weight.copy_(torch.randn_like(weight))
        given = WordRows(torch.randn(n, 5), torch.full((n // 4,), 4), np.arange(n // 4))
        total = job.counts(head, given, job.answers(job.train[0]))["las"].sum(axis=0)
        states = head(given.rows, given.lengths, torch.zeros(n, dtype=torch.int64))
        heads = torch.from_numpy(
            maximum_spanning_trees(
                head.arcs(states, given.lengths).double().numpy(), given.lengths.numpy()
            )
        )
        relations = head.labels(states, heads.long(), given.lengths).argmax(1).numpy()
        at_gold = head.labels(states, torch.from_numpy(gold), given.lengths).argmax(1).numpy()
    both = (heads.numpy() == gold) & (relations == right)
    assert total.tolist() == [(heads.numpy() == gold).sum(), both.sum(), n]
    assert 0 < both.sum() < (relations == right).sum()
    assert (
        both.sum() < (at_gold == right).sum()
    )  # relations at the gold heads alone would give a higher score


def test_statistics_measured_together_equal_those_measured_separately():
    rng = np.random.default_rng(0)
    right = rng.random((50, 2))
    figures = [(right, lambda s: s[..., 0]), (right[:, 1:], lambda s: s[..., 0] ** 2)]
    assert measure_all(figures, samples=30) == [measure(*each, samples=30) for each in figures]
    assert measure_all([], samples=30) == []
    undefined = measure(right, lambda s: s[..., 0] * np.nan, samples=5)
    assert np.isnan([*undefined.ends, *undefined.resamples]).all()
