"""Tests that a rewritten model card keeps the user's text, byte for byte."""

import pytest

from calque.encoders.card_blocks import (
    CARD,
    NO_SCORES,
    SCORES,
    block,
    keep_user_text,
    read_card,
    whole_card,
    with_results,
    with_scores,
    with_user_text,
    write_card_text,
)
from calque.errors import CalqueWarning

LICENCE = "## Licence of the original model\n\nMIT. Keep this notice.\n"
TABLE = (
    "## Scores\n\n| task | metric | data | languages | value |\n|---|---|---|---|---|\n| ner | f1 "
    "| x | en-de | 0.5 |"
)
FRONT = "---\nlibrary_name: transformers\nlanguage:\n- de\n- en\n---\n"
#: card of an earlier version, which had no markers
EARLIER = (
    f"{FRONT}\n# base, aligned by rotation\n\nAligned using calque 0.1.\n\n## Use\n\nold\n\n## "
    "Settings\n\nold\n\n"
)


def test_only_the_block_of_scores_is_replaced():
    text = f"# Mine\n\n{block(SCORES, TABLE)}\n{LICENCE}"
    new = with_scores(text, "## Scores\n\nnew")
    assert new == f"# Mine\n\n{block(SCORES, '## Scores' + chr(10) + chr(10) + 'new')}\n{LICENCE}"
    assert with_scores(new, "## Scores\n\nnew") == new


@pytest.mark.parametrize("scores", [TABLE, f"## Scores\n\n{NO_SCORES}"])
@pytest.mark.parametrize("after", ["", f"\n{LICENCE}", "\nMy remark about the table.\n"])
def test_scores_of_earlier_versions_are_replaced_and_text_after_them_is_kept(scores, after):
    new = with_scores(f"{EARLIER}{scores}\n{after}", TABLE.replace("0.5", "0.7"))
    assert new == f"{EARLIER}{block(SCORES, TABLE.replace('0.5', '0.7'))}{after}"


@pytest.mark.parametrize(
    "text",
    [
        # the section belongs to the user
        "# Mine\n\n## Scores\n\nOn our own test set, 90 %.\n\n## More\n",
        "# Mine\n\n## Scores of the league\n\n| a | b |\n",
        f"# Mine\n\n```\n{TABLE}\n```\n\ntext ## Scores in a line\n",  # not a heading
        "no newline at the end",
        "# Windows\r\n\r\n## Scores\r\n\r\nown text\r\n",
        # a byte that is not UTF-8, and other line separators
        "# Latin\n\nfa\udce7ade\n\u2028 \x0b",
    ],
)
def test_text_without_our_scores_is_kept_and_the_block_is_added_at_the_end(text, tmp_path):
    write_card_text(tmp_path / "README.md", text)
    before = (tmp_path / "README.md").read_bytes()
    write_card_text(tmp_path / "README.md", with_scores(read_card(tmp_path / "README.md"), TABLE))
    after = (tmp_path / "README.md").read_bytes()
    assert after.startswith(before)
    assert after.count(b"| ner | f1 |") == text.count("| ner | f1 |") + 1
    assert (b"\r\n" in before) == (b"\r\n| ner" in after)


def card_of(text: str) -> str:
    return whole_card(f"{FRONT}\n# base, aligned by contrastive\n\n{text}\n")


def test_a_new_card_keeps_the_text_outside_the_blocks_and_the_keys_of_the_front_matter():
    old = (
        card_of("first").replace(
            "---\n\n", "license: mit\nwidget:\n- text: a\n---\nMy preface.\n\n", 1
        )
        + f"\n{LICENCE}"
    )
    new = with_user_text(old, card_of("second"))
    assert (
        new
        == card_of("second").replace(
            "---\n\n", "license: mit\nwidget:\n- text: a\n---\nMy preface.\n\n", 1
        )
        + f"\n{LICENCE}"
    )
    assert new.count("license: mit") == new.count(f"<!-- end of calque: {CARD} -->") == 1
    assert with_user_text(new, card_of("second")) == new


def test_a_card_that_the_user_wrote_is_kept_before_the_new_card():
    own = "---\nlicense: apache-2.0\n---\n# The original model\n\n## Settings\n\nmine\n"
    new = with_user_text(own, card_of("x"))
    assert "license: apache-2.0" in new.partition("---\n# The")[0]
    assert new.index("# The original model\n\n## Settings\n\nmine\n") < new.index(
        "# base, aligned by contrastive"
    )
    assert new.startswith("---\nlibrary_name: transformers\n")


def test_sections_that_the_user_added_to_a_card_of_an_earlier_version_are_kept():
    old = f"{EARLIER}{TABLE}\n\n{LICENCE}"
    new = with_user_text(old, card_of("new"))
    assert new == f"{card_of('new')}\n{LICENCE}"


def test_cards_of_two_folders_are_merged_only_if_both_exist(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    keep_user_text(old, new)
    assert not list(new.iterdir())
    (old / "README.md").write_text("mine\n")
    keep_user_text(old, new)
    assert not list(new.iterdir())
    (new / "README.md").write_text(card_of("x"))
    keep_user_text(old, new)
    assert (new / "README.md").read_text().count("mine") == 1


# -- results in the front matter -------------------------------------------------------------------
INDEX = """model-index:
- name: base
  results:
  - task:
      type: feature-extraction
    dataset:
      name: t.tsv
      type: t.tsv
    metrics:
    - type: accuracy
      value: 0.5
"""
ELEMENT = INDEX.partition("\n")[2]
BLOCK = (
    "# calque: results. calque replaces these lines; write your own results outside them.\n"
    f"{ELEMENT}# end of calque: results\n"
)
OWN = "- name: mine\n  results: []\n"


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("", f"---\nmodel-index:\n{BLOCK}---\n\n# Mine\n"),
        ("---\n---\n", f"---\nmodel-index:\n{BLOCK}---\n# Mine\n"),
        (
            "---\nlicense: mit\ntags:\n- a\n---\n",
            f"---\nlicense: mit\ntags:\n- a\nmodel-index:\n{BLOCK}---\n# Mine\n",
        ),
        (
            f"---\nmodel-index:\n{OWN}license: mit\n---\n",
            f"---\nmodel-index:\n{OWN}{BLOCK}license: mit\n---\n# Mine\n",
        ),
    ],
)
def test_results_are_added_and_the_rest_of_the_card_is_kept(front, expected):
    text = f"{front}# Mine\n"
    found = with_results(text, INDEX)
    assert found == expected
    assert with_results(found, INDEX) == found
    new = INDEX.replace("0.5", "0.7")
    assert with_results(found, new) == expected.replace("0.5", "0.7")
    windows = with_results(text.replace("\n", "\r\n"), INDEX)
    assert windows == expected.replace("\n", "\r\n")
    assert with_results(windows, new) == expected.replace("0.5", "0.7").replace("\n", "\r\n")


def test_results_of_the_user_with_other_indentation_are_kept():
    own = "model-index:\n    - name: mine\n      results: []\n"
    found = with_results(f"---\n{own}---\n# Mine\n", INDEX)
    assert found.startswith(f"---\n{own}    # calque: results.")
    assert "\n    - name: base\n      results:\n      - task:\n" in found


def test_results_of_the_user_on_one_line_are_kept_with_a_warning():
    text = "---\nmodel-index: [{name: mine, results: []}]\n---\n# Mine\n"
    with pytest.warns(CalqueWarning, match="so the scores were not added to it"):
        assert with_results(text, INDEX) == text


def test_a_new_card_has_the_results_of_the_user_without_those_of_calque():
    old = with_results(f"---\nmodel-index:\n{OWN}---\n# Mine\n", INDEX)
    new = with_user_text(old, card_of("x"))
    assert f"model-index:\n{OWN}---\n" in new
    assert "calque: results" not in new
    only_ours = with_results(f"{FRONT}# Mine\n", INDEX)
    assert "model-index" not in with_user_text(only_ours, card_of("x"))
