"""Fill the tables and numbers of the documents from the files in docs/results.

    make results                                              # rewrites the documents
    python dev/results.py --check                             # lists differences, exit status 1 if any
    python dev/results.py keep real runs/real/results.jsonl   # writes docs/results/real.jsonl

A document marks what is filled in by comments, which are invisible on the rendered page:

- `<!-- results: NAME -->` … `<!-- end -->` encloses a table or another block of `BLOCKS`.
- `50.7<!--=real/contrastive 2k/unseen/mean-->` is a number with its key. The key follows the number,
  or text in backticks.

A key is `FILE/CELL` or `FILE/CELL/PART`, optionally with `:FORMAT` (such as `:.0f`). FILE is a file
of docs/results. There are two kinds of files:

- Files of scores have the lines of `calque evaluate --out`. CELL is METHOD/METRIC/LANGUAGE, where
  METHOD is a row of `calque report`, METRIC is a key of `METRICS`, and LANGUAGE is `mean` for the
  mean over the test sets. PART is `value` (default), `low`, `high`, `interval`, `sd`, `runs`, `n` or a setting.
  calque's own functions compute means, intervals and standard deviations.
- Files of records have a `cell` in every line. PART is another key of the line (default `value`).

`A minus B` stands for the difference of two cells. `sources.jsonl` gives the command, commit,
processor and date of each file.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calque.report.numbers import Figure, Number, escape_source
from calque.report.questions import find_subjects, sort_questions
from calque.report.reading import Results, read_results

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "results"

#: short names of metrics in keys, with the task and the metric in files of scores
METRICS = {
    "unseen": ("retrieval", "accuracy.unseen"),
    "all": ("retrieval", "accuracy.all"),
    "type-level": ("retrieval", "form.all"),
    "type-level unseen": ("retrieval", "form.unseen"),
    "sentences": ("sentences", "accuracy"),
    "alignment error": ("word-alignment", "aer"),
    "same word": ("consistency", "same-form"),
    "tagging": ("pos", "accuracy"),
}
_KEYED = re.compile(r"(?P<old>`[^`\n]*`|[−-]?\d[\d.,]*\d|\d)(?P<key><!--=(.+?)-->)")
_BLOCK = re.compile(
    r"(?P<start><!-- results: (?P<name>.+?) -->\n)(?P<old>.*?)(?P<end><!-- end -->)", re.DOTALL
)
_DECIMAL = re.compile(r"[\d.]+")
_FIELD = re.compile(r"<([^<>\n]+)>")


# -- cells -----------------------------------------------------------------------------------------
class Cells:
    """Cells of all files in a folder, by key. Files are read when they are first needed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._files: dict[str, Mapping[str, Any]] = {}

    def __getitem__(self, key: str) -> str:
        """Return the text of a cell.

        Raises:
            KeyError: no file contains the cell.
        """
        name, _, form = key.partition(":")
        first, _, second = name.partition(" minus ")
        found = self._part(first)
        if isinstance(found, str):
            return found
        if second:
            other = self._part(second)
            found = replace(found, value=found.value - other.value)
        if form:
            return format(found.value * (100 if found.percent else 1), form)
        return found.shown

    def text(self, name: str) -> str:
        """Return the printed output that is kept as `NAME.txt`."""
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8").strip()

    def _part(self, key: str) -> Any:
        """Return the number or the text that a key without format stands for."""
        name, _, cell = key.partition("/")
        if name not in self._files:
            self._files[name] = self._read(name)
        part = "value"
        if cell not in self._files[name]:
            cell, _, part = cell.rpartition("/")
        if cell not in self._files[name]:
            raise KeyError(f"{key}: docs/results/{name}.jsonl has no such cell")
        found = self._files[name][cell]
        number = found.part(part) if isinstance(found, Score) else _of_record(found, part)
        if number is None:
            raise KeyError(f"{key}: the cell has no {part}")
        return number

    def _read(self, file: str) -> Mapping[str, Any]:
        path = self.folder / f"{file}.jsonl"
        if not path.exists():
            raise KeyError(f"{file}: there is no docs/results/{file}.jsonl")
        with path.open(encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        if "cell" in records[0]:
            return {record["cell"]: record for record in records}
        return dict(_scores(read_results([path])))


@dataclass(frozen=True)
class Score:
    """Score of a method, with the settings of its first line."""

    figure: Figure
    settings: Mapping[str, Any]

    def part(self, part: str) -> Number | str | None:
        """Return a part of a score or one of its settings; an interval and the scores of training
        runs are text.
        """
        figure = self.figure
        if part in ("value", "low", "high", "sd", "n"):
            return figure.part(part)
        if part == "interval" and figure.interval is not None:
            return ", ".join(end.shown for end in figure.interval)
        if part == "runs" and figure.known is not None:
            runs = (replace(figure, value=value).part("value") for value in figure.known.runs)
            return ", ".join(run.shown for run in runs if run is not None)
        return _of_record(self.settings, part)


def _scores(results: Results) -> Iterator[tuple[str, Score]]:
    """Yield the score of each method, metric and language, and the means over languages."""
    subjects = find_subjects(results)
    settings = {escape_source(line.source): line.settings for line in results.records}
    short = {question: name for name, question in METRICS.items()}
    for question in sort_questions(results.records, subjects)[0]:
        metric = short.get((question.task, question.metric))
        for subject in question.subjects if metric else ():
            row = f"{subject.label.replace(' · ', ' ')}/{metric}"
            figures = {
                column.lang: question.cells.get((subject, column)) for column in question.columns
            }
            figures["mean"] = question.mean(subject)
            for language, figure in figures.items():
                if figure is not None:
                    source = figure.sources[0].partition("+")[0]
                    yield f"{row}/{language}", Score(figure, settings[source])


def _of_record(record: Mapping[str, Any], part: str) -> Number | str | None:
    """Return a value of a record; a number has as many decimals as in the file."""
    value = record.get(part)
    if value is None or isinstance(value, str):
        return value
    decimals = len(repr(value).partition(".")[2])
    return Number(value, "record", (), whole=isinstance(value, int), digits=decimals)


# -- blocks ----------------------------------------------------------------------------------------
Block = Callable[[Cells], str]


@dataclass(frozen=True)
class Grid:
    """Table whose cells follow one template.

    Attributes:
        corner: header of the first column.
        columns: key of each column, or the template of its cells, by its header.
        rows: key of each row, by its label.
        cell: template of a cell. `{row}` and `{column}` are keys of the row and the column, and
            `<KEY>` is the text of a cell.
        others: templates of rows that have other cells, by label.
        sizes: template of a last row, "unseen pairs", that is empty in the column `mean`.
        best: whether the best cell of each `row` or `column` is bold; in rows, columns with their
            own template are not compared.
        lower: labels of rows or columns with an error rate; True if every cell is one.
    """

    corner: str
    columns: Mapping[str, str]
    rows: Mapping[str, str]
    cell: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    sizes: str = ""
    best: str = ""
    lower: bool | tuple[str, ...] = ()

    def __call__(self, cells: Cells) -> str:
        """Return the table in Markdown; columns of numbers are right-aligned."""
        table: dict[str, dict[str, str]] = {}
        for label, row in self.rows.items():
            table[label] = {
                header: filled(self._template(label, column).format(row=row, column=column), cells)
                for header, column in self.columns.items()
            }
        if self.best == "row":
            compared = [header for header, column in self.columns.items() if "<" not in column]
            for label, texts in table.items():
                _mark_best(texts, compared, lower=self._lower(label))
        elif self.best == "column":
            for header in self.columns:
                texts = {label: row[header] for label, row in table.items()}
                _mark_best(texts, list(texts), lower=self._lower(header))
                for label, marked in texts.items():
                    table[label][header] = marked
        if self.sizes:
            table["unseen pairs"] = {
                header: "" if column == "mean" else filled(self.sizes.format(column=column), cells)
                for header, column in self.columns.items()
            }
        rules = [
            "---:" if all(_is_number(row[header]) for row in table.values()) else "---"
            for header in self.columns
        ]
        return "\n".join(
            [
                _row([self.corner, *self.columns]),
                "|".join(["", "---", *rules, ""]),
                *(_row([label, *texts.values()]) for label, texts in table.items()),
            ]
        )

    def _template(self, label: str, column: str) -> str:
        return column if "<" in column else self.others.get(label, self.cell)

    def _lower(self, name: str) -> bool:
        return self.lower if isinstance(self.lower, bool) else name in self.lower


def _mark_best(texts: dict[str, str], compared: Sequence[str], *, lower: bool) -> None:
    """Make the best numbers bold, without their intervals and standard deviations."""
    values = {name: float(_DECIMAL.findall(texts[name])[0]) for name in compared}
    best = (min if lower else max)(values.values())
    for name, value in values.items():
        if value == best:
            texts[name] = re.sub(r"^(.+?)(?= \[| ±|$)", r"**\1**", texts[name])


def _is_number(text: str) -> bool:
    return text.lstrip("*")[:1].isdigit() or not text


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def filled(template: str, cells: Cells) -> str:
    """Return a template in which every `<KEY>` is replaced by the text of its cell."""
    return _FIELD.sub(lambda key: cells[key[1]], template)


def text(template: str) -> Block:
    """Return a block of text with keys."""
    return lambda cells: filled(template, cells)


def output(name: str, lines: int | None = None) -> Block:
    """Return a block with the first lines of the printed output of a command."""
    return lambda cells: "\n".join(["```", *cells.text(name).splitlines()[:lines], "```"])


# -- documents -------------------------------------------------------------------------------------
PLOT = ROOT / "docs" / "images" / "gemma.svg"


def documents() -> list[Path]:
    """Return all documents that may contain numbers with keys, and the plot."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), PLOT]


def rewritten(path: Path, cells: Cells) -> str:
    """Return a document with all blocks and numbers filled in.

    Raises:
        KeyError: a marker names an unknown block or cell.
    """
    if path == PLOT:
        return gemma_plot(cells)
    document = path.read_text(encoding="utf-8")
    document = _BLOCK.sub(
        lambda found: f"{found['start']}\n{BLOCKS[found['name']](cells)}\n\n{found['end']}",
        document,
    )
    return _KEYED.sub(lambda found: f"{_in_prose(found, cells)}{found['key']}", document)


def _in_prose(found: re.Match[str], cells: Cells) -> str:
    value = cells[found[3]]
    return f"`{value}`" if found["old"].startswith("`") else value


def differences(cells: Cells, paths: Iterable[Path]) -> Iterator[str]:
    """Yield a unified diff of each document that differs from the results."""
    for path in paths:
        document = path.read_text(encoding="utf-8")
        yield from difflib.unified_diff(
            document.splitlines(),
            rewritten(path, cells).splitlines(),
            f"{path.name}",
            f"{path.name}, from docs/results",
            lineterm="",
            n=0,
        )


# -- result files ----------------------------------------------------------------------------------
#: metrics of each file whose means over languages have intervals in a document; these intervals are
#: computed from the bootstrap samples of all languages
WITH_SAMPLES = {
    "real": ("unseen", "all", "type-level", "sentences", "alignment error", "same word", "tagging"),
    "sentences": ("sentences",),
}
#: keys of a score that are kept
KEPT = (
    *("task", "data", "languages", "metric", "value", "low", "high", "n", "seed", "percent"),
    *("runs", "texts", "encoder", "layer", "method", "supervision", "training_seed"),
)


def keep(name: str, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the lines of docs/results/NAME.jsonl for the output of a command.

    The lines of scores lack metrics that are not in `METRICS`, the folders of data files, settings
    that are lists or objects (except the scores of task heads and the record of the alignment), and
    bootstrap samples. Samples that are needed (`WITH_SAMPLES`) are kept with three decimals.
    """
    texts = [path.read_text(encoding="utf-8") for path in paths]
    if name in PARSERS:
        return [line for text in texts for line in PARSERS[name](text)]
    short = {question: metric for metric, question in METRICS.items()}
    lines = []
    for score in (json.loads(line) for text in texts for line in text.splitlines()):
        metric = short.get((score["task"], score["metric"]))
        if metric is not None:
            line = _shortened(score)
            if metric in WITH_SAMPLES.get(name, ()):
                line["resamples"] = [round(value, 3) for value in score["resamples"]]
            lines.append(line)
    return lines


def _shortened(score: Mapping[str, Any]) -> dict[str, Any]:
    settings = score["settings"]
    aligned = settings.get("aligned")
    if "method" not in score:  # `calque evaluate` records the method in the settings of the encoder
        score = {
            **score,
            "encoder": aligned["base"] if aligned else settings["encoder"],
            "method": aligned["method"] if aligned else "base",
            "training_seed": aligned["seed"] if aligned else None,
        }
    line = {name: score[name] for name in KEPT if name in score}
    line["data"] = Path(score["data"]).name
    line["settings"] = {
        name: value
        for name, value in settings.items()
        if name in ("aligned", "values", "warnings") or not isinstance(value, list | dict)
    }
    return line


def _aligners(text: str) -> Iterator[dict[str, Any]]:
    """Yield the error rates that `python -m benchmarks.aligners` prints."""
    test_set = ""
    for line in text.splitlines():
        if found := re.fullmatch(
            r"(\S+)\.tsv: ([\d,]+) sentence pairs, ([\d,]+) additional .*", line
        ):
            test_set = found[1]
            pairs = sum(int(found[group].replace(",", "")) for group in (2, 3))
            yield {"cell": f"{test_set}/pairs", "value": pairs}
        elif found := re.fullmatch(r"(.+?)  +(\S+) +([\d.]+) +\((.+)\)", line):
            yield {
                "cell": f"{test_set}/{found[1]}/{found[2]}",
                "value": float(found[3]),
                "runs": [float(value) for value in found[4].split(", ")],
            }


def _memory(text: str) -> Iterator[dict[str, Any]]:
    """Yield the peak memory in MiB that `python -m benchmarks.memory` prints."""
    for command, sentences, peak in re.findall(r"^\| (\w+) \| ([\d,]+) \| (\d+) MiB", text, re.M):
        yield {"cell": f"{command}/{sentences}", "value": int(peak)}


def _layers(text: str) -> Iterator[dict[str, Any]]:
    """Yield the accuracies by layer that `calque evaluate … retrieval --layers all` prints."""
    language = re.findall(r"en-(\w+)$", text.splitlines()[0])[0]
    names = {"accuracy.unseen": "unseen", "accuracy.all": "all", "form.all": "type-level"}
    header = text.splitlines()[1].split()[1:]
    for layer, values in re.findall(r"^[ *]+(\d+)((?: +\d+\.\d+)+)$", text, re.M):
        for metric, value in zip(header, values.split(), strict=True):
            if metric in names:
                yield {"cell": f"{language}/{layer}/{names[metric]}", "value": float(value)}


def _neighbours(text: str) -> Iterator[dict[str, Any]]:
    """Yield the cosines of a table of `calque neighbours`."""
    sentence = text.splitlines()[0]
    for part in text.split("nearest in ")[1:]:
        when = re.findall(r"(before|after) alignment", part)[0]
        for word, before, after in re.findall(r"^ +\d+ +(\S+) +([\d.]+) → +([\d.]+)", part, re.M):
            yield {
                "cell": f"{when}/{word}",
                "value": float(before if when == "before" else after),
                "sentence": sentence,
            }


def _fuzz(text: str) -> Iterator[dict[str, Any]]:
    """Yield the numbers of corrupt files that `python dev/fuzz_readers.py` prints, and their sums."""
    counts = re.findall(
        r"^(.+): \{'refused': (\d+), 'accepted': (\d+), 'failed': (\d+)\}$", text, re.M
    )
    names = ("refused", "accepted", "failed")
    for reader, *numbers in counts:
        yield {"cell": reader, **dict(zip(names, map(int, numbers), strict=True))}
    sums = {name: sum(int(line[k]) for line in counts) for k, name in enumerate(names, 1)}
    yield {"cell": "all", "value": sum(sums.values()), **sums}


def _speed(text: str) -> Iterator[dict[str, Any]]:
    """Yield ratios of processor times that `python -m benchmarks.encode` and `csls` print."""
    for loop, ratio in re.findall(r"as fast as (.+?) \(.*; ([\d.]+) in processor time\)", text):
        yield {"cell": loop, "value": float(ratio)}
    for ratio in re.findall(r"^CSLS .*, ([\d.]+) times its processor time", text, re.M):
        yield {"cell": "CSLS", "value": float(ratio)}


def _trial(text: str) -> Iterator[dict[str, Any]]:
    """Yield the mean scores and gains, in points, of `verdict.json` of `calque try`."""
    verdict = json.loads(text)
    for comparison in verdict["comparisons"]:
        row = f"{verdict['task']}/{comparison['use']}/{comparison['method']}"
        mean, source = comparison["mean"], comparison["source"]
        gains = {"gain": mean, **comparison["by_language"], "source": source}
        for name in ("base", "aligned"):
            yield {"cell": f"{row}/{name}", "value": round(100 * comparison[name], 1)}
        for name, gain in gains.items():
            if gain is not None:
                ends = (f"{100 * gain[end]:.1f}".replace("-", "−") for end in ("low", "high"))
                yield {
                    "cell": f"{row}/{name}",
                    "value": round(100 * gain["value"], 1),
                    "interval": ", ".join(ends),
                    "outcome": gain["outcome"],
                }


PARSERS: Mapping[str, Callable[[str], Iterator[dict[str, Any]]]] = {
    "aligners": _aligners,
    "memory": _memory,
    "layers": _layers,
    "neighbours": _neighbours,
    "fuzz": _fuzz,
    "speed": _speed,
    "trial": _trial,
}


# -- tables of the documents -----------------------------------------------------------------------
_GEMMA = {
    "as published": "base",
    "standardised": "standardized 2k",
    "contrastive": "contrastive 2k",
    "rotation": "rotation 10k",
    "Cao's loss": "finetune 2k",
}
_ERROR_RATE = "word alignment error rate (lower is better)"


def _gemma(*names: str) -> dict[str, str]:
    return {name: _GEMMA[name] for name in names}


BLOCKS: Mapping[str, Block] = {
    # README.md, docs/index.md
    "plot": text(
        "![Gemma 3 270M in four languages: before alignment, word retrieval finds "
        "<real/base/unseen/mean:.0f>% of the word pairs that the training text does not link; after "
        "training on 286 sentence pairs per language, <real/contrastive 2k/unseen/mean:.0f>%]"
        "(docs/images/gemma.svg)"
    ),
    "gemma, short": Grid(
        corner="Gemma 3 270M, means over the other languages (%)",
        columns=_gemma("as published", "standardised", "rotation", "contrastive"),
        rows={
            "nearest word is the translation, unseen pairs": "unseen",
            "sentence retrieval": "sentences",
            _ERROR_RATE: "alignment error",
            "part-of-speech tagging, trained on English only": "tagging",
        },
        cell="<real/{column}/{row}/mean>",
        best="row",
        lower=(_ERROR_RATE,),
    ),
    "gemma, expected": Grid(
        corner="",
        columns={
            "as published": "base",
            "rotation, 10,003 pairs": "rotation 10k",
            "contrastive, 2,002 pairs": "contrastive 2k",
        },
        rows={
            "nearest word is the translation, unseen pairs": "unseen",
            "sentence retrieval": "sentences",
            "part-of-speech tagging": "tagging",
        },
        cell="<real/{column}/{row}/mean>",
    ),
    "demo, first table": output("demo", lines=6),
    # docs/tutorial.md
    "demo": output("demo"),
    "tutorial": output("tutorial"),
    # docs/results.md
    "gemma": Grid(
        corner="",
        columns=_GEMMA,
        rows={
            "word retrieval, unseen pairs": "unseen/mean",
            "word retrieval, all linked words": "all/mean",
            "type-level retrieval, all linked words": "type-level/mean",
            "sentence retrieval": "sentences/mean",
            _ERROR_RATE: "alignment error/mean",
            "consistency of English words": "same word/en",
            "part-of-speech tagging, four languages": "tagging/mean",
            "… English": "tagging/en",
        },
        cell="<real/{column}/{row}> [<real/{column}/{row}/interval>]",
        others={"… English": "<real/{column}/{row}> ± <real/{column}/{row}/sd>"},
        best="row",
        lower=(_ERROR_RATE,),
    ),
    "gemma, by language": Grid(
        corner="unseen / all",
        columns={"de": "de", "zh": "zh", "tr": "tr", "ru": "ru", "mean": "mean"},
        rows=_gemma("as published", "standardised", "contrastive", "rotation", "Cao's loss"),
        cell="<real/{row}/unseen/{column}> / <real/{row}/all/{column}>",
        sizes="<real/base/unseen/{column}/n>",
    ),
    "gemma, word alignment": Grid(
        corner="",
        columns={"bg": "bg", "es": "es", "ru": "ru"},
        rows={
            "Gemma as published": "base",
            "standardised": "standardized 2k",
            "rotation": "rotation 10k",
            "Cao's loss": "finetune 2k",
            "contrastive, three training runs": "contrastive 2k",
            "calque's statistical aligner (Gibbs)": "calque, gibbs",
            "eflomal": "eflomal",
        },
        cell="<real/{row}/alignment error/{column}>",
        others={
            "contrastive, three training runs": (
                "<real/{row}/alignment error/{column}> ± <real/{row}/alignment error/{column}/sd>"
            ),
            "calque's statistical aligner (Gibbs)": (
                "<aligners/xlwa.dev.en-{column}/{row}/intersection>"
            ),
            "eflomal": "<aligners/xlwa.dev.en-{column}/{row}/intersection>",
        },
        best="column",
        lower=True,
    ),
    "trial": Grid(
        corner="part-of-speech tagging, mean of de and tr",
        columns={
            "published": "<trial/{row}/base>",
            "aligned": "<trial/{row}/aligned>",
            "gain": "<trial/{row}/gain> [<trial/{row}/gain/interval>]",
            "gain in English": "<trial/{row}/source> [<trial/{row}/source/interval>]",
        },
        rows={
            "output layer": "pos/frozen/contrastive",
            "mixture of all layers": "pos/mixed/contrastive",
        },
    ),
    "separate": Grid(
        corner="",
        columns={"unseen": "unseen", "all": "all", "type-level, all": "type-level"},
        rows={
            "two encoders as published": "base",
            "rotation, parallel text (Kulshreshtha)": "rotation parallel",
            "normalised rotation, parallel text (Kulshreshtha)": "normalized-rotation parallel",
            "sentence rotation, parallel text (Kulshreshtha)": "sentence-rotation parallel",
            "rotation, dictionary, refined (Schuster)": "rotation, dictionary dictionary",
            "normalised rotation, dictionary, refined": "normalized rotation, dictionary dictionary",
        },
        cell="<separate/{row}/{column}/fr> [<separate/{row}/{column}/fr/interval>]",
        best="column",
    ),
    "minilm": Grid(
        corner="",
        columns={
            "all, before": "<minilm/base/all/{row}> [<minilm/base/all/{row}/interval>]",
            "all, aligned": "<minilm/contrastive/all/{row}/runs>",
            "unseen, before": "<minilm/base/unseen/{row}> [<minilm/base/unseen/{row}/interval>]",
            "unseen, aligned": "<minilm/contrastive/unseen/{row}/runs>",
        },
        rows={"en-es": "es", "en-de": "de"},
    ),
    "text sizes": Grid(
        corner="training pairs",
        columns={
            "base": "<text-sizes/base/unseen/de> / <text-sizes/base/all/de>",
            "rotation": "rotation",
            "Cao's loss": "finetune",
            "contrastive": "contrastive",
        },
        rows={"1,000": "1k", "3,000": "3k", "10,000": "10k"},
        cell="<text-sizes/{column} {row}/unseen/de> / <text-sizes/{column} {row}/all/de>",
        best="row",
    ),
    "aligners": Grid(
        corner="set",
        columns={
            "pairs": "<aligners/{row}/pairs>",
            "eflomal": "eflomal",
            "calque, fast_align model": "calque, fast-align",
            "calque, HMM": "calque, hmm",
            "calque, Gibbs": "calque, gibbs",
        },
        rows={
            "XL-WA en-hu": "xlwa.dev.en-hu",
            "ro-en": "gold.ro-en",
            "ja-en": "gold.ja-en",
            "XL-WA en-es +": "xlwa.dev.en-es",
            "XL-WA en-ru +": "xlwa.dev.en-ru",
            "XL-WA en-bg +": "xlwa.dev.en-bg",
        },
        cell=(
            "<aligners/{row}/{column}/intersection> / <aligners/{row}/{column}/grow-diag-final-and>"
        ),
        best="row",
        lower=True,
    ),
    "sentences": Grid(
        corner="",
        columns={
            **{lang: lang for lang in ("de", "es", "fr", "zh", "bg", "tr", "ru")},
            "mean": "<sentences/{row}/sentences/mean> [<sentences/{row}/sentences/mean/interval>]",
        },
        rows={
            "`mini`": "mini base",
            "`mini`, contrastive": "mini contrastive",
            "all-MiniLM-L6-v2 (English)": "all-MiniLM-L6-v2 base",
        },
        cell="<sentences/{row}/sentences/{column}>",
        others={
            "`mini`, contrastive": (
                "<sentences/{row}/sentences/{column}> ± <sentences/{row}/sentences/{column}/sd>"
            )
        },
        best="column",
    ),
    "memory": Grid(
        corner="MiB",
        columns={
            "`encode`": "encode",
            "`anchors`": "anchors",
            "`align`": "align",
            "`evaluate … retrieval`": "retrieval",
            "`words` (HMM)": "words",
        },
        rows={"10,000 sentences": "10,000", "30,000 sentences": "30,000"},
        cell="<memory/{column}/{row}>",
    ),
    # docs/guides/real.md
    "layers": Grid(
        corner="layer",
        columns={"en-de": "de", "en-zh": "zh"},
        rows={
            "0": "0",
            "4": "4",
            "8": "8",
            "10": "10",
            "**11** (chosen)": "11",
            "12 (default)": "12",
            "14": "14",
            "16": "16",
            "18 (last)": "18",
        },
        cell=(
            "<layers/{column}/{row}/unseen:.1f> / <layers/{column}/{row}/all:.1f> / "
            "<layers/{column}/{row}/type-level:.1f>"
        ),
        best="column",
    ),
    # docs/guides/numbers.md
    "power": Grid(
        corner="difference in points",
        columns={"2": "2", "5": "5", "10": "10", "15": "15"},
        rows={"3 runs": "3 runs", "5 runs": "5 runs", "10 runs": "10 runs"},
        cell="<measured/power/{row}/{column}>%",
    ),
    # docs/methods/senses.md
    "senses": Grid(
        corner="text",
        columns={
            "model": "<senses/{row}/model>",
            "used for selection": "<senses/{row}/selection>",
            "V-measure": "<senses/{row}>",
            "whole control words, %": "<senses/{row}/whole>",
            "control occurrences in the largest sense, %": "<senses/{row}/largest>",
        },
        rows={
            "English A, 40 pseudo-words, 80 controls": "English A/ELMo",
            "English A": "English A/BERT",
            "English B, 30 pseudo-words, 60 controls": "English B/ELMo",
            "English B": "English B/BERT",
            "German, 30 pseudo-words, 60 controls": "German/ELMo",
            "German": "German/BERT",
            "French, 30 pseudo-words, 30 controls": "French/ELMo",
            "French": "French/BERT",
        },
    ),
    "senses from training": Grid(
        corner="model",
        columns={
            "senses": "<senses/{row}/senses>",
            "V-measure": "<senses/{row}>",
            "control occurrences in the largest sense, %": "<senses/{row}/largest>",
        },
        rows={
            "ELMo trained with senses": "training/ELMo",
            "ELMo trained with senses, with the paper's settings": "training/ELMo, paper",
            "BERT trained with senses": "training/BERT",
            "the ELMo of the first row": "training/ELMo, k-means",
            "ELMo trained without senses": "training/ELMo without senses, k-means",
        },
    ),
    "senses, detection": Grid(
        corner="model",
        columns={"cosine": "cosine", "log-odds": "log-odds"},
        rows={
            "English ELMo": "detection/English ELMo",
            "English BERT": "detection/English BERT",
            "German ELMo (not used for selection)": "detection/German ELMo",
        },
        cell="<senses/{row}/{column}:.2f>",
    ),
}


# -- the plot of README.md -------------------------------------------------------------------------
_BARS = {
    "as published": ("base", "#b8bdc6"),
    "standardised, no training": ("standardized 2k", "#6fa8a8"),
    "trained on 286 sentence pairs of each language": ("contrastive 2k", "#0b6b6b"),
}
_GROUPS = {"Russian": "ru", "German": "de", "Turkish": "tr", "Chinese": "zh", "mean": "mean"}
_INK, _GREY = 'fill="#1b1f24"', 'fill="#59626e"'
_HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 372" \
font-family="system-ui,Segoe UI,Helvetica,Arial,sans-serif" role="img" \
aria-label="Word retrieval with Gemma 3 270M in four languages: \
BASE per cent of unseen word pairs as published, ALIGNED after alignment">
<rect width="920" height="372" fill="#fff"/>
<text x="14" y="26" font-size="17" font-weight="600" {_INK}>\
Gemma 3 270M: the nearest word in the other language is the translation</text>
<text x="14" y="46" font-size="13" {_GREY}>\
per cent of English words and back, word pairs that the training text does not link, \
among all words of 300 sentences</text>"""


def gemma_plot(cells: Cells) -> str:
    """Return the SVG of word retrieval on unseen pairs, with a group of bars for each language."""

    def accuracy(method: str, language: str, form: str = ".6f") -> str:
        return cells[f"real/{method}/unseen/{language}:{form}"]

    head = _HEAD.replace("BASE", accuracy("base", "mean", ".0f"))
    parts = [head.replace("ALIGNED", accuracy("contrastive 2k", "mean", ".0f"))]
    for x, (label, (_, colour)) in zip((14, 130.4, 340.4), _BARS.items(), strict=True):
        parts.append(
            f'<rect x="{x}" y="60" width="12" height="12" rx="2" fill="{colour}"/>'
            f'<text x="{x + 18:g}" y="70.5" font-size="13" {_INK}>{label}</text>'
        )
    bottom, pixels = 312, 2.75  # y of 0%, and height of a percentage point
    for percentage in range(0, 81, 20):
        y = bottom - pixels * percentage
        parts.append(
            f'<line x1="46" x2="906" y1="{y}" y2="{y}" stroke="#e3e6ea"/>'
            f'<text x="40" y="{y + 4}" font-size="12" text-anchor="end" {_GREY}>{percentage}</text>'
        )
    for group, (label, language) in enumerate(_GROUPS.items()):
        for bar, (method, colour) in enumerate(_BARS.values()):
            x, height = 62 + 172 * group + 48 * bar, pixels * float(accuracy(method, language))
            parts.append(
                f'<rect x="{x}" y="{bottom - height:.1f}" width="44" height="{height:.1f}" rx="2" '
                f'fill="{colour}"/>\n'
                f'<text x="{x + 22}" y="{bottom - height - 5:.1f}" font-size="11.5" '
                f'text-anchor="middle" {_INK}>{accuracy(method, language, ".0f")}</text>'
            )
        weight = 600 if language == "mean" else 400
        parts.append(
            f'<text x="{132 + 172 * group}" y="332" font-size="13" text-anchor="middle" '
            f'font-weight="{weight}" {_INK}>{label}</text>'
        )
    note = (
        "Layer 11 of 18; mean of three training runs, each about "
        "<measured/gemma/contrastive training> minutes on one core. Search by CSLS; "
        "<real/base/unseen/zh/n> to <real/base/unseen/tr/n> word pairs per language."
    )
    parts.append(f'<text x="14" y="358" font-size="12" {_GREY}>{filled(note, cells)}</text></svg>')
    return "\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="list differences, change nothing")
    commands = parser.add_subparsers(dest="command")
    adding = commands.add_parser("keep", help="write docs/results/NAME.jsonl")
    adding.add_argument("name")
    adding.add_argument("paths", nargs="+", type=Path, help="output of the command")
    options = parser.parse_args(arguments)
    try:
        return run(options)
    except KeyError as error:
        print(f"dev/results.py: {error.args[0]}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    if options.command == "keep":
        lines = [
            json.dumps(line, ensure_ascii=False, separators=(",", ":"))
            for line in keep(options.name, options.paths)
        ]
        (FOLDER / f"{options.name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return 0
    cells = Cells()
    if options.check:
        found = list(differences(cells, documents()))
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    for path in documents():
        path.write_text(rewritten(path, cells), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
