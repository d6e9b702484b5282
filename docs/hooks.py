"""Hooks of the site: they generate pages from the help of the commands and from files of the
project, and convert formulas.

Formulas are written as `$…$` and `$$…$$` in LaTeX and are converted to MathML, which all current
browsers display.
"""

from __future__ import annotations

import html
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


# -- the command line
# ------------------------------------------------------------------------------------------------
def commands() -> str:
    """Return the reference of all commands, generated from their help."""
    import typer

    from calque.cli import COMMANDS, app

    root = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        f"{root.help} This page is generated from the help of the commands.",
        "",
        "Results are written to standard output, and messages and progress to standard error. The "
        "exit code is 0 after "
        "success and 2 after a user error, which is reported in one line. An option with several "
        "values (`--langs en de`, "
        "`--test a.tsv b.tsv`) takes all words up to the next option.",
        "",
        "Every command also has these options:",
        "",
        *(
            f"- `{param.opts[0]}`: {param.help}"
            for param in root.params
            if getattr(param, "help", None) and param.opts[0] not in ("--version", "--help")
        ),
        "",
        "| command | description |",
        "|---|---|",
    ]
    names = [function.__name__.replace("_", "-") for function in COMMANDS]
    found = {name: root.commands[name] for name in names if name in root.commands}
    for verb, group in root.commands.items():
        found |= {
            f"{verb} {name}": command for name, command in getattr(group, "commands", {}).items()
        }
    lines += [
        f"| [`calque {name}`](#{_anchor(name)}) | {_cell(command.help.split(BLANK)[0])} |"
        for name, command in found.items()
    ]
    for name, command in found.items():
        lines += [
            "",
            *_command(name, command),
            *(_tasks() if name == "evaluate" else []),
            *_own_options(command),
        ]
    return "\n".join(lines) + "\n"


def _tasks() -> list[str]:
    """Return the table of tasks with their files and options."""
    from calque.tasks.table import TASKS

    rows = [
        f"| `{name}` | {_cell(row.help)} | {_cell(', '.join(row.takes))} |"
        for name, row in TASKS.items()
    ]
    return ["", "| task | description | files and options |", "|---|---|---|", *rows]


def _own_options(command) -> list[str]:
    """Return the options of a command for each method or task."""
    lines = []
    for title, subject in command.subjects().items() if hasattr(command, "subjects") else ():
        rows = [
            f"| <code>{html.escape(option)}</code> | {_cell(text)} |"
            for option, text in command.own_rows(subject)
        ]
        lines += ["", f"### {title}", "", "| option | |", "|---|---|", *rows]
    return lines


def _command(name: str, command) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f"## calque {name} {{ #{_anchor(name)} }}",
        "",
        command.help,
        "",
        "```",
        f"calque {name} {usage}",
        "```",
    ]
    arguments, options = [], []
    for parameter in command.get_params(context):
        if hasattr(parameter, "hidden"):
            parameter.hidden = (
                False  # the general help hides the options of single methods and tasks
            )
        record = parameter.get_help_record(context)
        if record is not None:
            (options if parameter.param_type_name == "option" else arguments).append(record)
    for title, records in (("argument", arguments), ("option", options)):
        if records:
            lines += ["", f"| {title} | description |", "|---|---|"]
            lines += [f"| <code>{_cell(left)}</code> | {_cell(right)} |" for left, right in records]
    return lines


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([|*_`\[\]\\])", lambda found: f"&#{ord(found[1])};", escaped)
