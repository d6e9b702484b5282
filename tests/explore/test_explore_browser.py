"""Tests of the explorer's page in a browser."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("uvicorn", reason="the extra explore is not installed")

from browser import browser, page, scrolls_sideways, seen, violations  # noqa: F401
from calque.errors import InputError
from calque.explore.background import Background
from calque.explore.explorer import Explorer
from explored_text import ENGLISH
from serving import Gate, served

RIVER = "?id=2&word=4&with=de"  # the word in brackets: she sat on the [bank] of the river .


@pytest.fixture(scope="module")
def url(explorer):
    with served(explorer) as address:
        yield address


def opened(page, url: str, view: str = RIVER):
    page.set_default_timeout(60_000)  # so the tests do not fail on a busy machine
    page.goto(url + view)
    settled(page)
    return page


def settled(page) -> None:
    """Wait until the results of both encoders are shown."""
    page.locator(".body[aria-busy=false] .near").nth(1).wait_for(state="attached")


def chosen(page) -> str:
    return page.locator("#words button[aria-pressed=true]").inner_text()


def nearest(page, side: int) -> list[str]:
    return page.locator(".panel").nth(side).locator(".near mark").all_inner_texts()


def test_the_view_of_a_word_is_accessible_and_has_no_errors(page, seen, url):
    opened(page, url)
    assert page.title() == "bank · calque explore"
    assert page.locator("#words button").all_inner_texts() == ENGLISH[2].split()
    assert chosen(page) == "bank"
    assert page.locator("#words").get_attribute("lang") == "en"
    assert [each.inner_text() for each in page.locator("h2").all()] == [
        "Before alignment",
        "After alignment",
    ]
    assert page.locator(".panel").first.locator("h3").all_inner_texts()[:2] == [
        "German\nCSLS\ncosine",
        "Hebrew",
    ]
    assert "nearest to bank: German" in page.locator("#status").inner_text()
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
    assert seen.foreign == []


def test_the_page_shows_the_neighbours_and_links_of_the_server(page, url, explorer):
    opened(page, url)
    for side, encoder in enumerate(("tiny", "rotated")):
        answer = explorer.neighbours(encoder, "3", 2, 4, n=3)
        languages = sorted(answer["languages"], key=lambda each: each["own"])
        hits = [hit for each in languages for hit in each["words"]] + answer["same"]["nearest"]
        assert nearest(page, side) == [hit["words"][hit["word"]] for hit in hits]
        links = explorer.links(encoder, "3", 2, 8)["links"]
        panel = page.locator(".panel").nth(side)
        drawn = panel.locator("path")
        assert drawn.count() == len(links)
        assert all(re.match(r"M[\d.]+ [\d.]+C", path.get_attribute("d")) for path in drawn.all())
        assert panel.locator("figcaption .hidden").text_content() == ", ".join(
            f"{explorer.collection.sentences[2].words[i]} – "
            f"{explorer.collection.sentences[8].words[j]}"
            for i, j in links
        )


def test_clicking_a_word_selects_it_and_the_back_button_restores_the_previous_word(page, url):
    opened(page, url)
    before = nearest(page, 0)
    page.get_by_role("button", name="river", exact=True).click()
    page.wait_for_function("document.title.startsWith('river')")
    settled(page)
    assert chosen(page) == "river"
    assert "word=7" in page.url
    assert nearest(page, 0) != before
    assert page.evaluate("document.activeElement.textContent") == "river"
    page.go_back()
    page.wait_for_function("document.title.startsWith('bank')")
    settled(page)
    assert nearest(page, 0) == before


def test_the_chosen_encoder_and_layer_are_stored_in_the_url(page, url):
    opened(page, url)
    after, first = nearest(page, 1), page.locator(".panel").first
    first.locator(".encoder").select_option("rotated")
    page.wait_for_function("new URLSearchParams(location.search).get('before') === 'rotated:3'")
    settled(page)
    assert nearest(page, 0) == after
    assert first.locator("h2").inner_text() == "After alignment"
    assert (
        page.locator("path.alone").count() == 0
    )  # both panels are equal, so no link is highlighted
    first.locator(".encoder").select_option("tiny")
    page.wait_for_function("new URLSearchParams(location.search).get('before') === 'tiny:3'")
    first.locator(".layer").select_option("0")
    page.wait_for_function("new URLSearchParams(location.search).get('before') === 'tiny:0'")
    settled(page)
    page.locator("#n").select_option("5")
    page.wait_for_function("new URLSearchParams(location.search).get('n') === '5'")
    settled(page)
    page.reload()
    settled(page)
    assert first.locator(".layer").input_value() == "0"


def test_the_sentence_of_a_neighbour_can_be_compared_or_opened(page, url):
    opened(page, url)
    row = page.locator(".panel").first.locator(".near li").nth(1)
    words = re.sub(r"\W", "", row.locator(".context").get_attribute("title"))
    row.locator("button").click()
    page.wait_for_function("new URLSearchParams(location.search).has('beside')")
    settled(page)
    assert re.sub(r"\W", "", page.locator(".line.target").first.inner_text()) == words
    assert page.locator("#with button[aria-pressed=true]").count() == 0 or words.startswith(
        "siesaß"
    )
    assert page.evaluate("document.activeElement.dataset.row") == "de-1"
    row.locator("a").click()
    page.wait_for_function("!new URLSearchParams(location.search).has('beside')")
    settled(page)
    assert re.sub(r"\W", "", page.locator("#words").inner_text()) == words


def test_sentences_can_be_found_with_the_keyboard(page, url):
    opened(page, url)
    box = page.get_by_role("combobox", name="Find a sentence")
    box.focus()
    box.type("birds house")
    page.wait_for_selector("#found li")
    assert box.get_attribute("aria-expanded") == "true"
    assert violations(page) == []
    assert (
        page.locator("#found li").count() == 2
    )  # the matching sentence, and an entry for the typed sentence
    box.press("Escape")
    assert page.locator("#found").is_hidden()
    box.press("Enter")
    page.wait_for_function("document.title.startsWith('birds')")
    assert "id=5" in page.url
    settled(page)


def test_a_typed_sentence_is_shown_in_its_guessed_language(page, url):
    opened(page, url)
    box = page.locator("#find")
    box.fill("das Haus am Ufer")
    page.wait_for_selector("#found .own")
    box.press("Enter")
    page.wait_for_function(
        "new URLSearchParams(location.search).get('text') === 'das Haus am Ufer'"
    )
    settled(page)
    assert page.locator("#words button").all_inner_texts() == ["das", "Haus", "am", "Ufer"]
    assert "lang=de" in page.url  # the language was guessed
    assert "German" in page.locator("#about").inner_text()
    assert page.locator("path").count() == 0
    page.locator(".near li button").first.click()
    page.wait_for_selector("path", state="attached")


def test_right_to_left_text_is_shown_right_to_left(page, url):
    opened(page, url, "?id=12&word=1")
    line = page.locator("#words")
    assert line.get_attribute("lang") == "he"
    assert line.evaluate("line => getComputedStyle(line).direction") == "rtl"
    places = [button.bounding_box()["x"] for button in line.locator("button").all()]
    assert places[0] > places[1]
    line.locator("button").nth(1).focus()
    page.keyboard.press("ArrowLeft")  # in right-to-left text, the left arrow moves forwards
    assert (
        page.evaluate(
            "[...document.querySelectorAll('#words button')].indexOf(document.activeElement)"
        )
        == 2
    )


def test_a_phone_shows_encoders_in_separate_tabs(page, url):
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, url)
    before = page.get_by_role("tab").first

    def shown() -> list[str]:
        assert not scrolls_sideways(page)
        assert violations(page) == []
        return [panel.get_attribute("id") for panel in page.get_by_role("tabpanel").all()]

    assert shown() == ["after"]
    before.click()
    assert shown() == ["before"]
    page.reload()
    settled(page)
    assert shown() == ["before"]
    before.press("ArrowRight")
    assert shown() == ["after"]
    assert before.bounding_box()["y"] > 780
    wrong = """[...document.querySelectorAll(".near mark")].filter((mark) =>
        mark.getBoundingClientRect().right > mark.parentElement.getBoundingClientRect().right + 1).length +
        [...document.querySelectorAll("button, select, input, .near a")].filter((each) =>
        each.clientHeight && each.offsetHeight < 40 && !each.closest("[hidden]")).length"""
    assert page.evaluate(wrong) == 0  # no word is cut off, and all controls are tall enough to tap
    page.set_viewport_size({"width": 320, "height": 740})
    page.wait_for_selector(
        ".pair.ladder"
    )  # sentences that are too long for the width are shown vertically
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function("document.querySelectorAll('.pair.ladder').length === 0")
    assert (page.get_by_role("tab").count(), page.locator(".panel:visible").count()) == (0, 2)


def test_the_search_is_stored_in_the_url(page, url):
    def shows_the_search() -> None:
        page.wait_for_function("document.title.startsWith('birds')")
        settled(page)
        assert page.locator("#find").input_value() == "birds house"
        assert (page.locator("#lang").input_value(), chosen(page)) == ("en", "birds")

    opened(page, url, "")
    assert {"id", "word", "before", "after"} <= set(parse_qs(urlsplit(page.url).query))
    page.locator("#lang").select_option("en")
    page.locator("#find").fill("birds house")
    page.locator("#found li").first.click()
    shows_the_search()
    page.go_back()
    page.wait_for_function("!document.title.startsWith('birds')")
    page.go_forward()
    shows_the_search()
    page.reload()
    shows_the_search()
    page.locator("#find").click()  # a click shows the results again
    page.locator("#found li").first.wait_for()
    page.locator("#find").fill("")
    page.wait_for_function("!new URLSearchParams(location.search).has('q')")


def test_errors_are_shown_on_the_page(page, seen, url):
    page.set_default_timeout(60_000)
    page.goto(url + "?id=99")
    page.wait_for_selector("#trouble:not([hidden])")
    assert page.locator("#trouble").inner_text() == "the sentence number must be 0 to 13, got 99"
    seen.errors.clear()  # remove the expected error of the HTTP request
    page.locator("#another").click()
    settled(page)
    page.wait_for_selector("#trouble", state="hidden")


@pytest.mark.parametrize("width", [1300, 390])
def test_the_page_shows_the_progress_and_then_the_results(
    page,
    collection,
    sources,
    tmp_path,
    monkeypatch,
    width,
):
    explorer, gate = Explorer(collection, sources, tmp_path), Gate(monkeypatch)
    page.set_viewport_size({"width": width, "height": 844})
    with served(explorer, Background(explorer)) as url:
        page.goto(url + RIVER)
        page.locator("#waiting").wait_for()
        expected = (
            "Encoding the text with tiny, layer 3, then 1 more layer (only needed the first time) …"
        )
        page.wait_for_function(
            "text => document.querySelector('#waiting p').textContent === text", arg=expected
        )
        page.wait_for_function("document.querySelector('#waiting progress').value === 0.125")
        assert (
            page.locator("#words button").all_inner_texts() == ENGLISH[2].split()
        )  # the sentence is shown already
        assert violations(page) == []
        assert not scrolls_sideways(page)
        page.locator("#words button").nth(1).click()  # another word can be chosen meanwhile
        gate.open()
        settled(page)
        assert chosen(page) == "sat"
        assert page.locator("#waiting").is_hidden()
        assert page.locator("#trouble").is_hidden()


def test_an_error_of_the_computation_is_shown_on_the_page(
    page,
    seen,
    collection,
    sources,
    tmp_path,
    monkeypatch,
):
    explorer, gate = (
        Explorer(collection, sources, tmp_path),
        Gate(monkeypatch, InputError("the disk is full", path="x")),
    )
    gate.open()
    with served(explorer, Background(explorer)) as url:
        page.goto(url + RIVER)
        page.locator("#trouble").wait_for()
        shown = page.locator("#trouble").inner_text()
        assert re.fullmatch(
            r"the word vectors of \w+, layer 3 could not be computed: x: the disk is full", shown
        )
        assert page.locator("#waiting").is_hidden()
    seen.errors.clear()  # remove the expected errors of the HTTP requests


def test_the_page_works_under_its_security_policy(browser, url):
    context = browser.new_context()  # unlike the fixture `page`, this context applies the policy
    plain = context.new_page()
    errors: list[str] = []
    plain.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" else None
    )
    opened(plain, url)
    assert plain.locator("path").count() > 0
    assert plain.evaluate("getComputedStyle(document.querySelector('.panels')).display") == "grid"
    assert errors == []
    context.close()
