"""Tests of the report in a browser: interaction, accessibility and security."""

# ruff: noqa: F811 (imported fixtures have the names of arguments)
from __future__ import annotations

import json
import re

import pytest

from browser import browser, page, scrolls_sideways, seen, violations  # noqa: F401 (fixtures)
from calque.report import report
from report_results import HOSTILE, analyses, hostile_lines, run_record, study, write


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    """Write a report on a small study with every kind of section, and return the URL of the
    page.
    """
    folder = tmp_path_factory.mktemp("report") / "study"
    write(
        folder / "results.jsonl",
        study(("de", "fr", "zh", "tr"), ("base", "rotation", "contrastive"), ("retrieval", "ner")),
    )
    write(folder / "analyses.jsonl", analyses(("de", "zh"), pairs=20))
    (folder / "calque-run.json").write_text(json.dumps(run_record()))
    report([folder], out=folder / "report.html", title="A study")
    return (folder / "report.html").as_uri()


def test_the_page_renders_without_further_requests(page, seen, url):
    page.goto(url)
    assert page.title() == "A study"
    assert page.locator("main > section:visible").count() > 10
    for name in (
        "#retrieval-0",
        "#retrieval-heat svg >> nth=0",
        "#pos-plot svg >> nth=0",
        "#points-plot svg >> nth=0",
    ):
        box = page.locator(name).bounding_box()
        assert box["width"] > 200, name
        assert box["height"] > 100, name
    assert seen.requests == [url]
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate(colour) != light
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(colour) == light
    page.set_viewport_size({"width": 375, "height": 812})  # the size of a phone
    assert not scrolls_sideways(page)
    assert page.locator("h1").bounding_box()["width"] <= 375


def column(page, table: str, number: int) -> list[str]:
    return page.locator(f"#{table} tbody tr > :nth-child({number}) .v data").all_inner_texts()


def test_tables_can_be_sorted(page, url):
    page.goto(url)
    before = column(page, "retrieval-0", 2)
    head = page.locator("#retrieval-0 thead th:nth-child(2)")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(page, "retrieval-0", 2) == sorted(before, key=float, reverse=True)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(page, "retrieval-0", 2) == sorted(before, key=float)
    other = page.locator("#retrieval-0 thead th:nth-child(1)")
    other.get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None
    names = page.locator("#retrieval-0 tbody th").all_inner_texts()
    assert names == sorted(names)
    other.get_by_role("button").click()
    other.get_by_role("button").click()  # the third click restores the original order
    assert column(page, "retrieval-0", 2) == before


def test_tooltips_show_the_source_of_a_score_and_of_a_mark(page, url):
    page.goto(url)
    tip = page.locator("#tip")
    figure = page.locator("#retrieval-0 tbody .fig").first
    figure.hover()
    assert re.fullmatch(r"study/results\.jsonl:\d+", tip.inner_text())
    mark = page.locator("#pos-plot .panel:visible .mark").nth(3)
    mark.scroll_into_view_if_needed()
    mark.hover()
    assert re.search(r"^(base|rotation|contrastive), \w+: \d", tip.inner_text())
    assert "analyses.jsonl" in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_the_tooltip_of_a_word_shows_its_sentence_and_translation(page, url):
    page.goto(url)
    panel = page.locator("#points-plot .panel:visible")
    dot = panel.locator("circle[data-pair='3']").first
    dot.scroll_into_view_if_needed()
    page.wait_for_timeout(300)  # wait until scrolling, which closes the tooltip, has ended
    dot.dispatch_event("pointerover", {"bubbles": True})
    text = page.locator("#tip").inner_text()
    assert "green – grün" in text
    assert "… green no. 3 ." in text
    assert (
        panel.locator(".on").count() == 6
    )  # two words and a line, each before and after alignment


def test_arrow_keys_select_the_marks_of_a_plot(page, url):
    page.goto(url)
    drawing = page.locator("#layers-plot .panel:visible .drawing")
    drawing.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    second = page.locator("#tip").inner_text()
    assert first != second
    assert "layer 1" in second
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tip").inner_text() == first


def test_plots_show_the_chosen_language_and_encoder(page, url):
    page.goto(url)
    plot = page.locator("#points-plot")
    assert plot.locator(".panel:visible").count() == 1
    plot.locator(".choose").get_by_label("language").select_option("zh")
    plot.locator(".choose").get_by_label("after").select_option("rotation")
    chosen = json.loads(plot.locator(".panel:visible").get_attribute("data-choice"))
    assert chosen == {"language": "zh", "after": "rotation"}
    plot.locator("> details summary").click()
    assert plot.locator("> details table:visible caption").all_inner_texts() == [
        "Word pairs of en and zh in their sentences"
    ]
    layers = page.locator("#layers-plot")
    layers.locator(".choose").get_by_label("figure").select_option(
        "accuracy, pairs unseen in training"
    )
    shown = layers.locator(".panel:visible")
    assert "unseen" in shown.locator("svg title").first.text_content()


@pytest.mark.parametrize(("scheme", "rules"), [("light", None), ("dark", ["color-contrast"])])
def test_the_page_has_no_accessibility_violations(page, url, scheme, rules):
    """The schemes differ only in their colours."""
    page.emulate_media(color_scheme=scheme)
    page.goto(url)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert violations(page, rules=rules) == []


def test_all_content_is_readable_without_scripts(browser, url):
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(url)
    panels = opened.locator(".panel")
    assert opened.locator(".panel:visible").count() == panels.count() > 10
    opened.locator("#pos-plot .panel details summary").first.click()
    assert opened.locator("#pos-plot .panel table").first.is_visible()
    context.close()


def test_the_page_works_under_its_content_security_policy(browser, url):
    """Open the page with its content security policy, which the other tests bypass."""
    context = browser.new_context()
    opened, wrong = context.new_page(), []
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.goto(url)
    assert opened.locator("#theme").is_visible()
    assert opened.locator("#points-plot .panel:visible").count() == 1
    assert wrong == []
    context.close()


def test_hostile_text_is_not_executed(page, seen, tmp_path):
    path = write(tmp_path / "r.jsonl", hostile_lines())
    report([path], out=tmp_path / "r.html", title=HOSTILE[0])
    dialogs = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto((tmp_path / "r.html").as_uri())
    assert page.title() == HOSTILE[0]
    for mark in page.locator(".mark:visible, circle[data-pair]:visible").all()[:8]:
        mark.dispatch_event("pointerover", {"bubbles": True})
    assert dialogs == []
    assert seen.foreign == []
    assert not scrolls_sideways(page)
