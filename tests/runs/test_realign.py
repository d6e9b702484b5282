"""An encoder that is aligned in the run that trains it for a task."""

from __future__ import annotations

import json
import re

import pytest
import torch

from calque.annotated import Labels, TaggedText
from calque.encoders import load_encoder
from calque.encoders.random_vectors import RandomVectors
from calque.errors import InputError, SettingError
from calque.runs.align import align
from calque.runs.realign import TextRealignment, realign_on
from calque.runs.study import read_study
from calque.tasks.datasets import Dataset
from calque.tasks.tagging import Tagging
from calque.tasks.zeroshot import Experiment
from calque.text import Sentences
from command import fails, works
from linked_text import make_text
from planted import KeyPoints

SETTINGS = {"batch": 4, "seed": 3}


@pytest.fixture(scope="module")
def linked():
    corpus, pairs = make_text("xx", 16, 0)
    return [corpus], [pairs]


@pytest.fixture(scope="module")
def tags(linked):
    """What to learn from, and what to test on: capitals are another language."""
    (corpus,), _ = linked

    def tagged(side, lang):
        names = ["NOUN" if word.lower() in ("cat", "house") else "X" for each in side for word in each.words]
        text = TaggedText(Sentences.of([list(each.words) for each in side], lang), Labels.of(names))
        return Dataset(f"{lang}.tsv", lang, text)

    return tagged(corpus.source, "en"), tagged(corpus.target, "xx")


def job(tags, realign=None, **more):
    more = {"tune": True, "seeds": (0, 1), "options": {"epochs": 2, "batch": 8}, "bootstrap": 0, **more}
    return Tagging("pos", tags[:1], tags[1:], realign=realign, **more)


def realignment(linked, when, **how):
    options = {**SETTINGS, **({} if when == "during" else {"learning_rate": 1e-3}), **how.pop("options", {})}
    return TextRealignment(lambda: linked, when=when, options=options, **how)


def weights(encoder):
    return torch.cat([p.detach().flatten() for p in encoder.model.parameters()])


@pytest.mark.parametrize("more", [{}, {"lora": 2}])
def test_before_is_to_align_and_then_to_train_bit_by_bit(linked, tags, tiny_folder, tmp_path, more):
    """With adapters, too: these are put into the weights, all of which then learn the task."""
    if more:
        pytest.importorskip("peft", reason="peft is not installed: pip install 'calque-align[peft]'")
    (corpus,), (pairs,) = linked
    lines = [f"{' '.join(a.words)}\t{' '.join(b.words)}\n" for a, b in zip(corpus.source, corpus.target, strict=True)]
    (tmp_path / "text.tsv").write_text("".join(lines))
    pairs.save(tmp_path / "links.align")
    where = {"langs": [("en", "xx")], "links": [str(tmp_path / "links.align")]}
    options = {**SETTINGS, "learning_rate": 1e-3, **more}
    realign = realign_on([str(tmp_path / "text.tsv")], options=options, **where)
    at_once = Experiment(job(tags, realign), load_encoder(tiny_folder))
    for seed in (0, 1):  # each run has an alignment of its own
        align(
            [str(tmp_path / "text.tsv")], encoder=str(tiny_folder), method="contrastive", towards="en",
            out=tmp_path / f"aligned-{seed}", options={**options, "seed": SETTINGS["seed"] + seed}, **where,
        )  # fmt: skip
        apart = Experiment(job(tags), load_encoder(tmp_path / f"aligned-{seed}"))
        one, other = apart.learn(seed), at_once.learn(seed)
        theirs = dict(other.encoder.model.named_parameters())
        assert all(torch.equal(weight, theirs[name]) for name, weight in one.encoder.model.named_parameters())
        assert all(map(torch.equal, one.head.parameters(), other.head.parameters()))


def test_after_the_head_stays_and_the_encoder_is_aligned(linked, tags, tiny_encoder):
    plain = Experiment(job(tags), tiny_encoder).learn(1)
    realign = realignment(linked, "after")
    found = Experiment(job(tags, realign), tiny_encoder).learn(1)
    assert all(map(torch.equal, plain.head.parameters(), found.head.parameters()))
    assert (plain.epoch, plain.score) == (found.epoch, found.score)
    assert torch.equal(weights(found.encoder), weights(realign.align(plain.encoder, seed=1)))
    assert not torch.equal(weights(found.encoder), weights(realign.align(plain.encoder, seed=0)))


def test_after_with_adapters_the_trained_weights_need_not_be_on_disk(linked, tags, tiny_encoder):
    """They could not be loaded again; and what comes out is an encoder without adapters, whose other weights stayed."""
    pytest.importorskip("peft", reason="peft is not installed: pip install 'calque-align[peft]'")
    plain = Experiment(job(tags), tiny_encoder).learn(1)
    found = Experiment(job(tags, realignment(linked, "after", options={"lora": 2})), tiny_encoder).learn(1)
    before, after = (dict(each.encoder.model.named_parameters()) for each in (plain, found))
    assert before.keys() == after.keys()
    moved = {name for name, weight in before.items() if not torch.equal(weight, after[name])}
    assert moved
    assert all(name.startswith("encoder.layer.") and name.endswith("weight") and "Norm" not in name for name in moved)
    score = job(tags, realignment(linked, "after", options={"lora": 2}), seeds=(0,)).evaluate(tiny_encoder)[0]
    assert "lora 2" in score.settings["realign"]


def test_during_both_are_learnt_and_the_lower_layers_may_be_kept_from_the_alignment(linked, tags, tiny_encoder):
    """The task's loss alone, and both with all layers, and both with the embeddings left to the task."""
    runs = {}
    for freeze in (None, 0):
        realign = realignment(linked, "during", options={"freeze": freeze})
        runs[freeze] = Experiment(job(tags, realign), tiny_encoder).learn(0)
    plain = Experiment(job(tags), tiny_encoder).learn(0)
    moved = [weights(run.encoder) for run in (plain, *runs.values())]
    assert not any(torch.equal(a, b) for k, a in enumerate(moved) for b in moved[:k])
    assert all(weight.requires_grad for weight in runs[0].encoder.model.parameters())


def test_a_score_says_how_its_encoder_was_realigned(linked, tags, tiny_encoder):
    realign = realignment(linked, "during", options={"freeze": 1})
    about = job(tags, realign, seeds=(0,)).evaluate(tiny_encoder)[0].settings
    assert about["realign"].startswith(
        "during (alternating), contrastive towards en, 16 sentence pairs, batch 4, seed 3, freeze 1 ("
    )
    known = {"when": "during", "how": "alternating", "passes": 1.0, "method": "contrastive", "towards": "en"}
    assert known == {name: about["realignment"][name] for name in known}


def test_the_language_that_is_learnt_is_the_one_to_move_towards(linked, tiny_encoder):
    realign = realignment(linked, "before")
    realign.prepare(tiny_encoder, ["de", "xx"])
    assert realign.settings()["realignment"]["towards"] == "xx"
    with pytest.raises(SettingError, match="learnt in de, and the text to realign on is in en-xx: name the language"):
        realignment(linked, "before").prepare(tiny_encoder, ["de"])
    with pytest.raises(SettingError, match="cannot realign towards de: the text is in en-xx"):
        realignment(linked, "before", towards="de").prepare(tiny_encoder, ["en"])


def test_what_cannot_be_realigned_is_refused(linked, tags, tiny_encoder):
    realign = realignment(linked, "before")
    with pytest.raises(SettingError, match="in the run that trains it: add tune=True"):
        job(tags, realign, tune=False)
    with pytest.raises(SettingError, match="cannot be trained"):
        job(tags, realign).evaluate(RandomVectors())
    with pytest.raises(SettingError, match="its vectors are of key points, expected words"):
        realign.prepare(KeyPoints(), ["en"])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"when": "later"}, "before, during or after, got 'later'"),
        ({"method": "rotation"}, "rotation cannot realign an encoder for a task: expected contrastive or finetune"),
        ({"when": "during", "options": {"learning_rate": 1.0}}, "learning_rate of contrastive: during the task's training"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_told_before_anything_is_read(how, said):
    def read():
        raise AssertionError("too late")

    with pytest.raises(SettingError, match=said):
        TextRealignment(read, **how)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--realign", "t.tsv", "--langs", "en", "de"), "--realign aligns an encoder in the run that trains it: add --tune"),
        (("--realign-when", "after"), "--realign-when is for the parallel text of --realign, and there is none"),
        (("--realign", "t.tsv", "--tune", "--langs", "en", "de", "--realign-option", "x=1"), "--realign-option x=1: expected"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_on_the_command_line_is_told_before_anything_is_read(options, said, capsys):
    assert said in fails(capsys, "evaluate", "no-encoder", "nli", "--train", "a.en.tsv", "--test", "b.en.tsv", *options)


PLAN = """
seeds = 1
[encoders]
tiny = "{encoder}"
[methods.base]
[supervision.text]
xx = "text.tsv"
[tasks.plain]
task = "pos"
tune = true
epochs = 1
train = ["en=train.tsv"]
test = ["xx=test.tsv"]
[tasks.together]
task = "pos"
tune = true
epochs = 1
train = ["en=train.tsv"]
test = ["xx=test.tsv"]
ceiling = ["xx=train.tsv"]
realign = {realign}
"""


@pytest.fixture
def plan(linked, tiny_folder, tmp_path):
    """`plan(realign)` writes a study with its texts."""
    (corpus,), _ = linked
    sides = [[each.words for each in side] for side in (corpus.source, corpus.target)]
    (tmp_path / "text.tsv").write_text("".join(f"{' '.join(a)}\t{' '.join(b)}\n" for a, b in zip(*sides, strict=True)))
    for name, side in zip(("train", "test"), sides, strict=True):
        text = "\n".join("".join(f"{word}\t{'AB'[len(word) > 3]}\n" for word in words) for words in side)
        (tmp_path / f"{name}.tsv").write_text(text)

    def write(realign, more=""):
        (tmp_path / "study.toml").write_text(PLAN.format(encoder=tiny_folder, realign=realign) + more)
        return tmp_path / "study.toml"

    return write


def test_a_study_realigns_in_a_tasks_own_run(plan, tmp_path, capsys):
    path = plan('{ when = "during", options = { batch = 4 } }')
    works(capsys, "study", path, "--out", tmp_path / "out", "-q")
    lines = (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    plain, together, ceiling = (json.loads(line)["settings"] for line in lines)
    assert "realign" not in plain
    assert ceiling["protocol"] == "ceiling"
    assert "realign" not in ceiling
    assert together["realign"].startswith("during (alternating), contrastive towards en, 16 sentence pairs, batch 4 (")
    assert together["realignment"]["texts"] == ["text.tsv"]


@pytest.mark.parametrize(
    ("realign", "more", "said"),
    [
        ('{ when = "later" }', "", "tasks.together.realign.when = 'later', expected 'before' or 'during' or"),
        (
            '{ supervision = "x" }',
            "",
            "tasks.together.realign.supervision names 'x', expected one of parallel text: text",
        ),
        ("{ options = { batch = 'x' } }", "", "realign.options.batch = 'x', expected"),
    ],
)
def test_what_is_wrong_in_a_study_is_said_with_its_place(plan, realign, more, said):
    with pytest.raises(InputError, match=re.escape(said)):
        read_study(plan(realign, more))
