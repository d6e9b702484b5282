"""From plain text to a folder with an ELMo trained on nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.errors import SettingError
from calque.linking import Say, divided, read_languages
from calque.runs.environment import environment
from calque.runs.folder import TRAINING, check, writing

if TYPE_CHECKING:
    from calque.pretraining.bidirectional import BiLanguageModel
    from calque.text import Sentences


def pretrain_elmo(
    texts: Sequence[str],
    *,
    out: str | Path,
    options: Mapping[str, Any] | None = None,
    held_out: int = 0,
    pretokenized: bool = False,
    limit: int | None = None,
    overwrite: bool = False,
    checkpoint_every: int = 200,
    progress: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train an ELMo, and keep what predicts words beside it.

    Args:
        texts: `LANG=FILE`, one sentence a line; several files of one language are read one after the other.
        out: folder for the result, which appears when it is complete. Until then everything is in `OUT.part`; a run that
            was stopped goes on from what it finds there.
        options: keyword arguments of `BiLanguageModel`.
        held_out: sentences of each language, drawn evenly from its text, that are not trained on but give the perplexity.
            Of these, those that stand in the rest of the text word for word are left out, and those without words.
        pretokenized: words stand between spaces.
        limit: lines of each text.
        overwrite: replace a finished result in `out`.
        checkpoint_every: updates between checkpoints.
        progress: show bars on standard error.
        say: takes a line of news.

    Returns:
        what was done, as `calque-run.json` has it; `scores` are those on what was held out.

    Raises:
        SettingError: texts that are not `LANG=FILE`, or a finished encoder in `out`.
        MissingExtraError: h5py is not installed; before anything is computed.
    """
    from calque.distributed import is_first
    from calque.encoders.elmo_files import h5py_module
    from calque.pretraining.bidirectional import BiLanguageModel

    h5py_module()
    check(out, overwrite=overwrite)
    method = BiLanguageModel(**dict(options or {}))
    corpora = read_languages(texts, pretokenized=pretokenized, limit=limit, say=say)
    aside = {lang: _hold_out(text, held_out) for lang, text in corpora.items()} if held_out else {}
    corpora |= {lang: rest for lang, (rest, _) in aside.items()}
    with writing(out, overwrite=overwrite) as folder:
        method.train(corpora, folder=folder / TRAINING, checkpoint_every=checkpoint_every, progress=progress)
        record = _record(method, corpora, texts, {lang: text for lang, (_, text) in aside.items()}, Path(out).name)
        if is_first():
            method.model.save(folder)
            (folder / "calque-run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            (folder / "README.md").write_text(_card(record), encoding="utf-8")
    return record


def _record(
    method: BiLanguageModel,
    corpora: Mapping[str, Sentences],
    texts: Sequence[str],
    aside: Mapping[str, Sentences],
    name: str,
) -> dict[str, Any]:
    """What was done, and how well the words of the texts held out are predicted."""
    from calque.tasks.perplexity import word_perplexity

    mixture, history, vocabulary = method.mixture, method.history, method.model.vocabulary
    return {
        **environment(),
        "settings": method.settings(),
        "vocabulary": len(vocabulary),
        "parameters": sum(p.numel() for p in method.model.network.parameters()),
        "texts": [{"path": Path(path).name, "lang": lang} for lang, path in (divided(text) for text in texts)],
        "languages": {
            lang: {
                "sentences": len(corpora[lang]),
                "words": int(corpora[lang].lengths().sum()),
                "passes": round(method.updates / mixture.steps_per_epoch * mixture.drawn[lang] / len(blocks), 2),
            }
            for lang, blocks in mixture.languages.items()
        },
        "updates": len(history),
        "first_loss": history[0]["loss"],
        "last_loss": sum(line["loss"] for line in history[-100:]) / len(history[-100:]),
        "scores": [
            score.to_dict()
            for text in aside.values()
            for score in word_perplexity(method.model, text, data=f"{len(text):,} sentences held out", name=name)
        ],
    }


def _hold_out(text: Sentences, n: int) -> tuple[Sentences, Sentences]:
    """A text without some of its sentences, and these."""
    if not 0 < 2 * n <= len(text):
        raise SettingError(f"cannot hold out {n} of {len(text)} sentences in {text.lang}: at most half")
    chosen = np.arange(n) * len(text) // n
    rest = text.take(np.setdiff1d(np.arange(len(text)), chosen))
    known = {sentence.words for sentence in rest}
    new = [k for k in chosen.tolist() if text[k].words and text[k].words not in known]
    if not new:
        raise SettingError(f"every held-out sentence in {text.lang} also occurs in the training text: hold out more")
    return rest, text.take(np.array(new, dtype=np.int64))


def _card(record: dict[str, Any]) -> str:
    settings, lstm = record["settings"], record["settings"]["options"]["lstm"]
    rows = [
        f"| {lang} | {text['sentences']:,} | {text['words']:,} | {text['passes']} |"
        for lang, text in record["languages"].items()
    ]
    lines = [
        "---", "language:", *[f"- {lang}" for lang in record["languages"]], "tags:", "- calque", "- elmo", "---", "",
        f"# An ELMo of {lstm['n_layers']} layers, {lstm['dim']} projected to {lstm['projection_dim']}", "",
        f"Trained from scratch as a bidirectional language model with calque {record['calque']}: {record['updates']:,} "
        f"updates of {settings['batch']} sentences; {record['parameters']:,} parameters without the softmax over "
        f"{record['vocabulary']:,} words; mean loss {record['last_loss']:.3f} at the end.", "",
        "`options.json` and `weights.hdf5` are in the format of bilm-tf and AllenNLP; `softmax.safetensors` and "
        "`vocabulary.json` are the output layer.", "",
        "| language | sentences | words | passes |", "|---|---:|---:|---:|", *rows, "",
        f"Texts: {', '.join(text['path'] for text in record['texts'])}.", "",
        *(f"{score['metric'].capitalize()} of {score['data']} in {score['languages'][0]}: {score['value']:.1f}.\n"
          for score in record["scores"]),
        "## Settings", "", "```json", json.dumps(settings, indent=2), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)
