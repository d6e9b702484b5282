"""Compare lexicon induction with a double loop over words."""

import numpy as np
import pytest

from calque.annotated import Dictionary
from calque.encoders.mapped import MappedEncoder
from calque.encoders.per_language import PerLanguage
from calque.encoders.static import StaticEncoder, WordTable
from calque.errors import SettingError
from calque.maps import Rotation
from calque.tasks.inputs import Inputs
from calque.tasks.lexicon import Lexicon, by_frequency
from calque.text import Sentences
from command import works
from planted import Planted


class Noisy(Planted):
    """Encoder that adds noise to the vectors of German words."""

    def vector(self, word):
        noise = np.random.default_rng(int(word[1:])).standard_normal(self.dim)
        return super().vector(word) + (1.2 * noise if word[0] == "d" else 0)


@pytest.mark.parametrize("similarity", ["csls", "cosine"])
def test_ranks_equal_those_of_a_double_loop(similarity):
    source = (*tuple(f"e{k}" for k in range(40)), "e3", "e5")
    target = (*tuple(f"d{k}" for k in range(40)), "d30", "d6")
    dictionary = Dictionary(source, target, ("en", "de"))
    texts = {
        lang: Sentences.of([[f"{lang[0]}{k}"] for k in range(n)], lang)
        for lang, n in (("en", 40), ("de", 60))
    }
    task = Lexicon(dictionary, texts=texts, similarity=similarity, k=5, bootstrap=0)
    scores = {score.metric: score for score in task.evaluate(Noisy(dim=8))}
    x, y = task.anchors(Noisy(dim=8))

    def unit(v):
        return v.astype(np.float64) / np.linalg.norm(v)

    cosine = np.array([[unit(a) @ unit(b) for b in y.vectors] for a in x.vectors])
    hubness = (
        np.sort(cosine, axis=0)[-5:].mean(axis=0) if similarity == "csls" else np.zeros(len(y))
    )
    ranks = []
    for i, word in enumerate(x.words):
        right = [
            j
            for j, other in enumerate(y.words)
            if (word, other) in set(zip(source, target, strict=True))
        ]
        value = 2 * cosine[i] - hubness
        best = max(value[j] for j in right)
        ranks.append(1 + sum(value[j] >= best for j in range(len(y)) if j not in right))
    ranks = np.array(ranks)
    assert scores["p@1"].value == pytest.approx((ranks <= 1).mean())
    assert scores["p@5"].value == pytest.approx((ranks <= 5).mean())
    assert scores["mrr"].value == pytest.approx((1 / ranks).mean())
    assert scores["p@1"].n == 40
    assert 0.2 < scores["p@1"].value < 1


def test_words_without_a_vector_are_skipped_and_counted():
    dictionary = Dictionary(("e1", "e2", "e99"), ("d1", "d2", "d1"), ("en", "de"))
    texts = {
        "en": Sentences.of([["e1", "e2", "e1"]], "en"),
        "de": Sentences.of([["d1", "d2", "d3"]], "de"),
    }
    score = Lexicon(dictionary, texts=texts).evaluate(Planted())[0]
    assert (score.value, score.n, score.settings["left_out"], score.settings["candidates"]) == (
        1.0,
        2,
        1,
        3,
    )
    with pytest.raises(
        SettingError,
        match="none of its 3 entries is in the texts in en and de, so there is nothing to",
    ):
        Lexicon(dictionary, texts={"en": texts["de"], "de": texts["en"]}).evaluate(Planted())
    with pytest.raises(SettingError, match="texts must be in en, de, got en"):
        Lexicon(dictionary, texts={"en": texts["en"]})
    with pytest.raises(SettingError, match="similarity must be csls or cosine"):
        Lexicon(dictionary, similarity="dot")


def test_entries_of_a_dictionary_are_selected_by_the_rank_of_their_source_word():
    dictionary = Dictionary(("a", "b", "a", "c"), ("1", "2", "3", "4"), ("en", "de"))
    assert by_frequency(dictionary, 0, 1).target == ("1", "3")
    assert by_frequency(dictionary, 1, None).source == ("b", "c")


@pytest.mark.parametrize("entries", [[], [0, 5, 9]])
def test_a_range_of_entries_has_one_or_two_ends(entries):
    inputs = Inputs("lexicon", ["dictionary.txt"], [("en", "de")])
    with pytest.raises(SettingError, match=r"entries must be \[first\] or \[first, end\], got"):
        Lexicon.from_files(inputs, entries=entries)


def unit(vector):
    return vector.astype(np.float64) / np.linalg.norm(vector)


def literal(entries, source, target, *, k=10, csls=True):
    """Return P@1 and MRR of a set of entries, by loops over words and their vectors."""
    value = {}
    for b, y in target.items():
        nearest = sorted((float(unit(x) @ unit(y)) for x in source.values()), reverse=True)[:k]
        for a, x in source.items():
            value[a, b] = 2 * float(unit(x) @ unit(y)) - (float(np.mean(nearest)) if csls else 0)
    ranks = []
    for a in sorted({a for a, b in entries if a in source and b in target}):
        right = {b for first, b in entries if first == a and b in target}
        best = max(value[a, b] for b in right)
        ranks.append(1 + sum(value[a, b] >= best for b in target if b not in right))
    return np.mean([rank == 1 for rank in ranks]), np.mean([1 / rank for rank in ranks])


def static(source, target, **options):
    tables = {
        lang: WordTable(list(words), np.array(list(words.values()), dtype=np.float32))
        for lang, words in (("en", source), ("de", target))
    }
    return StaticEncoder(tables, **{"normalise": False, **options})


def two_tables(n=60, dim=6, seed=0):
    """Return vectors of the words e0, e1, … and d0, d1, …, most frequent first; dK translates
    eK.
    """
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((n, dim))
    source = {f"e{k}": row for k, row in enumerate(meaning)}
    target = {f"d{k}": row + 0.6 * rng.standard_normal(dim) for k, row in enumerate(meaning)}
    return source, target


def scored(encoder, entries, **options):
    words, translations = zip(*entries, strict=True)
    task = Lexicon(Dictionary(words, translations, ("en", "de")), bootstrap=0, **options)
    return {score.metric: score for score in task.evaluate(encoder)}


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_repeated_entry_counts_once(times):
    """The wrong entry e1–d0 must not gain from its repetitions, and no rank may be below 1."""
    source, target = two_tables(12)
    entries = (
        [(f"e{k}", f"d{k}") for k in (0, 2, 3)] + [("e1", "d0")] * times + [("e2", "d5")] * times
    )
    scores = scored(static(source, target), entries)
    p1, mrr = literal(entries, source, target)
    assert scores["p@1"].value == pytest.approx(p1)
    assert scores["mrr"].value == pytest.approx(mrr)
    assert scores["mrr"].value <= 1
    assert scores["p@1"].n == 4
    assert scores["p@1"].settings["repeated"] == 2 * (times - 1)


@pytest.mark.parametrize("candidates", ["all", "dictionary"])
def test_entries_that_lower_makes_equal_count_once(candidates):
    source, target = two_tables(12)
    once = [("e0", "d0"), ("e1", "d5"), ("e3", "d3")]
    repeated = [("E0", "D0"), *once, ("E1", "d5"), ("e1", "D5")]
    options = {"lower": True, "candidates": candidates}
    first, second = (
        scored(static(source, target), entries, **options) for entries in (once, repeated)
    )
    assert {name: score.value for name, score in first.items()} == {
        name: score.value for name, score in second.items()
    }
    assert second["p@1"].settings["repeated"] == 3
    assert second["mrr"].value <= 1


def test_words_that_are_looked_up_in_lower_case_count_once():
    """Without `lower`, static vectors that lack a spelling are looked up in lower case, so both
    entries are one query.
    """
    source, target = two_tables(12)
    once, twice = [("e1", "d5"), ("e3", "d3")], [("E1", "D5"), ("e1", "d5"), ("e3", "d3")]
    encoder = static(source, target)
    first, second = (scored(encoder, entries) for entries in (once, twice))
    assert [second[name].value for name in first] == [first[name].value for name in first]
    assert second["p@1"].n == 2
    strict = scored(static(source, target, lower=False), twice)["p@1"]
    assert (strict.settings["left_out"], strict.settings["source_words_without_vector"]) == (1, 1)


def test_a_stored_word_beyond_the_most_frequent_ones_does_not_get_the_vector_of_its_lower_case_form():
    source, target = two_tables(12)
    encoder = static({**source, "E1": source["e7"]}, target)
    entries = [("E1", "d7"), ("e3", "d3")]
    rare, known = (scored(encoder, entries, max_candidates=most)["p@1"] for most in (12, 13))
    assert (rare.settings["left_out"], rare.settings["source_words_without_vector"], rare.n) == (
        1,
        1,
        1,
    )
    assert (known.settings["left_out"], known.n) == (0, 2)


@pytest.mark.parametrize("similarity", ["csls", "cosine"])
@pytest.mark.parametrize("most", [25, 60])
def test_the_candidates_are_the_most_frequent_static_vectors(similarity, most):
    source, target = two_tables(60)
    entries = [(f"e{k}", f"d{k}") for k in range(30)]
    score = scored(static(source, target), entries, similarity=similarity, max_candidates=most)
    first = {
        name: dict(list(words.items())[:most]) for name, words in (("en", source), ("de", target))
    }
    p1, mrr = literal(entries, first["en"], first["de"], csls=similarity == "csls")
    assert score["p@1"].value == pytest.approx(p1)
    assert score["mrr"].value == pytest.approx(mrr)
    about = score["p@1"].settings
    assert (about["candidates"], about["source_words"], about["candidates_from"]) == (
        most,
        most,
        "vectors",
    )
    assert about["left_out"] == max(0, 30 - most)


def test_the_candidates_can_be_the_words_of_the_dictionary():
    source, target = two_tables(60)
    entries = [(f"e{k}", f"d{k}") for k in range(25)]
    easy = scored(static(source, target), entries, candidates="dictionary")["p@1"]
    assert (easy.settings["candidates"], easy.settings["candidates_from"]) == (25, "dictionary")
    first = (dict(list(words.items())[:25]) for words in (source, target))
    assert easy.value == pytest.approx(literal(entries, *first)[0])
    assert easy.value > scored(static(source, target), entries)["p@1"].value


def test_neighbourhoods_are_searched_in_blocks_with_the_same_result(monkeypatch):
    source, target = two_tables(60)
    entries = [(f"e{k}", f"d{k}") for k in range(30)]
    whole = scored(static(source, target), entries)
    monkeypatch.setattr("calque.tasks.lexicon._BLOCK", 7)
    monkeypatch.setattr("calque.tasks.lexicon._CELLS", 300)
    parts = scored(static(source, target), entries)
    assert {name: score.value for name, score in parts.items()} == {
        name: score.value for name, score in whole.items()
    }


def test_lower_uses_the_most_frequent_spelling_of_a_static_vector():
    source = {"Dog": np.array([1.0, 0.0]), "dog": np.array([0.0, 1.0])}
    target = {
        "Hund": np.array([1.0, 0.1]),
        "katze": np.array([0.1, 1.0]),
        "hund": np.array([0.0, 1.0]),
    }
    score = scored(static(source, target), [("dog", "hund")], lower=True)["p@1"]
    assert (score.value, score.settings["candidates"], score.settings["source_words"]) == (
        1.0,
        2,
        1,
    )


def test_candidates_with_equal_vectors_count_as_wrong():
    source = {"a": np.array([1.0, 0.0, 0.3])}
    target = {
        "x": np.array([1.0, 0.2, 0.3]),
        "y": np.array([1.0, 0.2, 0.3]),
        "z": np.array([0.0, 1.0, 0.0]),
    }
    assert scored(static(source, target), [("a", "y")])["mrr"].value == 0.5


def test_encoders_built_on_static_vectors_have_the_same_candidates():
    source, target = two_tables(40)
    entries = [(f"e{k}", f"d{k}") for k in range(20)]
    whole = static(source, target)
    expected = {name: score.value for name, score in scored(whole, entries).items()}
    parts = {
        lang: StaticEncoder(
            {"": WordTable(list(words), np.array(list(words.values()), dtype=np.float32))},
            normalise=False,
        )
        for lang, words in (("en", source), ("de", target))
    }
    identity = Rotation.from_arrays({"matrix": np.eye(6)})
    for encoder in (PerLanguage(parts), MappedEncoder(whole, {"de": {0: identity}}, towards="en")):
        scores = scored(encoder, entries)
        assert {name: score.value for name, score in scores.items()} == pytest.approx(expected)
        assert scores["p@1"].settings["candidates"] == 40


def test_the_words_of_a_table_for_all_languages_are_not_candidates():
    """Such a table may contain the source words, which would be nearest to themselves."""
    source, target = two_tables(20)
    words = {**source, **target}
    encoder = StaticEncoder(
        {"": WordTable(list(words), np.array(list(words.values()), dtype=np.float32))}
    )
    score = scored(encoder, [(f"e{k}", f"d{k}") for k in range(5)])["p@1"]
    assert (score.settings["candidates"], score.settings["candidates_from"]) == (5, "dictionary")


def test_the_table_of_scores_gives_the_number_of_candidates_and_of_missing_words(capsys, tmp_path):
    for lang, words in zip(("en", "de"), two_tables(20), strict=True):
        rows = [f"{word} {' '.join(map(str, row))}\n" for word, row in words.items()]
        (tmp_path / f"{lang}.vec").write_text(f"20 6\n{''.join(rows)}", encoding="utf-8")
    (tmp_path / "en-de.txt").write_text(
        "e1 d1\ne2 d2\ne2 d2\ne99 d3\ne3 d98\ne4 d97\n", encoding="utf-8"
    )
    job = (
        "evaluate",
        f"en={tmp_path / 'en.vec'},de={tmp_path / 'de.vec'}",
        "lexicon",
        "--test",
        tmp_path / "en-de.txt",
        "--langs",
        "en",
        "de",
    )
    out, _ = works(capsys, *job, "--quiet")
    assert "Candidates: 20 most frequent words with a vector in de (en-de.txt)." in out
    assert "3 of 5 entries left out: no vector for 1 words in en and 2 in de." in out
    out, err = works(capsys, *job, "--candidates", "dictionary")
    assert "Candidates: 3 words of the dictionary in de (en-de.txt)." in out
    assert "1 repeated entries count once" in err
    out, _ = works(capsys, *job, "--max-candidates", 2, "--quiet")
    assert "Candidates: 2 most frequent words" in out


def test_candidates_of_a_text_cannot_be_replaced_by_those_of_the_dictionary():
    dictionary = Dictionary(("e1",), ("d1",), ("en", "de"))
    texts = {lang: Sentences.of([[f"{lang[0]}1"]], lang) for lang in ("en", "de")}
    with pytest.raises(SettingError, match="candidates=dictionary cannot be combined with texts"):
        Lexicon(dictionary, texts=texts, candidates="dictionary")
    with pytest.raises(SettingError, match="candidates must be one of all, dictionary"):
        Lexicon(dictionary, candidates="linked")
    with pytest.raises(SettingError, match="max_candidates must be"):
        Lexicon(dictionary, max_candidates=0)
