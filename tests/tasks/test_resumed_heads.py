"""Test that an interrupted training run of task heads resumes and ends with the scores of an
uninterrupted run.
"""

import json
import os
import signal

import pytest

from calque.errors import Stopped
from calque.runs.evaluate import evaluate
from calque.tasks.inputs import Inputs
from calque.training import loop


@pytest.fixture
def files(tmp_path):
    words = [("cat", "NOUN"), ("sees", "VERB"), ("a", "DET"), ("house", "NOUN"), ("in", "ADP")]
    for lang, step, end in (("en", 4, ""), ("de", 3, "x")):
        lines = [
            f"{word}{end}\t{tag}\n" + ("\n" if k % step == 0 else "")
            for k, (word, tag) in enumerate(words * 24)
        ]
        (tmp_path / f"{lang}.tsv").write_text("".join(lines))
    return {"train": [f"en={tmp_path / 'en.tsv'}"], "test": [f"de={tmp_path / 'de.tsv'}"]}


@pytest.mark.parametrize(
    ("options", "n_checkpoints"),
    [
        ({"patience": 1}, 2),
        ({"tune": True}, 2),
        ({"patience": 1, "layers": "mix"}, 2),
        ({"tune": True, "layers": "mix"}, 2),
        # One for each candidate layer. The run with the chosen layer and the first seed is among
        # them, and the run with the second seed is not.
        ({"patience": 1, "layers": "1-3", "poolings": ["mean"]}, 4),
    ],
)
def test_a_stopped_training_run_resumes(
    options, n_checkpoints, files, tiny_folder, tmp_path, monkeypatch
):
    options = {"seeds": 2, "epochs": 3, "batch": 8, **options}
    updates = []

    def scores(out, stop=None):
        updates.clear()
        steps = loop.Loop._update

        def counted(self, *args):
            updates.append(self.step)
            if len(updates) == stop:
                os.kill(os.getpid(), signal.SIGINT)
            return steps(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Loop, "_update", counted)
            found = evaluate(
                str(tiny_folder), Inputs("pos", **files), options=options, out=tmp_path / out
            )
        return [{**score.to_dict(), "settings": score.settings} for score in found]

    expected, all_updates = scores("a"), len(updates)
    assert not list(tmp_path.glob(".*"))  # no temporary files remain
    monkeypatch.setattr(loop, "_SECONDS", 0.0)  # save a checkpoint at every update
    stop = all_updates * 3 // 4  # stop in the last training run
    with pytest.raises(Stopped, match="same command resumes it"):
        scores("b", stop)
    assert len(list(tmp_path.glob(".b.calque-training/**/checkpoint.pt"))) == n_checkpoints
    assert json.dumps(scores("b"), default=str) == json.dumps(expected, default=str)
    # A finished run with the chosen layer is not repeated, so fewer updates can remain.
    assert 0 < len(updates) <= all_updates - stop
    assert not list(tmp_path.glob(".*"))
