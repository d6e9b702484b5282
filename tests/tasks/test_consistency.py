"""Compare same-language consistency with a naive implementation, and compute it from files."""

import json

import numpy as np
import pytest

from calque.errors import SettingError
from calque.tasks.bootstrap import measure
from calque.tasks.consistency import Consistency
from calque.text import Sentences
from calque.vectors import Embeddings
from command import fails, works
from planted import Fixed


def toy(seed, n=25, dim=6, missing=0.1):
    """Return short sentences in mixed case, and vectors close to one centre for each word type."""
    rng = np.random.default_rng(seed)
    forms = ["house", "Time", "time", "HOUSE", "a", "1999", "...", "tree-top", "once", "cat"]
    centres = {form.lower(): rng.standard_normal(dim) for form in forms}
    sentences = [
        [forms[k] for k in rng.integers(0, len(forms), rng.integers(0, 6))] for _ in range(n)
    ]
    words = [word for sentence in sentences for word in sentence]
    data = np.array(
        [centres[word.lower()] + rng.standard_normal(dim) for word in words], dtype=np.float32
    )
    covered = rng.random(len(words)) > missing
    data[~covered] = 0
    data[1] = data[2]  # equal vectors: the first of them is the nearest neighbour of the others
    offsets = np.cumsum([0, *map(len, sentences)])
    return Sentences.of(sentences, "en"), Embeddings(data, offsets, covered)


def literal(text, vectors, letters):
    """Return the numbers of hits and queries in each sentence according to the definition."""
    words = [(s, word.lower()) for s, sentence in enumerate(text) for word in sentence.words]
    there = [k for k in range(len(words)) if vectors.covered is None or vectors.covered[k]]

    def cosine(j, k):
        x, y = (vectors.data[row].astype(float) for row in (j, k))
        return float(x @ y / (np.sqrt(x @ x) * np.sqrt(y @ y)))

    found = np.zeros((len(text), 2))
    for k in there:
        sentence, form = words[k]
        again = sum(words[other][1] == form for other in there) > 1
        if again and len(form) >= letters and any(character.isalpha() for character in form):
            nearest = max((j for j in there if j != k), key=lambda j: (round(cosine(j, k), 6), -j))
            found[sentence] += words[nearest][1] == form, 1
    return found


@pytest.mark.parametrize("letters", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_the_definition(seed, letters):
    text, vectors = toy(seed)
    (score,) = Consistency(text, letters=letters, bootstrap=50, data="toy").evaluate(Fixed(vectors))
    expected = literal(text, vectors, letters)
    right, asked = expected.sum(axis=0)
    assert 0 < right < asked
    assert (score.task, score.metric, score.languages, score.n) == (
        "consistency",
        "same-form",
        ("en",),
        asked,
    )
    assert score.value == pytest.approx(right / asked)
    assert (
        score.resamples == measure(expected, lambda s: s[..., 0] / s[..., 1], samples=50).resamples
    )
    assert score.low < score.value < score.high
    assert score.settings["words_without_vector"] == int((~vectors.covered).sum())


def test_numbers_short_words_and_words_that_occur_once_are_not_queries():
    text = Sentences.of(
        [
            ["Tree", "1999", "cat", "once"],
            ["tree", "1999", "cat"],
            ["Tree", "1999", "cat", "tree-top"],
        ]
    )
    vectors = Embeddings(np.eye(11, dtype=np.float32) + 1, np.array([0, 4, 7, 11]))
    assert Consistency(text, bootstrap=0).evaluate(Fixed(vectors))[0].n == 3
    short = Sentences.of([["a", "b"], ["a"]])
    task = Consistency(short, data="short.txt")
    scores = task.evaluate(Fixed(Embeddings(np.eye(3, dtype=np.float32), np.array([0, 2, 3]))))
    assert json.loads(scores[0].to_json())["value"] is None
    assert "try --option letters=1" in next(iter(task.news(scores)))
    with pytest.raises(SettingError, match="letters must be at least 1"):
        Consistency(short, letters=0)
    with pytest.raises(SettingError, match="3 vectors in 1 sentences"):
        task.evaluate_embeddings(Embeddings(np.eye(3, dtype=np.float32), np.array([0, 3])))


def test_a_plain_file_and_a_side_of_a_parallel_file_have_equal_consistency(
    capsys, tiny_folder, tmp_path
):
    lines = [
        "the house of time\tDAS HAUS",
        "a house of water\tEIN HAUS",
        "time and water\tZEIT",
        "house\tHAUS",
    ]
    (tmp_path / "both.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "plain.en.txt").write_text(
        "".join(line.partition("\t")[0] + "\n" for line in lines)
    )
    plain = ("evaluate", tiny_folder, "consistency", "--json", "-q", "--test")
    both = json.loads(works(capsys, *plain, tmp_path / "both.tsv", "--langs", "en", "de")[0])[
        "scores"
    ]
    one = json.loads(works(capsys, *plain, tmp_path / "plain.en.txt")[0])["scores"]
    assert [(s["languages"], s["metric"]) for s in both] == [
        ([lang], "same-form") for lang in ("en", "de")
    ]
    assert one[0]["value"] == both[0]["value"]
    assert one[0]["n"] == 7
    few = works(capsys, *plain, tmp_path / "plain.en.txt", "--limit", 2, "--letters", 2)
    assert json.loads(few[0])["n"] == 2  # "time" in lines 1 and 3
    assert "the language is unknown" in fails(capsys, *plain, tmp_path / "both.tsv")
