"""The sense of a word in the explorer: what it answers, and what a person sees of it."""

from __future__ import annotations

import pytest

pytest.importorskip("uvicorn", reason="the extra explore is not installed")

from browser import browser, page, scrolls_sideways, seen, violations  # noqa: F401
from calque.errors import SettingError
from calque.explore.collection import Collection
from calque.explore.explorer import Explorer
from calque.explore.sources import NamedEncoder, find_encoders
from calque.pretraining.sense_reader import open_sense_reader
from calque.text import ParallelCorpus
from sense_models import an_elmo
from serving import served

LINES = (["the", "bank", "of", "a", "river"], ["money", "may", "loan", "outlandishly"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return an_elmo(tmp_path_factory.mktemp("senses") / "elmo")


@pytest.fixture(scope="module")
def explorer(folder, tiny_encoder, tmp_path_factory):
    corpus = ParallelCorpus.of(LINES, [["Ufer", "Fluss"], ["Geld"]], ("en", "de"))
    encoders = [NamedEncoder("tiny", tiny_encoder, True), *find_encoders([str(folder)], None, lambda line: None)]
    return Explorer(Collection([((corpus.source, corpus.target), False)]), encoders, tmp_path_factory.mktemp("explore"))


def test_a_word_has_the_sense_that_calque_senses_would_say(explorer, folder):
    reader = open_sense_reader(folder)
    for k, words in enumerate(LINES):
        expected = reader.select([words]).tolist()
        for place, word in enumerate(words):
            answer = explorer.sense("elmo", k, place)
            assert (answer["encoder"], answer["word"]) == ("elmo", word)
            if word == "outlandishly":
                assert answer["senses"] == expected[place] == 0
                continue
            number = reader.find(word)
            assert answer["number"] == expected[place]
            assert answer["senses"] == reader.inventory.n_senses[number]
            assert answer["share"] == round(float(reader.inventory.shares[number, expected[place] - 1]), 4)
            near = reader.nearest(number, expected[place], 8)
            assert [(n["word"], n["number"]) for n in answer["nearest"]] == [
                (reader.words[n.word], n.number) for n in near
            ]
            langs = {n["word"]: n["lang"] for n in answer["nearest"]}
            assert all(lang == "de" for form, lang in langs.items() if form in ("Ufer", "Fluss", "Geld"))
            assert all(lang == "en" for form, lang in langs.items() if form in ("bank", "river", "money", "the"))
            assert langs.get("boat") is None  # in no sentence of this text


def test_what_cannot_be_asked_is_one_line(explorer):
    with pytest.raises(SettingError, match="tiny has learnt no senses: calque pretrain --senses"):
        explorer.sense("tiny", 0, 0)
    with pytest.raises(SettingError, match="no word 9, the sentence has 5"):
        explorer.sense("elmo", 0, 9)


@pytest.fixture(scope="module")
def url(explorer):
    with served(explorer) as address:
        yield address


def test_the_sense_of_the_word_that_is_clicked_is_shown(page, seen, url, explorer):  # noqa: F811
    page.set_default_timeout(60_000)  # however busy the machine is
    page.goto(url + "?id=0&word=1")
    page.locator(".body[aria-busy=false] .near").nth(1).wait_for()
    shown = page.locator(".sense")
    assert shown.count() == 1  # of the encoder that has learnt some
    for word in (1, 4):
        page.locator("#words button").nth(word).click()
        answer = explorer.sense("elmo", 0, word)
        page.get_by_text(f"Sense {answer['number']} of {answer['senses']}").wait_for()
        page.locator(f'.sense[data-word="{word}"]').wait_for()
        names = [f"{near['word']}_{near['number']}" for near in answer["nearest"]]
        assert shown.locator("li").all_inner_texts() == names
        assert f"{100 * answer['share']:.0f}% of its uses in training" in shown.inner_text()
    assert not scrolls_sideways(page)
    assert not violations(page)
    page.goto(url + "?id=1&word=3")
    page.get_by_text("The model knows no senses of “outlandishly”").wait_for()
