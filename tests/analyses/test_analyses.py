"""Compare every analysis score with a naive implementation of its definition."""

import json
import math

import numpy as np
import pytest
from scipy.stats import skew

from calque.analyses.groups import (
    CLASSES,
    accuracies,
    binned,
    by_length,
    by_pos,
    by_rank,
    compare_layers,
)
from calque.analyses.questions import Questions, tags_for
from calque.analyses.space import (
    anisotropy,
    eigenvalue_similarity,
    hubness,
    language,
    laplacian_eigenvalues,
    logistic_regression,
    occurrences,
    powers,
    relational_similarity,
    skewness,
)
from calque.analyses.words import examples, points, principal_axes, project, senses, translations_of
from calque.annotated import Labels, TaggedText
from calque.encoders.base import Encoder
from calque.encoders.mapped import MappedEncoder
from calque.errors import MissingExtraError, SettingError
from calque.maps import Rotation
from calque.pairs import WordPairs
from calque.tasks.bootstrap import intervals, measure, ratio
from calque.tasks.retrieval import WordRetrieval
from calque.text import ParallelCorpus, Sentences
from calque.vectors import Embeddings


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def toy(
    seed=0,
    n_sentences=40,
    dim=6,
    noise=0.6,
    shift=0.0,
    bootstrap=50,
    train=True,
    vocabulary=15,
    **options,
):
    """Return sentences of random words in which word i is linked to word i, and vectors that partly
    match.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 9, n_sentences)
    x = rng.standard_normal((lengths.sum(), dim))
    y = x + noise * rng.standard_normal(x.shape) + shift
    words = [
        [
            f"w{'x' * int(rng.integers(4))}{'abcdefghijklmnopq'[k]}"
            for k in rng.integers(0, vocabulary, n)
        ]
        for n in lengths
    ]
    others = [[f"v{word[1:]}{'aou'[rng.integers(3)]}" for word in sentence] for sentence in words]
    corpus = ParallelCorpus.of(words, others, ("en", "de"))
    sentence = np.repeat(np.arange(n_sentences), lengths)
    word = np.concatenate([np.arange(n) for n in lengths])
    kept = rng.random(len(word)) < 0.8
    pairs = WordPairs(sentence[kept], word[kept], word[kept], n_sentences=n_sentences)
    more = {"train": corpus[:5], "train_pairs": pairs.slice(0, 5)} if train else {}
    task = WordRetrieval(corpus, pairs, bootstrap=bootstrap, data="toy", **more, **options)
    offsets = np.cumsum([0, *lengths])
    covered = rng.random(len(x)) > 0.05
    x[~covered] = 0
    source = Embeddings(x.astype(np.float32), offsets, covered)
    return Questions(task), source, Embeddings(y.astype(np.float32), offsets)


# -- intervals -------------------------------------------------------------------------------------
def test_intervals_computed_together_equal_those_computed_separately():
    rng = np.random.default_rng(0)
    sums = rng.integers(0, 5, (30, 4, 2)).astype(float)
    sums[:, 2] = 0  # the statistic is undefined
    sums[1:, 3] = 0  # the statistic is undefined in some samples

    def statistic(drawn):
        return ratio(drawn[..., 0], drawn[..., 1])

    values, low, high = intervals(sums, statistic, samples=200)
    for group in range(4):
        expected = measure(sums[:, group], statistic, samples=200).ends
        assert (values[group], low[group], high[group]) == pytest.approx(expected, nan_ok=True)
    values, low, high = intervals(sums, statistic, samples=0)
    assert low[0] == values[0] == high[0]


# -- words -----------------------------------------------------------------------------------------
def test_tags_are_copied_to_sentences_with_the_same_characters():
    tagged = TaggedText(
        Sentences.of([["Don", "'t", "go", "!"], ["a", "b"]], "en"),
        Labels.of(["AUX", "PART", "VERB", "PUNCT", "X", "Y"]),
    )
    wanted = Sentences.of([["a", "b"], ["unknown"], ["Do", "n't", "go!"], []], "en")
    found = tags_for(wanted, tagged)
    assert [tagged.tags.names[code] if code >= 0 else None for code in found] == [
        "X",
        "Y",
        None,
        "AUX",
        "AUX",
        "VERB",
    ]


# -- groups ----------------------------------------------------------------------------------------
def test_values_are_assigned_to_bins():
    nan = math.nan
    bins = binned(
        np.array([1, 2, 3, 9, 0]), np.array([4, 5, 11, 1, nan]), (1, 2, 4, 8), unit="letters"
    )
    assert bins.names == ["1", "2–3", "4–7", "8+"]
    assert bins.x == [1.0, 2.5, 5.5, 10.0]
    assert bins.source.tolist() == [0, 1, 1, 3, -1]
    assert bins.target.tolist() == [2, 2, 3, 0, -1]
    assert bins.settings == {"unit": "letters"}
    bins = binned(np.array([0.5]), np.array([0.5]), (0, 1, 100), whole=False)
    assert bins.names == ["0–1", "1–100", "100+"]
    assert bins.x == [0.5, 10.0, 100.0]


def literal_accuracy(questions, view, group_of, selection):
    """Return {group: [correct answers, queries]}, counted in a loop over the links."""
    found = {}
    for place, link in enumerate(view.answers.queries):
        if not selection[link]:
            continue
        for side, hits in (
            ("source", view.answers.source_hits),
            ("target", view.answers.target_hits),
        ):
            group = group_of(side, link)
            if group is not None:
                counts = found.setdefault(group, [0, 0])
                counts[0] += bool(hits[place])
                counts[1] += 1
    return found


def test_accuracy_by_group_equals_a_loop_over_the_links():
    questions, source, target = toy()
    view = questions.ask("e", source, target)
    words = {
        "source": [w for s in questions.corpus.source for w in s.words],
        "target": [w for s in questions.corpus.target for w in s.words],
    }

    def length(side, link):
        n = len(words[side][questions.rows[side][link]])
        return next(name for name, top in (("1", 2), ("2–3", 4), ("4–5", 6), ("6–7", 8)) if n < top)

    found = accuracies("length", questions, view, by_length(questions))
    for name, selection in questions.selections.items():
        expected = literal_accuracy(questions, view, length, selection)
        mine = {f.group: f.score for f in found if f.score.metric == f"accuracy.{name}"}
        assert set(mine) == set(expected)
        for group, (right, asked) in expected.items():
            assert (mine[group].value, mine[group].n) == (pytest.approx(right / asked), asked)
            assert mine[group].low <= mine[group].value <= mine[group].high
    assert len(questions.selections) == 2


def test_rank_differences_match_their_definition():
    questions, *_ = toy(2, train=True)
    groups = by_rank(questions)

    def rank(side, word):
        texts = [getattr(questions.corpus, side), getattr(questions.task.train, side)]
        words = [w.lower() for text in texts for s in text for w in s.words]
        counts = {w: words.count(w) for w in set(words)}
        return np.mean(
            [
                i + 1
                for i, c in enumerate(sorted(counts.values(), reverse=True))
                if c == counts[word]
            ]
        )

    for link in range(0, len(questions.pairs), 17):
        s, i, j = (
            int(a[link])
            for a in (questions.pairs.sentence, questions.pairs.source, questions.pairs.target)
        )
        apart = abs(
            rank("source", questions.corpus.source[s].words[i])
            - rank("target", questions.corpus.target[s].words[j])
        )
        low, _, high = groups.names[groups.source[link]].partition("–")
        assert float(low) <= apart < float(high)


def test_accuracy_by_tag_equals_a_loop_and_word_classes_are_means_over_tags():
    questions, source, target = toy(3)
    view = questions.ask("e", source, target)
    names = ["NOUN", "VERB", "CCONJ", "SCONJ", "X", "PUNCT"]
    codes = np.random.default_rng(0).integers(-1, 6, questions.offsets["source"][-1])
    assert by_pos(questions) is None  # the text has no tags
    questions.tags = {"source": (codes, names)}
    groups = by_pos(questions)

    def group_of(side, link):
        code = codes[questions.rows["source"][link]]
        tag = names[code] if code >= 0 else "X"
        return None if tag == "X" else "CONJ" if tag.endswith("CONJ") else tag

    expected = literal_accuracy(questions, view, group_of, questions.selections["all"])
    found = {
        f.group: f.score
        for f in accuracies("pos", questions, view, groups)
        if f.score.metric == "accuracy.all"
    }
    for tag, (right, asked) in expected.items():
        assert (found[tag].value, found[tag].n) == (pytest.approx(right / asked), asked // 2)
    mean = np.mean([found["NOUN"].value, found["VERB"].value])
    assert found["open-class"].value == pytest.approx(mean)  # the mean is over tags, not over words
    assert found["open-class"].low < mean < found["open-class"].high
    assert found["open-class"].settings["mean_of"] == ["NOUN", "VERB"]
    assert found["NOUN"].settings["class"] == "open-class"
    assert found["closed-class"].value == pytest.approx(found["CONJ"].value)
    assert list(found) == ["PUNCT", "CONJ", "NOUN", "VERB", *CLASSES]
    # With tags for both sides, each query has the tag of its own word.
    nouns = np.zeros(questions.offsets["target"][-1], dtype=np.int64)
    questions.tags = {"source": (codes, names), "target": (nouns, ["VERB"])}
    both = by_pos(questions)
    assert {both.names[k] for k in both.target} == {"VERB"}
    assert not both.of_links


# -- isometry --------------------------------------------------------------------------------------
def test_laplacian_eigenvalues_equal_those_of_the_graph():
    x = unit(np.random.default_rng(0).standard_normal((12, 5)))
    n = len(x)
    edge = [[False] * n for _ in range(n)]
    for i in range(n):
        for j in sorted((j for j in range(n) if j != i), key=lambda j: -float(x[i] @ x[j]))[:3]:
            edge[i][j] = edge[j][i] = True
    laplacian = [[sum(edge[i]) if i == j else -int(edge[i][j]) for j in range(n)] for i in range(n)]
    expected = sorted(np.linalg.eigvals(np.array(laplacian, dtype=float)).real, reverse=True)
    assert laplacian_eigenvalues(x, neighbours=3) == pytest.approx(expected, abs=1e-9)
    assert laplacian_eigenvalues(x, neighbours=3).sum() == pytest.approx(
        2 * sum(map(sum, edge)) / 2
    )


def test_eigenvalue_similarity_equals_a_calculation_by_hand():
    # 90% of the sum is reached after two values of the first spectrum and three values of the
    # second, so k = 2.
    assert eigenvalue_similarity(
        np.array([6.0, 3.0, 1.0]), np.array([5.0, 2.5, 2.0, 0.5])
    ) == pytest.approx(1.0 + 0.25)
    assert eigenvalue_similarity(np.array([3.0, 1.0]), np.array([3.0, 1.0])) == 0


def test_isometric_spaces_have_zero_distance():
    rng = np.random.default_rng(3)
    x = unit(rng.standard_normal((60, 8)))
    rotated = unit(x @ np.linalg.qr(rng.standard_normal((8, 8)))[0])
    other = unit(rng.standard_normal((60, 8)) * np.array([9, 1, 1, 1, 1, 1, 1, 1]))
    spectra = [laplacian_eigenvalues(side, neighbours=10) for side in (x, rotated[::-1], other)]
    assert (
        eigenvalue_similarity(spectra[0], spectra[1])
        < 1e-6
        < eigenvalue_similarity(spectra[0], spectra[2])
    )
    assert relational_similarity(x, rotated) == pytest.approx(1, abs=1e-6)
    assert abs(relational_similarity(x, rotated[::-1])) < 0.3
    pairs = [(x[i] @ x[j], other[i] @ other[j]) for i in range(60) for j in range(i)]
    assert relational_similarity(x, other) == pytest.approx(
        np.corrcoef(np.array(pairs).T)[0, 1], abs=1e-6
    )


# -- hubness and anisotropy ------------------------------------------------------------------------
def test_skewness_equals_that_of_scipy():
    lists = np.array([[0, 1], [0, 2], [0, -1], [0, 1]])
    assert occurrences(lists, 5).tolist() == [4, 2, 1, 0, 0]
    assert np.isnan(skewness(powers(np.full(4, 3.0)).sum(axis=0)))
    values = np.random.default_rng(0).poisson(3, 1000)
    assert skewness(powers(values).sum(axis=0)) == pytest.approx(skew(values))


def test_hubness_equals_a_naive_count():
    questions, source, target = toy(5, bootstrap=20)
    found = {
        (f.score.metric, f.group): f.score
        for f in hubness(questions, questions.ask("e", source, target))
    }
    asked = questions.ask("e", source, target).answers.queries
    x, y = (
        np.array([v / max(np.linalg.norm(v), 1e-9) for v in side.data]) for side in (source, target)
    )
    counts = np.zeros(len(y), dtype=int)
    for link in asked:
        cosines = y @ x[questions.rows["source"][link]]
        counts[np.argsort(-cosines, kind="stable")[:10]] += 1
    score = found["skewness.cosine", "en-de"]
    assert score.value == pytest.approx(float(skewness(powers(counts).sum(axis=0))), abs=1e-6)
    assert score.settings["largest"] == counts.max()
    assert score.settings["mean"] == pytest.approx(10 * len(asked) / len(y))
    assert score.n == len(y)
    assert score.low <= score.value <= score.high
    assert set(found) == {
        (f"skewness.{s}", d) for s in ("csls", "cosine") for d in ("en-de", "de-en")
    }
    # A vector that is close to all others is a hub.
    target.data[0] = 100 * source.data.mean(axis=0)
    target.data[1:] -= 3 * source.data.mean(axis=0)
    assert (source.data @ target.data[0] > 0).mean() > 0.5
    hub = {
        (f.score.metric, f.group): f.score
        for f in hubness(questions, questions.ask("e", source, target))
    }
    assert hub["skewness.cosine", "en-de"].settings["largest"] > score.settings["largest"]


def test_anisotropy_equals_mean_cosines():
    questions, source, target = toy(6, shift=2.0)
    found = {
        (f.score.metric, f.group): f.score
        for f in anisotropy(questions, questions.ask("e", source, target))
    }
    x, y = (
        unit(side.data[side.covered] if side.covered is not None else side.data)
        for side in (source, target)
    )
    pairs = x @ y.T
    assert found["mean-cosine", "en-de"].value == pytest.approx(pairs.mean(), abs=1e-5)
    own = y @ y.T
    expected = own[~np.eye(len(y), dtype=bool)].mean()
    assert found["mean-cosine", "de"].value == pytest.approx(expected, abs=1e-5)
    assert found["mean-cosine", "de"].n == len(y)
    # Because of the shift, the vectors of one language form a cone.
    assert found["mean-cosine", "de"].value > 0.3 > found["mean-cosine", "en"].value
    assert found["mean-cosine", "en-de linked"].value > found["mean-cosine", "en-de"].value + 0.1


# -- language --------------------------------------------------------------------------------------
def test_the_probe_equals_logistic_regression_in_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 5))
    y = x @ [2.0, -1, 0, 0, 1] + rng.standard_normal(80) > 0.3
    w, b = logistic_regression(x, y)
    model = linear_model.LogisticRegression(tol=1e-10, max_iter=10_000).fit(x, y)
    assert w == pytest.approx(model.coef_[0], abs=1e-4)
    assert b == pytest.approx(model.intercept_[0], abs=1e-4)


def test_the_probe_detects_a_shift_between_languages():
    size = {"n_sentences": 150, "vocabulary": 17, "noise": 1.0}
    far, near = (toy(7, shift=shift, **size) for shift in (4.0, 0.0))
    seen = language(far[0], far[0].ask("e", *far[1:]))[0].score
    unseen = language(near[0], near[0].ask("e", *near[1:]))[0].score
    assert seen.value > 0.9 > unseen.value
    assert seen.settings["chance"] == 0.5
    assert abs(unseen.value - 0.5) < 4 * math.sqrt(0.25 / unseen.n)
    # Both languages have the same number of word types, and none is shared.
    assert seen.n % 2 == 0
    forms = [set(far[0].types[side][1]) for side in ("source", "target")]
    assert seen.n + seen.settings["train_words"] <= 2 * min(
        len(own - (forms[0] & forms[1])) for own in forms
    )


# -- layers ----------------------------------------------------------------------------------------
def test_a_layer_is_chosen_on_half_of_the_pairs_and_scored_on_the_other_half():
    """Layer 1 is better overall, but layer 0 is better on the pairs used for choosing a layer."""
    questions, source, target = toy(8, noise=0.02, n_sentences=60)
    task, rng, sides = questions.task, np.random.default_rng(0), {}
    odd = np.repeat(np.arange(60) % 2 == 1, np.diff(source.offsets))[:, None]
    for lang, side in (("en", source), ("de", target)):
        noise = rng.standard_normal(side.data.shape).astype(np.float32)
        layers = (side.data + 2 * odd * noise, side.data + 0.3 * ~odd * noise)
        sides[lang] = {
            k: Embeddings(data, side.offsets, side.covered) for k, data in enumerate(layers)
        }

    class Layered(Encoder):
        dim, name, n_layers, layer, fingerprint = 6, "layered", 1, 1, "0"

        def encode(self, sentences, **options):
            raise AssertionError("all layers must be computed in one pass")

        def encode_layers(self, sentences, layers, **options):
            return {layer: sides[sentences.lang][layer] for layer in layers}

    findings = compare_layers([task], Layered(), "all", {"more": 1})
    found = {(f.x, f.score.metric): f.score for f in findings}
    assert (
        len(found) == len(findings) == 2 * 4 + 2 + 4
    )  # full text and dev half of both layers, test half of one
    for k in range(2):
        for score in task.evaluate_embeddings(sides["en"][k], sides["de"][k]):
            if score.metric.count(".") == 1:
                assert found[k, score.metric].shown(9) == score.shown(9)
        pairs, unseen, answers = (
            task.links[0],
            task.unseen,
            task.retrieve(sides["en"][k], sides["de"][k]),
        )
        hits = (answers.source_hits.astype(float) + answers.target_hits) / 2
        for part, rest in ((".dev-half", 0), (".test-half", 1)):
            asked = unseen[answers.queries] & (pairs.sentence[answers.queries] % 2 == rest)
            if part == ".dev-half" or k == 0:
                score = found[k, f"accuracy.unseen{part}"]
                assert (score.value, score.n) == (pytest.approx(hits[asked].mean()), asked.sum())
    assert (findings[-4].score.metric, findings[-4].score.settings["layer"]) == (
        "accuracy.unseen.test-half",
        0,
    )
    assert found[0, "accuracy.unseen"].value < found[1, "accuracy.unseen"].value
    with pytest.raises(SettingError, match="toy: each half needs .*word links"):
        compare_layers([toy(8, n_sentences=1)[0].task], Layered(), [0, 1], {})
    Layered.n_layers = 0
    with pytest.raises(SettingError, match="--layers requires an encoder with several layers"):
        compare_layers([task], Layered(), "all", {})


def test_layers_of_a_language_variety_use_the_maps_of_its_language(tiny_encoder):
    words = [
        ["the", "cat", "sees", "a", "house"],
        ["of", "time", "and", "water"],
        ["in", "the", "house"],
    ] * 4
    corpus = ParallelCorpus.of(
        words, [[word.upper() for word in sentence] for sentence in words], ("en", "de")
    )
    rows = [(n, k) for n, sentence in enumerate(words) for k in range(len(sentence))]
    pairs = WordPairs(*np.array([(n, k, k) for n, k in rows]).T, n_sentences=len(words))
    mapped = MappedEncoder.fit(
        tiny_encoder, corpus, pairs, make=Rotation, towards="en", layers=(1, 2)
    )
    assert mapped.layers == (1, 2)
    own, variety = (
        mapped.encode_layers(Sentences.of(words, lang), [1, 2]) for lang in ("de", "de-AT")
    )
    raw = mapped.encode_layers(Sentences.of(words, "en"), [1, 2])
    for layer in (1, 2):
        np.testing.assert_array_equal(variety[layer].data, own[layer].data)
        assert np.abs(variety[layer].data - raw[layer].data).max() > 0.01
    np.testing.assert_allclose(
        variety[2].data, mapped.encode(Sentences.of(words, "de-AT")).data, atol=1e-5
    )


# -- examples and points ---------------------------------------------------------------------------
def test_inflected_forms_are_grouped_into_senses():
    assert senses(["gehen", "geht", "laufen", "gehst"]) == [["gehen", "geht", "gehst"], ["laufen"]]
    assert senses(["machte", "ließ", "gemacht"]) == [["machte", "gemacht"], ["ließ"]]
    assert senses(["gehen", "ging"]) == [["gehen"], ["ging"]]
    assert senses([]) == []


def ambiguous():
    """Return a text in which `bank` means Ufer or Geldhaus; before alignment only Ufer is
    retrieved, afterwards both.
    """
    source = [
        ["the", "bank", "river"],
        ["the", "bank", "money"],
        ["a", "bank", "water"],
        ["a", "bank", "loan"],
    ]
    target = [
        ["das", "Ufer", "Fluss"],
        ["das", "Geldhaus", "Geld"],
        ["ein", "Ufer", "Wasser"],
        ["ein", "Geldhaus", "Kredit"],
    ]
    corpus = ParallelCorpus.of(source, target, ("en", "de"))
    sentence, word = np.divmod(np.arange(12), 3)
    pairs = WordPairs(sentence, word, word, n_sentences=4)
    questions = Questions(WordRetrieval(corpus, pairs, bootstrap=0, data="toy", k=1))
    eye, offsets = np.eye(12, dtype=np.float32), np.arange(5) * 3
    confused = eye.copy()
    confused[4], confused[10] = (
        eye[1],
        eye[7],
    )  # gives `bank` the vectors of Ufer where it means Geldhaus
    right = questions.ask("after", Embeddings(eye, offsets), Embeddings(eye, offsets))
    wrong = questions.ask("before", Embeddings(confused, offsets), Embeddings(eye, offsets))
    return questions, wrong, right


def test_examples_show_word_types_with_several_senses():
    questions, wrong, right = ambiguous()
    (found,) = examples(questions, [wrong, right], min_count=2)
    assert found.encoder is None
    assert found.to_dict()["value"] is None
    assert {item["form"] for item in found.items} == {"bank"}
    assert [item["expected"]["word"] for item in found.items] == ["Geldhaus", "Ufer"]
    first = found.items[0]
    assert first["sentence"].split()[first["position"]] == "bank"
    assert first["lang"] == "en"
    assert first["got"]["before"]["right"] is False
    assert first["got"]["before"]["word"] == "Ufer"
    assert first["got"]["before"]["sentence"] == "das Ufer Fluss"
    assert first["got"]["after"] == {
        "word": "Geldhaus",
        "sentence": "das Geldhaus Geld",
        "right": True,
    }
    assert first["translation"] == first["expected"]["sentence"] == "das Geldhaus Geld"
    assert (first["entropy"], first["translations"]) == (1.0, {"geldhaus": 2, "ufer": 2})
    json.loads(found.to_json())
    assert (
        examples(questions, [wrong, right])[0].items == []
    )  # by default, a sense requires three links
    assert examples(questions, [right, right], min_count=2)[0].items == []
    with pytest.raises(SettingError, match="unaligned"):
        examples(questions, [right])
    # If there are parts of speech, only content words are used as examples.
    codes = np.zeros(12, dtype=np.int64)
    questions.tags = {"source": (codes, ["DET"])}
    assert examples(questions, [wrong, right], min_count=2)[0].items == []
    questions.tags = {"source": (codes, ["NOUN"])}
    assert len(examples(questions, [wrong, right], min_count=2)[0].items) == 2


def test_examples_are_sorted_by_the_entropy_of_their_translations():
    # maps word types to translations in the training text; each pair occurs once in the test text
    plan = {
        "bank": ["ufer"] * 4
        + ["geldhaus"] * 4,  # 5 and 5 occurrences including the test text: 1 bit
        "light": ["licht"] * 7 + ["leicht"] * 2,  # 8 and 3 occurrences
        "no": ["nein"] * 9 + ["kein"],  # 10 and 2: the second translation is too rare
        "goes": ["geht"] * 5 + ["gehen"] * 5,  # inflected forms count as one sense
        "right": ["recht"] * 2
        + ["rechts"] * 2
        + ["richtig"] * 5,  # recht and rechts count as one sense: 6 and 6
        "spring": ["quelle"] * 3 + ["sommer"] * 3 + ["feder"] * 3,  # 4, 4 and 4: log2(3) bits
    }
    rows = [(form, t) for form, several in plan.items() for t in several]
    tests = [(form, t) for form, several in plan.items() for t in dict.fromkeys(several)]

    def text(rows):
        corpus = ParallelCorpus.of(
            [[form] for form, _ in rows], [[t.capitalize()] for _, t in rows], ("en", "de")
        )
        return corpus, WordPairs.of([[(0, 0)]] * len(rows))

    (train, train_pairs), (test, pairs) = text(rows), text(tests)
    questions = Questions(
        WordRetrieval(
            test, pairs, train=train, train_pairs=train_pairs, bootstrap=0, data="toy", k=1
        )
    )
    counted = translations_of(questions, {"light", "spring"})
    assert counted == {
        "light": {"licht": 8, "leicht": 3},
        "spring": {"quelle": 4, "sommer": 4, "feder": 4},
    }
    eye, offsets = np.eye(len(tests), dtype=np.float32), np.arange(len(tests) + 1)
    right = questions.ask("after", Embeddings(eye, offsets), Embeddings(eye, offsets))
    wrong = questions.ask(
        "before", Embeddings(np.roll(eye, 1, axis=0), offsets), Embeddings(eye, offsets)
    )
    (found,) = examples(questions, [wrong, right])
    shown = {item["form"]: item["entropy"] for item in found.items}
    assert list(shown) == ["spring", "bank", "right", "light"]
    share = 3 / 11
    assert shown == {
        "spring": round(math.log2(3), 3),
        "bank": 1.0,
        "right": 1.0,
        "light": round(-share * math.log2(share) - (1 - share) * math.log2(1 - share), 3),
    }
    assert [item["expected"]["word"] for item in found.items if item["form"] == "light"] == [
        "Licht",
        "Leicht",
    ]
    assert [item["form"] for item in examples(questions, [wrong, right], forms=1)[0].items] == [
        "spring"
    ] * 3


def test_principal_axes_equal_eigenvectors_of_the_covariance():
    x = np.random.default_rng(0).standard_normal((30, 5)) * [5, 3, 1, 1, 1]
    found = principal_axes(x)
    centred = x - x.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    for k in range(2):
        axis = centred @ vectors[:, -1 - k]
        axis *= np.sign(axis[np.abs(axis).argmax()])
        assert found[:, k] == pytest.approx(axis)
    assert (
        principal_axes(-x)[:, 0] == pytest.approx(-found[:, 0])
        or found[np.abs(found[:, 0]).argmax(), 0] > 0
    )
    assert principal_axes(np.ones((3, 1))).tolist() == [[0, 0]] * 3


def test_tsne_requires_the_extra(monkeypatch):
    import calque.analyses.words as module

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    x = np.random.default_rng(0).standard_normal((10, 3))
    with pytest.raises(MissingExtraError, match=r"calque-align\[plots\]"):
        project(x, "tsne")
    assert project(x, "auto")[1] == "pca"
    with pytest.raises(SettingError, match="auto, pca, tsne"):
        project(x, "umap")


def test_points_show_the_same_pairs_for_every_encoder():
    questions, source, target = toy(9, train=False)
    views = [questions.ask("one", source, target), questions.ask("two", target, target)]
    questions.tags = {"source": (np.zeros(source.n_words, int), ["NOUN"])}
    first, second = points(questions, views, pairs=8, projection="pca")
    assert [f.encoder for f in (first, second)] == ["one", "two"]
    assert len(first.items) == 16
    keys = ("word", "sentence", "lang", "pair", "upos")
    assert [[i[k] for k in keys] for i in first.items] == [
        [i[k] for k in keys] for i in second.items
    ]
    by_pair = {}
    for item in first.items:
        by_pair.setdefault(item["pair"], {})[item["lang"]] = item
    for pair in by_pair.values():
        assert pair["en"]["word"] in pair["en"]["sentence"].split()
        assert pair["de"]["word"].startswith(
            "v" + pair["en"]["word"][1:]
        )  # the translation rule of `toy`
        assert (pair["en"]["upos"], pair["de"]["upos"]) == ("NOUN", None)
    assert first.to_dict()["value"] is None
    json.loads(first.to_json())
