"""Hooks of the site: they generate pages from the help of the commands and from files of the
project, and convert formulas.

Formulas are written as `$…$` and `$$…$$` in LaTeX and are converted to MathML, which all current
browsers display.
"""

from __future__ import annotations

import html
import inspect
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Generated pages, and the files of the project that they show.
FILES = {
    "reference/mini.md": "src/calque/data/mini/README.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/log.md": "dev/LOG.md",
    "notebooks/align.md": "docs/notebooks/align.ipynb",
    "notebooks/distil.md": "docs/notebooks/distil.ipynb",
}
_MARKED = re.compile(r"^<!-- test: file (\S+) -->\n+```(\w*)\n", re.MULTILINE)
BLANK = "\n\n"
_TABLE = re.compile(r"^<!-- table of (\S+) -->$", re.MULTILINE)
_LATEX = re.compile(r"<(span|div) class=\"arithmatex\">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>", re.DOTALL)


def on_files(files, config):
    from mkdocs.structure.files import File

    pages = {page: shown(ROOT / path) for page, path in FILES.items()}
    for page, text in {**pages, "reference/commands.md": commands()}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, **_):
    """Add the name of each file to its code block, and generate the tables of names from the
    code.
    """
    markdown = _MARKED.sub(lambda found: f'```{found[2] or "text"} title="{found[1]}"\n', markdown)
    return _TABLE.sub(lambda found: table(found[1]), markdown)


def table(target: str) -> str:
    """Return the rows of a table, `package.module:TABLE`, with their names and descriptions."""
    from calque.named import imported

    rows = [f"| `{name}` | {_cell(row.help)} |" for name, row in imported(target).items()]
    return "\n".join(["| name | description |", "|---|---|", *rows])


def on_page_content(content, **_):
    return _LATEX.sub(
        lambda found: mathml(html.unescape(found[3]).strip(), block=found[2] == "["), content
    )


def on_post_page(output, **_):
    """Name the search dialog of the theme, because screen readers require a name."""
    return output.replace('="search" role="dialog"', '="search" role="dialog" aria-label="Search"')


def mathml(latex: str, *, block: bool) -> str:
    from latex2mathml.converter import convert

    found = convert(latex, display="block" if block else "inline")
    # Prevent bars from growing with adjacent symbols, as in LaTeX without \left and \right.
    found = re.sub(r"<mo>(&#x02016;|&#x0007C;|\|)</mo>", r'<mo stretchy="false">\1</mo>', found)
    return f'<div class="formula" tabindex="0">{found}</div>' if block else found


def shown(path: Path) -> str:
    """Return a file of the project as a page: a notebook with its output, or a model card without
    its front matter.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return notebook(json.loads(text), path.name)
    return re.sub(r"\A---\n.*?\n---\n+", "", text, flags=re.DOTALL)


def notebook(content: dict, name: str) -> str:
    """Return the cells of a notebook in Markdown, with a link to the notebook after the title."""
    parts = []
    for cell in content["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            said = "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
            parts.append(f'```text title="output"\n{said.rstrip()}\n```')
    title, _, rest = parts[0].partition("\n")
    return (
        "\n\n".join([title, f"As a notebook: [{name}]({name}).", rest.strip(), *parts[1:]]) + "\n"
    )


# -- the command line ------------------------------------------------------------------------------
def commands() -> str:
    """Return the reference of all commands, generated from their declarations."""
    from calque.cli.parser import common_options
    from calque.commands import COMMANDS

    lines = [
        "# Commands",
        "",
        "This page is generated from the declarations of the commands. Results are written to "
        "standard output, and messages and progress to standard error. The exit code is 0 after "
        "success and 2 after a user error, which is reported in one line. An option with several "
        "values (`--langs en de`, `--test a.tsv b.tsv`) takes all words up to the next option.",
        "",
        "Every command also has these options:",
        "",
        "- `--trust-code`: Allow the command to import and run custom classes named in an "
        "encoder's folder.",
        "- `--on-error`: If over a tenth of the lines of a parallel text are unusable, stop with "
        "an error (`raise`), or skip them (`skip`).",
        "- `--help`: Show the help; `--more --help` lists all options.",
        "",
        "| command | description |",
        "|---|---|",
    ]
    classes = {name: COMMANDS.load(name) for name in COMMANDS}
    for name, command in classes.items():
        first = (command.__doc__ or "").partition(BLANK)[0]
        lines.append(f"| [`calque {name}`](#{name}) | {_cell(first)} |")
    for name, command in classes.items():
        text = inspect.cleandoc(command.__doc__ or "")
        lines += ["", f"## calque {name} {{ #{name} }}", "", text]
        options = common_options(command)
        arguments = {key: each for key, each in options.items() if each.option.positional}
        flags = {key: each for key, each in options.items() if not each.option.positional}
        lines += _options("argument", arguments, options) + _options("option", flags, options)
        if name == "evaluate":
            lines += _tasks()
        for title, subject in command.subjects().items():
            own = command.specific_options(subject)
            lines += ["", f"### {title}", *_options("option", own, {*options, *own})]
    return "\n".join(lines) + "\n"


def _tasks() -> list[str]:
    """Return the table of tasks with their files and options."""
    from calque.tasks.table import TASKS

    rows = [
        f"| `{name}` | {_cell(row.help)} | {_cell(', '.join(row.takes))} |"
        for name, row in TASKS.items()
    ]
    return ["", "| task | description | files and options |", "|---|---|---|", *rows]


def _options(title: str, options, names) -> list[str]:
    """Return a table of declared options; `names` are those of all options of the command."""
    from calque.cli.parser import all_flags, help_text, placeholder

    if not options:
        return []
    lines = ["", f"| {title} | description |", "|---|---|"]
    for each in options.values():
        spelled = ", ".join(all_flags(each)) or placeholder(each)
        text = help_text(each, names).replace("%%", "%")
        lines.append(f"| <code>{_cell(spelled)}</code> | {_cell(text)} |")
    return lines


def _cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([|*_`\[\]\\])", lambda found: f"&#{ord(found[1])};", escaped)
