"""Tests of studies: steps run once, are resumed, and rerun when inputs change; workers; tables of
results.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import forked
from calque.encoders import load_encoder
from calque.errors import InputError, SettingError
from calque.report.content import compose
from calque.report.reading import read_results
from calque.report.study_tables import bullets, tables
from calque.runs.compare import mean_over_tests
from calque.runs.steps import Step, Steps
from calque.runs.study import read_study, study, working
from calque.runs.study.grid import Grid
from calque.runs.study.work import WORK, encoder_of
from calque.text import Sentences
from command import works
from planted import tagged, trees, words, write_tags, write_translations, write_trees

# Training and test texts overlap because the planted texts are small, which does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::calque.tasks.overlap.OverlapWarning")

PLAN = """
seeds = 1
runs = 1
[encoders]
tiny = "{encoder}"

[methods.base]
[methods.rotation]
[methods.quick]
method = "contrastive"
epochs = 1
batch = 4
held_out = 0.0

[supervision.parallel]
de = "train.tsv"

[tasks.ner]
train = ["ner.train.en.tsv"]
test = ["de=ner.test.de.tsv", "ner.test.es.tsv"]
epochs = 1
hidden = 8

[tasks.retrieval]
test = {{ de = "train.tsv" }}
train = {{ de = "train.tsv" }}
"""


@pytest.fixture
def plan(tmp_path, tiny_folder):
    write_tags(tagged(40, "en"), tmp_path / "ner.train.en.tsv")
    for lang in ("de", "es"):
        write_tags(tagged(12, lang, 1), tmp_path / f"ner.test.{lang}.tsv")
    write_translations(tmp_path / "train.tsv")
    path = tmp_path / "study.toml"
    path.write_text(PLAN.format(encoder=tiny_folder))
    return path


def test_every_step_runs_only_once(plan):
    said = []
    records = study(plan, say=said.append)
    assert [line.partition(":")[2] for line in said if "to do" in line] == [
        f" {n} of {n} steps to do" for n in (1, 2, 6)
    ]
    assert len({(r["method"], r["task"]) for r in records}) == 6
    folder = plan.parent / "study"
    first = (folder / "results.jsonl").read_text()
    said.clear()
    assert study(plan, say=said.append) == records
    assert [line.split()[1] for line in said] == ["0", "0", "0"]
    assert (folder / "results.jsonl").read_text() == first
    # Changing a setting of one method reruns only the steps of that method; a renamed folder is
    # reused.
    plan.write_text(plan.read_text().replace("batch = 4", "batch = 8"))
    folder.rename(plan.parent / "moved")
    said.clear()
    study(plan, out=plan.parent / "moved", say=said.append)
    assert [line.partition(":")[2] for line in said if "to do" in line] == [
        f" {n} steps to do" for n in ("0 of 1", "1 of 2", "2 of 6")
    ]


def test_a_task_mixes_all_layers_of_every_row(plan):
    """Check that the layers in which a row is otherwise read do not limit the mixture, and that a
    pooling of the encoder is kept.
    """
    text = re.sub(
        'tiny = (".*")',
        r'tiny = { layers = [1, 2], pooling = "mean", path = \1 }',
        plan.read_text(),
    )
    text = text[: text.index("[tasks.retrieval]")].replace("[methods.quick]", "[methods.tuned]")
    plan.write_text(text + 'layers = "mix"\nhead = "linear"\n')
    found = {}
    for record in study(plan):
        settings = record["settings"]
        assert (settings["reading"], settings["read_pooling"]) == (
            "mix",
            None if record["method"] == "rotation" else "mean",
        )
        found.setdefault(record["method"], []).append(settings["read_layers"])
    assert {method: min(layers) for method, layers in found.items()} == {
        "base": [0, 1, 2, 3],
        "rotation": [1, 2],  # the mapped layers
        "tuned": [0, 1],  # the layers that an encoder tuned at layer 1 keeps
    }
    said = []
    study(plan, say=said.append)
    assert [line.split()[1] for line in said] == ["0", "0", "0"]
    plan.write_text(plan.read_text().replace('"mix"', '"best"'))
    assert {record["settings"]["reading"] for record in study(plan)} == {"best"}


def test_the_command_with_two_workers_gives_the_same_scores(plan, capsys, monkeypatch):
    def clean(kind):
        assert kind == "spawn"  # like spawned processes, these forks have not imported calque
        return forked.SERVER

    monkeypatch.setattr("calque.runs.study.get_context", clean)
    said, news = works(capsys, "study", plan, "--workers", 2)
    assert said.startswith("**Named entities: F1")
    assert said.splitlines()[2] == "| method | de | es | mean |"
    one = study(plan, data=plan.parent, out=plan.parent / "again")
    two = [
        json.loads(line)
        for line in (plan.parent / "study" / "results.jsonl").read_text().splitlines()
    ]

    def strip(records):
        return [
            (r["method"], r["data"].rpartition("/")[2], r["metric"], round(r["value"] or 0, 6))
            for r in records
        ]

    assert strip(one) == strip(two)


def test_trained_methods_are_run_with_several_seeds(plan):
    """Check that each training run has its own seed and scores, and that maps are fitted only
    once.
    """
    text = (
        plan.read_text().replace("runs = 1", "runs = 2").replace("batch = 4", "batch = 4\nseed = 5")
    )
    plan.write_text(
        text[: text.index("[tasks.ner]")] + '[tasks.retrieval]\ntest = {de = "train.tsv"}'
    )
    said = []
    records = study(plan, say=said.append)
    assert "aligning: 3 of 3 steps to do" in said
    seeds = {
        (r["method"], r["training_seed"]): r["settings"]["encoder_fingerprint"] for r in records
    }
    assert set(seeds) == {("base", None), ("rotation", None), ("quick", 5), ("quick", 6)}
    assert len(set(seeds.values())) == 4
    table = tables(records)
    assert (
        table.count("\n| quick |") == table.count("**Word retrieval: ") == 2
    )  # one table for tokens, one for types
    assert "aligning: 3 of 3 done (tiny, quick, seed 6)" in said
    assert {r["settings"]["encoder"] for r in records} == {
        "tiny, base",
        "tiny, rotation, parallel",
        "tiny, quick, parallel, seed 5",
        "tiny, quick, parallel, seed 6",
    }


def test_random_restarts_count_as_runs_with_distinct_seeds(own):
    own.write_text(
        own.read_text().replace("runs = 1", "runs = 2").replace("restarts = 1", "restarts = 4")
    )
    plan = read_study(own)
    assert plan.methods["distributions"].seeds(plan.runs) == [0, 4]
    assert plan.methods["rotation"].seeds(plan.runs) == [None]
    own.write_text(own.read_text().replace("runs = 2\n", "").replace("seeds = 1\n", ""))
    assert read_study(own).runs == 3  # the default
    assert (
        "seeds"
        not in Grid(read_study(own), Steps(own.parent, WORK))
        .phases["evaluating"][0]
        .settings["options"]
    )


def test_word_links_given_for_a_test_text_are_used(plan):
    text = plan.read_text()
    plan.write_text(
        text[: text.index("[methods.rotation]")]
        + text[text.index("[supervision") : text.index("[tasks.ner]")]
        + '[tasks.retrieval]\ntest = { de = "train.tsv" }\nlinks = { de = "given.align" }\n'
    )
    (plan.parent / "given.align").write_text("0-0\n" * 40)
    (record,) = [each for each in study(plan) if each["metric"] == "accuracy.all"]
    assert (record["settings"]["links"], record["n"]) == ("given", 40)
    plan.write_text(plan.read_text() + "pretokenized = true\n")
    (step,) = Grid(read_study(plan), Steps(plan.parent, WORK)).phases["evaluating"]
    assert step.settings["words"]["pretokenized"]


def test_each_layer_of_an_encoder_is_aligned_and_scored(plan):
    text = re.sub('tiny = (".*")', r"tiny = { layers = [0, 2], path = \1 }", plan.read_text())
    plan.write_text(text[: text.index("[tasks.ner]")] + text[text.index("[tasks.retrieval]") :])
    said = []
    records = study(plan, say=said.append)
    assert "aligning: 3 of 3 steps to do" in said  # a single step fits the maps of both layers
    assert "evaluating: 6 of 6 steps to do" in said
    chosen = [r for r in records if r["metric"] == "accuracy.all"]
    found = {(r["method"], r["layer"]): r["settings"]["encoder_fingerprint"] for r in chosen}
    assert set(found) == {
        (method, layer) for method in ("base", "rotation", "quick") for layer in (0, 2)
    }
    assert len(set(found.values())) == 6
    places = [
        p
        for p in (plan.parent / "study" / "steps").glob("align-*")
        if (p / "maps.safetensors").exists()
    ]
    mapped = load_encoder(places[0], layer=0)
    assert mapped.layers == (0,)
    assert found["rotation", 0] == mapped.fingerprint
    with pytest.raises(
        SettingError, match="layer must be one of the mapped layers 0, 2 of .*, got 1"
    ):
        load_encoder(places[0], layer=1)
    assert "\n| layer 2 · rotation |" in tables(records)


def test_methods_without_translations_accept_plain_or_parallel_text(plan):
    sides = [line.split("\t") for line in (plan.parent / "train.tsv").read_text().splitlines()]
    for number, lang in enumerate(("en", "de")):
        (plan.parent / f"{lang}.txt").write_text("".join(f"{side[number]}\n" for side in sides))
    text = plan.read_text()
    text = (
        text[: text.index("[methods.rotation]")]
        + text[text.index("[supervision") : text.index("[tasks.ner]")]
    )
    text += '[supervision.alone]\nkind = "text"\ntexts = { en = "en.txt", de = "de.txt" }\n'
    text += '[methods.shifted]\nmethod = "means"\noffset = false\n[methods.means]\nsupervision = "alone"\nlayers = [1]\n'
    plan.write_text(text + '[tasks.retrieval]\ntest = { de = "train.tsv" }\n')
    grid = Grid(read_study(plan), Steps(plan.parent / "steps", WORK))
    assert grid.phases["preparing"] == []  # no word links are needed
    assert [step.kind for step in grid.phases["aligning"]] == ["align", "plain", "plain"]
    WORK["plain"](grid.phases["aligning"][2], plan.parent / "made")
    made = load_encoder(plan.parent / "made")
    assert (made.settings["method"], made.layers) == ("means", (1,))


OWN = """
seeds = 1
runs = 1
[encoders.elmo]
layers = [0, 1, 2]
[encoders.elmo.pretrain]
model = "elmo"
apart = true
texts = { en = "en.txt", de = "de.txt" }
pretokenized = true
held_out = 6
dim = 4
hidden = 6
filters = [[1, 4], [2, 4]]
min_count = 1
updates = 3
batch = 8

[methods.base]
[methods.rotation]
refine = 1
[methods.distributions]
restarts = 1
start_options = { patience = 1, keep = 0.9 }

[supervision.dictionary]
kind = "dictionary"
entries = [0, 9]
texts = { en = "en.txt", de = "de.txt" }
pretokenized = true
limit = 60
de = "dict.tsv"

[supervision.nothing]
kind = "text"
texts = { en = "en.txt", de = "de.txt" }
pretokenized = true

[tasks.lexicon]
entries = [9, 12]
texts = { en = "en.txt", de = "de.txt" }
pretokenized = true
test = { de = "dict.tsv" }

[tasks.parsing]
train = ["en.conllu"]
test = ["en.conllu", "de.conllu"]
epochs = 1
hidden = 4
layers = 1
arc = 4
label = 4
upos = 2

[tasks.senses]
task = "wsd"
train = "en=train.data.xml"
test = ["en=test.data.xml"]
"""


def senses(folder, name, lemmas):
    """Write annotated words; the sense of each word is named after its lemma."""
    rows = [
        f'<sentence><instance id="i{k}" lemma="{lemma}" pos="NOUN">{lemma}</instance><wf>.</wf></sentence>'
        for k, lemma in enumerate(lemmas)
    ]
    (folder / f"{name}.data.xml").write_text(f"<corpus>{''.join(rows)}</corpus>")
    (folder / f"{name}.gold.key.txt").write_text(
        "".join(f"i{k} {lemma}%1\n" for k, lemma in enumerate(lemmas))
    )


@pytest.fixture
def own(tmp_path):
    rng = np.random.default_rng(0)
    for lang in ("en", "de"):
        sentences = [*words(rng, 70, lang), ["same", "word"], ["word"]]
        (tmp_path / f"{lang}.txt").write_text(
            "".join(" ".join(sentence) + "\n" for sentence in sentences)
        )
        write_trees(trees(12, lang), tmp_path / f"{lang}.conllu")
    (tmp_path / "dict.tsv").write_text("".join(f"e{k}\td{k}\n" for k in range(12)))
    senses(tmp_path, "train", ["e1", "e2", "e1"])
    senses(tmp_path, "test", ["e2", "e1", "e5"])
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


@pytest.mark.filterwarnings("ignore::calque.alignment.dictionary.FailedMapWarning")
def test_a_study_pretrains_elmos_and_maps_them_with_dictionaries(own):
    pytest.importorskip("h5py")
    said = []
    records = study(own, say=said.append)
    # Five preparation steps: anchors of two languages with and without a limit, and the
    # dictionary's training entries.
    numbers = {
        "pretraining": 2,
        "joining encoders": 1,
        "preparing": 5,
        "aligning": 2,
        "evaluating": 27,
    }
    assert {f"{title}: {n} of {n} steps to do" for title, n in numbers.items()} <= set(said)
    rows = {
        (r["method"], r["supervision"], r["layer"])
        for r in records
        if r["task"] != "language-model"
    }
    assert rows == {
        (method, supervision, layer)
        for layer in (0, 1, 2)
        for method, supervision in (
            ("base", ""),
            ("rotation", "dictionary"),
            ("distributions", "nothing"),
        )
    }
    measured = [(r["metric"], r["languages"]) for r in records if r["task"] == "language-model"]
    assert measured == [
        (metric, [lang]) for lang in ("en", "de") for metric in ("perplexity", "unigram-perplexity")
    ]
    assert {r["n"] for r in records if r["metric"] == "p@1"} == {3}
    assert {(r["n"], r["settings"]["senses"]) for r in records if r["task"] == "senses"} == {(3, 2)}
    # The maps move German word vectors and leave English ones unchanged.
    place = next((own.parent / "own" / "steps").glob("join-*"))
    made = [
        json.loads(p.read_text())["settings"] for p in place.parent.glob("fit-*/calque-run.json")
    ]
    assert {"patience": 1, "keep": 0.9} in [each["start_options"] for each in made]
    done = {p: json.loads((p / "done.json").read_text()) for p in place.parent.glob("fit-*")}
    fits = {each["settings"]["options"].get("start"): p for p, each in done.items()}
    for lang, moved in (("en", False), ("de", True)):
        text = Sentences.of([["e1", "d1"]], lang)
        base, mapped = (
            load_encoder(where, layer=1).encode(text).data for where in (place, fits[None])
        )
        assert np.array_equal(base, mapped) != moved
    assert "layer 1 · rotation" in tables(records)
    # Changing a key file reruns the scoring but not the training, although no setting names the key
    # file.
    (own.parent / "test.gold.key.txt").write_text("i0 e2%1\ni1 e1%1\ni2 e2%1\n")
    said.clear()
    study(own, say=said.append)
    assert "aligning: 0 of 2 steps to do" in said
    assert "evaluating: 9 of 27 steps to do" in said


def test_an_interrupted_step_starts_again(tmp_path):
    tries = []

    def work(step, folder):
        tries.append(folder.name)
        assert {file.name for file in folder.iterdir()} <= {"part1"}
        (folder / f"part{len(tries)}").write_text("x")
        if len(tries) == 1:  # interrupt the step while it writes its scores
            for name in ("scores.json", ".scores.json.calque-part", ".done.json.calque-part"):
                (folder / name).write_text("x")
            raise SettingError("stopped")

    steps = Steps(tmp_path / "steps", {"work": work})
    step = Step("work", {"a": 1})
    with pytest.raises(SettingError):
        steps.do(step)
    assert not steps.is_done(step)
    place = steps.do(step)
    assert sorted(file.name for file in place.iterdir()) == ["done.json", "part1", "part2"]
    assert steps.do(step) == place
    assert len(tries) == 2


def test_a_step_is_identified_by_settings_files_and_earlier_steps(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    a, b = ([str(tmp_path / name)] for name in "ab")
    keys = {
        Step("work", settings, files, after).key
        for settings, files, after in (
            ({}, {}, {}),
            ({"x": 1}, {}, {}),
            ({}, {"x": a}, {}),
            ({}, {"x": b}, {}),
            ({}, {"y": a}, {}),
            ({}, {"x": a + b}, {}),
            ({}, {}, {"x": ["steps/fit-1"]}),
            ({}, {}, {"x": ["steps/fit-2"]}),
        )
    }
    assert len(keys) == 8
    assert (
        Step("work", after={"x": ["here/fit-1"]}).key
        == Step("work", after={"x": ["there/fit-1"]}).key
    )


def test_editing_a_file_during_a_step_stops_the_step(tmp_path):
    (tmp_path / "a").write_text("1")
    steps = Steps(
        tmp_path / "steps", {"work": lambda step, folder: (tmp_path / "a").write_text("2")}
    )
    step = Step("work", {}, {"text": [str(tmp_path / "a")]})
    with pytest.raises(
        InputError, match="one of these files changed while the study was running: .*/a; start"
    ):
        steps.do(step)
    assert not steps.is_done(step)


def test_a_step_is_identified_by_the_version_and_by_the_code_of_custom_classes(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    steps = Steps(tmp_path / "steps", WORK)

    def keys():
        named = ({"method": "own:Mine"}, {"task": "own:Mine"}, {"encoder": [["", "own:Mine"]]})
        return [steps.step("align", settings, {}, {}, "").key for settings in named]

    (tmp_path / "own.py").write_text("class Mine: pass\n")
    first = keys()
    assert len(set(first)) == 3
    assert keys() == first
    (tmp_path / "own.py").write_text("class Mine: value = 1\n")
    assert not set(keys()) & set(first)
    again = keys()
    monkeypatch.setattr("calque.__version__", "0.0")
    assert not set(keys()) & set(again)
    with pytest.raises(SettingError, match="there is no module nobodys; is it installed"):
        steps.step("align", {"method": "nobodys:Method"}, {}, {}, "")
    steps.step(
        "score", {"task": "pos", "rename": {"nsubj": "nsubj:pass"}}, {}, {}, ""
    )  # labels are not class names


def grid(path):
    return Grid(read_study(path), Steps(path.parent / "steps", WORK))


def test_a_step_is_identified_by_the_files_of_its_encoder(plan, monkeypatch, tmp_path):
    """Check bundled encoders, one vector file per language, and the options file next to ELMo
    weights.
    """
    from calque.encoders import loading

    for name in ("a.vec", "b.vec", "x_weights.hdf5", "x_options.json"):
        (tmp_path / name).write_text("1")
    bundled = tmp_path / "bundled"
    bundled.mkdir()
    (bundled / "weights").write_text("1")
    monkeypatch.setitem(loading.BUNDLED, "mini", bundled)
    text = plan.read_text()
    for encoder, touched in (
        ("mini", bundled / "weights"),
        ("en=a.vec,de=b.vec", tmp_path / "b.vec"),
        ("x_weights.hdf5", tmp_path / "x_options.json"),
        ("en=a.vec,de=x_weights.hdf5", tmp_path / "x_options.json"),
    ):
        plan.write_text(re.sub('tiny = ".*"', f'tiny = "{encoder}"', text))
        before = [step.key for step in grid(plan).phases["evaluating"]]
        assert before == [step.key for step in grid(plan).phases["evaluating"]]
        touched.write_text(touched.read_text() + "1")
        assert not {step.key for step in grid(plan).phases["evaluating"]} & set(before)
    step = grid(plan).phases["evaluating"][0]
    assert encoder_of(step) == f"en={tmp_path}/./a.vec,de={tmp_path}/./x_weights.hdf5"


def test_two_studies_cannot_write_the_same_folder(tmp_path):
    steps = Steps(tmp_path / "steps", {})
    with (
        working(steps, 1, print),
        pytest.raises(SettingError, match=r"another process is writing .*steps"),
    ):
        working(steps, 1, print).__enter__()
    with working(steps, 1, print):  # the first process has finished
        pass


@pytest.mark.parametrize("group", [False, True], ids=["its parent alone", "its group"])
def test_the_workers_of_an_interrupted_study_end(plan, tmp_path, group):
    """Interrupt the study while its workers are still importing modules, which takes seconds."""
    command = [sys.executable, "-m", "calque", "study", str(plan), "--workers", "2", "-q"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    study = subprocess.Popen(
        command, env=paths, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    workers: list[str] = []
    while study.poll() is None and len(workers) < 2:
        time.sleep(0.1)
        children = Path(f"/proc/{study.pid}/task/{study.pid}/children").read_text().split()
        workers = [
            child
            for child in children
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
        ]
    (os.killpg if group else os.kill)(study.pid, signal.SIGINT)
    assert study.communicate(timeout=30)[1] == "calque: interrupted\n"
    assert study.returncode == 130
    assert not any(Path("/proc", worker).exists() for worker in workers)


PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from calque.runs.study import begin_worker
pool = ProcessPoolExecutor(1, get_context('fork'), initializer=begin_worker, initargs=(1,))
print(pool.submit(os.getpid).result(), flush=True)
pool.submit(time.sleep, 600)
time.sleep(600)
"""


def test_the_workers_of_a_killed_study_end(tmp_path):
    study = forked.start("-c", PARENT, folder=tmp_path)
    while study.runs and not study.printed.endswith("\n"):
        time.sleep(0.01)
    worker = int(study.printed)
    os.kill(worker, 0)  # the worker is alive
    study.kill()
    study.wait()
    for _ in range(300):
        try:
            os.kill(worker, 0)
            if " Z " in Path(f"/proc/{worker}/stat").read_text():  # a zombie process is dead
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker outlived its study by 30 seconds")


def record(method, value, half=0.05, **more):
    """Build a score with an interval, from three seeds with a standard deviation of one point."""
    runs = [] if value is None else [value - 0.01, value, value + 0.01]
    low, high = (None, None) if value is None else (value - half, value + half)
    return {
        "task": "ner",
        "metric": "f1",
        "encoder": "e",
        "method": method,
        "supervision": "",
        "languages": ["en", "de"],
        "data": "t",
        "value": value,
        "low": low,
        "high": high,
        "runs": runs,
        "settings": {},
        **more,
    }


def test_tables_list_scores_by_method_and_language():
    lm = {
        "task": "lm",
        "metric": "perplexity",
        "percent": False,
        "runs": [],
        "half": 2,
        "training_seed": None,
    }
    protocol = {"settings": {"protocol": "zero-shot"}}
    shown = tables(
        [
            record("a", 0.5, **protocol),
            record("a", 0.4, settings={"protocol": "projection"}),
            record("a", 0.5, metric="f1.PER"),
            record("a", None, languages=["en", "es"], **protocol),
            record("a", 12.5, **lm),
            record("b|c", 22.5, **lm),
        ]
    )
    assert re.sub(r"\[\d+\.\d+, \d+\.\d+\]", "[A, B]", shown).splitlines()[:14] == [
        "**Named entities: F1, per cent, higher is better, protocol: zero-shot**",
        "",
        "| method | de | es | mean |",
        "| --- | ---: | ---: | ---: |",
        "| a | 50.0 [A, B] | undefined |  |",
        "",
        "**Named entities: F1, per cent, higher is better, protocol: projection**",
        "",
        "| method | de |",
        "| --- | ---: |",
        "| a | 40.0 [A, B] |",
        "",
        "**Lm: perplexity, lower is better**",
        "",
    ]
    assert "| a | **12.50** [" in shown
    assert "| b\\|c | ▼22.50 [" in shown


def test_means_exclude_the_training_language():
    cells = (("en", "x", 0.9), ("de", "x", 0.5), ("es", "x", 0.6), ("es", "y", 0.7))
    scores = [record("a", value, languages=["en", lang], data=data) for lang, data, value in cells]
    shown = tables(scores)
    assert "| method | en (training language) | de | es (x) | es (y) | mean (without en) |" in shown
    value, low, high = mean_over_tests(scores[1:])
    assert value == pytest.approx(0.6)
    assert "| 90.0 | 50.0 | 60.0 | 70.0 | " in shown
    assert f"| 60.0 [{100 * low:.1f}, {100 * high:.1f}] |" in shown


@pytest.mark.parametrize("runs", [1, 5])
def test_the_terminal_and_the_report_make_the_same_claims(runs, tmp_path):
    """Check that a gain is listed without a test after one run, but is significant after five
    runs.
    """
    records = []
    for lang, base, new in (("de", 0.08, 0.336), ("es", 0.2, 0.34)):
        records.append(record("base", base, 0.02, languages=["en", lang], training_seed=None))
        records += [
            record("new", new + seed / 1000, 0.02, languages=["en", lang], training_seed=seed)
            for seed in range(runs)
        ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    shown, page = tables(records), compose(read_results([tmp_path]), title="x")
    assert bullets(page.summary) in shown
    (count,) = {
        re.search(r"\d+ comparisons? (is|are) made", text)[0]
        for text in (shown, " ".join(page.reading))
    }
    assert count == f"{0 if runs == 1 else 3} comparisons are made"
    if runs == 1:
        assert "**new** is better, but not clearly, by 19.8 on average on named entities." in shown
    else:
        assert (
            "**new** raises named entities by 20.0 on average (clearly in 2 of 2 languages)"
            in shown
        )
    assert len(re.findall(r"\| ▲\*\*[\d.]+\*\*", shown)) == (0 if runs == 1 else 3)
