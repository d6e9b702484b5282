"""Run the recipe for the tables of Multi-sense with small models and artificial text."""

import gzip
import tomllib
from pathlib import Path

import numpy as np
import pytest

from calque.report.study_tables import tables
from calque.runs.study import study
from planted import labelled, tagged, words, write_tags
from toml_text import toml_file

pytestmark = pytest.mark.filterwarnings("ignore::calque.tasks.overlap.OverlapWarning")

RECIPE = Path(__file__).parents[2] / "recipes" / "multisense.toml"
SMALL = {
    "elmo": {"dim": 4, "hidden": 6, "filters": [[1, 4], [2, 4]], "vocabulary": 30, "negatives": 8},
    "bert": {
        "dim": 8,
        "layers": 1,
        "heads": 2,
        "inner": 8,
        "vocabulary": 60,
        "length": 16,
        "positions": 32,
    },
}
BILINGUAL = ("ELMo-of-each", "Joint-ELMo", "Bi-SaELMo")


def small(plan):
    """Shrink the models and the training runs in the plan."""
    plan["seeds"] = 1
    for encoder in plan["encoders"].values():
        how = encoder["pretrain"]
        how |= {**SMALL[how["model"]], "updates": 4, "batch": 8, "held_out": 6}
        encoder |= {"runs": 2} if "runs" in encoder else {}
        if "senses" in how:
            how["senses"] = {"senses": how["senses"], "axes": 2, "warmup": 2, "occurrences": 1}
    plan["supervision"]["dictionary"] |= {"limit": 40}
    for task in plan["tasks"].values():
        task |= (
            {"seeds": 1, "epochs": 1, "hidden": 4}
            if "methods" not in task and task["train"][0][:3] != "wsd"
            else {}
        )
    return plan


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_senses(folder, name, ending, lemmas):
    """Write one-word sentences annotated with the sense LEMMA%1."""
    rows = [
        f'<sentence><instance id="i{k}" lemma="{lemma}" pos="NOUN">{lemma}</instance><wf>.</wf></sentence>'
        for k, lemma in enumerate(lemmas)
    ]
    write(folder / f"{name}.data.xml{ending}", f"<corpus>{''.join(rows)}</corpus>")
    write(
        folder / f"{name}.gold.key.txt{ending}",
        "".join(f"i{k} {lemma}%1\n" for k, lemma in enumerate(lemmas)),
    )


@pytest.fixture
def data(tmp_path):
    """Write all files that the recipe reads."""
    rng = np.random.default_rng(0)
    for lang in ("en", "de", "fr"):
        text = [*words(rng, 70, lang, 2), ["same", "word"], ["word"]]
        write(tmp_path / f"mono/{lang}.txt.gz", "".join(" ".join(line) + "\n" for line in text))
        write(
            tmp_path / f"dict/train.en-{lang}.tsv",
            "".join(f"e{k}\t{lang[0]}{k}\n" for k in range(9)),
        )
        (tmp_path / "ner").mkdir(exist_ok=True)
        for part, n in (("train", 40), ("dev", 12)):
            write_tags(tagged(n, lang, n), tmp_path / f"ner/panx.{part}.{lang}.tsv")
            mood = labelled(2 * n, lang, n).data
            code = {"bad": 0, "good": 2}
            rows = [
                f"{code[mood.labels[k]] if k % 5 else 1}\t{' '.join(text.words)}\n"
                for k, text in enumerate(mood.texts[0])
            ]
            write(
                tmp_path / f"sentiment/umsab.{'val' if part == 'dev' else part}.{lang}.tsv",
                "".join(rows),
            )
        pairs = labelled(40, lang, pairs=True).data
        columns = [[" ".join(text.words) for text in side] for side in pairs.texts]
        labels = [{"yes": "entailment", "no": "neutral"}[pairs.labels[k]] for k in range(40)]
        rows = list(zip(*columns, labels, strict=True))
        write(tmp_path / f"nli/xnli.dev.{lang}.tsv", "".join("\t".join(row) + "\n" for row in rows))
        if lang == "en":
            head = "pair_ID\tsentence_A\tsentence_B\tentailment_label\n"
            write(
                tmp_path / "nli/sick_en_nl.tsv",
                head + "".join(f"{k}\t{a}\t{b}\t{c.upper()}\n" for k, (a, b, c) in enumerate(rows)),
            )
    write_senses(tmp_path / "wsd", "semcor", ".gz", ["e1", "e2", "e1"])
    write_senses(tmp_path / "wsd", "semeval2007", "", ["e2", "e1", "e5"])
    return tmp_path


def test_no_task_of_the_recipe_selects_epochs_on_its_test_text():
    tasks = tomllib.loads(RECIPE.read_text(encoding="utf-8"))["tasks"]
    assert not [
        name
        for name, task in tasks.items()
        if {*task["train"], *task.get("dev", ())} & set(task["test"])
    ]


@pytest.mark.filterwarnings("ignore:all scores of Proj are identical")
def test_the_recipe_produces_every_row_of_every_table(data):
    pytest.importorskip("h5py")
    plan = data / "small.toml"
    plan.write_text(
        toml_file(small(tomllib.loads(RECIPE.read_text(encoding="utf-8")))), encoding="utf-8"
    )
    said = []
    records = study(plan, data=data, out=data / "out", say=said.append)
    # 8 runs for Table 2 (two per row, one of which is reused), 2 for the other languages, and 2 for
    # each of two language pairs.
    assert "pretraining: 14 of 14 steps to do" in said
    assert "aligning: 5 of 5 steps to do" in said
    rows = {}
    for record in records:
        rows.setdefault(record["task"], set()).add(
            (record["encoder"], record["method"], record["training_seed"])
        )
    four = ("ELMo", "SaELMo", "BERT", "SaBERT")
    assert rows["wsd"] == {(name, "base", seed) for name in four for seed in (0, 1)}
    transferred = {("English-ELMo", "base", None)} | {
        (name, how, None) for name in BILINGUAL for how in ("base", "Proj")
    }
    for task in ("ner", "sentiment", "nli"):
        assert rows[task] == transferred
        for row in transferred:
            tested = {
                r["languages"][-1]
                for r in records
                if r["task"] == task and (r["encoder"], r["method"], None) == row
            }
            assert {"de", "fr"} <= tested
    pairs = {
        (r["method"], r["languages"][-1]): r["settings"]["encoder_fingerprint"]
        for r in records
        if r["task"] == "ner" and r["encoder"] == "Bi-SaELMo" and r["languages"][-1] != "en"
    }
    assert len(pairs) == len(set(pairs.values())) == 4  # each language uses its own encoder
    assert {name for name, *_ in rows["language-model"]} == {*four, "English-ELMo", *BILINGUAL}
    shown = tables(records)
    assert "| Bi-SaELMo · Proj |" in shown
    # Maps also use words that occur in both languages: "same", "word" and the full stop.
    fits = sorted((data / "out" / "steps").glob("fit-*/calque-run.json"))
    assert len(fits) == 5
    assert all('"identical": true' in fit.read_text(encoding="utf-8") for fit in fits)
