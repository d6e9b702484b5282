"""Test that commands and Python in the documentation run unchanged, numbers match the results, and
the site builds.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib

import numpy as np
import pytest

import calque
from documents import ROOT, blocks, hooks, run_commands, run_python, write_texts

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.name != "results.md")
RUN = [page for page in PAGES if "<!-- test:" in page.read_text(encoding="utf-8")]


def name(page):
    return page.relative_to(DOCS).as_posix()


@pytest.fixture
def folder(tmp_path, tiny_folder, monkeypatch):
    from calque.encoders import loading

    write_texts(tmp_path)
    shutil.copytree(tiny_folder, tmp_path / "aligned")
    monkeypatch.setitem(loading.BUNDLED, "mini", tiny_folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # has the effect of PYTHONPATH=.
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=name)
def test_commands_and_python_of_a_page_run(page, folder, tiny_folder, capsys):
    space: dict = {}
    if page.name == "index.md":
        shutil.rmtree(folder / "aligned")
    for kind, file, block in blocks(page):
        if kind == "file":
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(block, encoding="utf-8")
        elif kind == "commands":
            run_commands(block, str(tiny_folder), capsys)
        else:
            run_python(block, str(tiny_folder), page, space)


def test_transformers_code_in_the_tutorial_gives_the_aligned_layer(folder, capsys):
    """Align a middle layer of an encoder that pools like `mini`, and check that transformers alone
    computes the vectors that calque scored.
    """
    _, _, code = next(block for block in blocks(DOCS / "tutorial.md") if "AutoModel" in block[2])
    align = (
        "calque align train.tsv --langs en de --encoder mini --layer 1 --pooling last --epochs 1 "
        "--held-out 0 --towards en --out my-aligned --quiet"
    )
    run_commands(align, "", capsys)
    space: dict = {}
    run_python(code, "", DOCS / "tutorial.md", space)
    words = ("the", "cat", "sees", "a", "housing")
    encoder = calque.load_encoder("my-aligned")
    assert encoder.layer == encoder.n_layers == 1
    expected = encoder.encode([calque.Sentence(words, lang="en")])[0]
    np.testing.assert_allclose(space["word_vectors"](list(words)).numpy(), expected, atol=1e-5)


def texts_of(line: str) -> dict[str, set[str]]:
    """Return the files passed to each text option of a command, without the language prefixes."""
    found: dict[str, set[str]] = {}
    option = ""
    for word in shlex.split(line, comments=True):
        if word.startswith("--"):
            option = word
        elif option in ("--train", "--test", "--dev", "--ceiling", "--text"):
            found.setdefault(option, set()).add(word.rpartition("=")[2])
    return found


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_no_example_evaluates_on_its_training_text(page):
    """Also check code blocks that no test runs, because users copy them."""
    fences = re.findall(
        r"^```[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    for line in "".join(fences).replace("\\\n", " ").splitlines():
        if line.startswith("calque "):
            texts = texts_of(line)
            assert not texts.get("--test", set()) & (
                texts.get("--train", set()) | texts.get("--ceiling", set())
            ), line
    for fence in fences:
        if "[tasks." in fence:
            for task in tomllib.loads(fence).get("tasks", {}).values():
                train, test = (
                    set(re.findall(r"[\w.-]+\.\w+", str(task.get(part, ""))))
                    for part in ("train", "test")
                )
                assert not train & test, fence


def numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.])", text))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_numbers_in_findings_of_pages_are_in_the_results(page):
    """Every decimal number in a page's findings must be in the results, the README or the log."""
    pages = (DOCS / "results.md", ROOT / "README.md", ROOT / "dev" / "LOG.md")
    known = numbers("\n".join(page.read_text(encoding="utf-8") for page in pages))
    parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles = ("What we found", "What to expect", "How much is enough", "Error rate")
    ours = [part for part in parts if part.startswith(titles)]
    assert not numbers("".join(ours)) - known


def test_every_public_name_is_in_the_reference():
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    described = set(re.findall(r"^::: calque\.(\w+)$", text, flags=re.MULTILINE))
    assert set(calque.__all__) - described == set()


def test_every_command_is_in_the_reference_with_its_options():
    from calque.commands import COMMANDS

    page = hooks().commands()
    for command in COMMANDS:
        assert f"## calque {command}" in page
    assert "<code>--symmetrize" in page
    assert "&#124;" in page  # `|` is escaped in tables


def test_options_in_pages_exist():
    """Every `--option` in a page must belong to a calque command or to another program named in the
    line.
    """
    known = set(re.findall(r"--[a-z][a-z-]+", hooks().commands()))
    others = {
        f"--{name}"
        for name in (
            "extra-index-url",
            "nproc",
            "nnodes",
            "rdzv",
            "cpu",
            "logdir",
            "multi",
            "num",
            "use",
            "computed",
            "pivot",
        )
    }
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
        assert named - known - others == set(), name(page)


def test_a_comment_above_a_block_gives_its_file_name():
    shown = hooks().on_page_markdown("<!-- test: file a.toml -->\n```toml\nb = 1\n```\n")
    assert '```toml title="a.toml"' in shown


def test_the_readme_contains_the_first_table_of_the_demo_in_the_tutorial():
    readme, tutorial = (
        re.search(
            r"^```\nContextual word retrieval.*?^```$",
            page.read_text("utf-8"),
            re.DOTALL | re.MULTILINE,
        )[0]
        for page in (ROOT / "README.md", DOCS / "tutorial.md")
    )
    assert tutorial.startswith(readme.removesuffix("\n```"))


def test_formulas_are_converted_to_mathml():
    pytest.importorskip("latex2mathml")
    module = hooks()
    page = r'<p>so <span class="arithmatex">\(a_1 &lt; b\)</span></p><div class="arithmatex">\[\frac{1}{2}\]</div>'
    shown = module.on_page_content(page)
    assert shown.count("<math") == 2
    assert "<mfrac>" in shown
    assert "&lt;" in shown or "&#x0003C;" in shown
    assert "arithmatex" not in shown


def test_every_page_is_in_the_navigation():
    shown = set(
        re.findall(
            r"\S+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
        )
    )
    assert {name(page) for page in DOCS.rglob("*.md")} - shown == set()


def test_the_site_builds_without_warnings_and_without_network(tmp_path):
    for library in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(library)
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(
        load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    )  # strict mode: warnings are errors
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(https?://[^\" >]+)", text)
        loaded += [
            link
            for link in re.findall(r"<link[^>]*>", text)
            if "http" in link and "canonical" not in link
        ]
        assert not loaded, page.name
        assert not re.findall(r"<m[a-z]+[^>]*>\\\w+", text), (
            page.name
        )  # LaTeX commands that were not converted
