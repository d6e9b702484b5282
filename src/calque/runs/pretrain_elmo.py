"""From plain text to a folder with an ELMo trained on nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import calque
from calque.errors import SettingError
from calque.runs.pretrain import _divided, read_languages
from calque.runs.texts import Say


def pretrain_elmo(
    texts: Sequence[str],
    *,
    out: str | Path,
    options: Mapping[str, Any] | None = None,
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
        out: folder for the result. A stopped run continues from what it finds there.
        options: keyword arguments of `BiLanguageModel`.
        pretokenized: words stand between spaces.
        limit: lines of each text.
        overwrite: replace a finished result in `out`.
        checkpoint_every: updates between checkpoints.
        progress: show bars on standard error.
        say: takes a line of news.

    Returns:
        what was done, as `calque-run.json` has it.

    Raises:
        SettingError: texts that are not `LANG=FILE`, or a finished encoder in `out`.
        MissingExtraError: h5py is not installed; before anything is computed.
    """
    from calque.distributed import is_first
    from calque.encoders.elmo_files import OPTIONS_FILE, _h5py
    from calque.training.bilm import BiLanguageModel

    _h5py()
    folder = Path(out)
    if any((folder / name).exists() for name in (OPTIONS_FILE, "config.json")) and not overwrite:
        raise SettingError(f"{folder} already holds an encoder: choose another folder or say --overwrite")
    method = BiLanguageModel(**dict(options or {}))
    corpora = read_languages(texts, pretokenized=pretokenized, limit=limit, say=say)
    method.train(corpora, folder=folder / "training", checkpoint_every=checkpoint_every, progress=progress)
    mixture, history, vocabulary = method.mixture, method.history, method.model.vocabulary
    record = {
        "calque": calque.__version__,
        "settings": method.settings(),
        "vocabulary": len(vocabulary),
        "parameters": sum(p.numel() for p in method.model.network.parameters()),
        "texts": [{"path": Path(path).name, "lang": lang} for lang, path in (_divided(text) for text in texts)],
        "languages": {
            lang: {
                "sentences": len(corpora[lang]),
                "words": int(corpora[lang].lengths().sum()),
                "passes": round(method.updates / mixture.updates_per_epoch * mixture.drawn[lang] / len(blocks), 2),
            }
            for lang, blocks in mixture.languages.items()
        },
        "updates": len(history),
        "first_loss": history[0]["loss"],
        "last_loss": sum(line["loss"] for line in history[-100:]) / len(history[-100:]),
    }
    if is_first():
        method.model.save(folder)
        (folder / "calque-run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(_card(record), encoding="utf-8")
    return record


def _card(record: dict[str, Any]) -> str:
    settings, lstm = record["settings"], record["settings"]["options"]["lstm"]
    rows = [
        f"| {lang} | {text['sentences']:,} | {text['words']:,} | {text['passes']} |"
        for lang, text in record["languages"].items()
    ]
    lines = [
        "---", "language:", *[f"- {lang}" for lang in record["languages"]], "tags:", "- calque", "- elmo", "---", "",
        f"# An ELMo of {lstm['n_layers']} layers, {lstm['dim']} projected to {lstm['projection_dim']}", "",
        f"Trained from nothing as a bidirectional language model with calque {record['calque']}: {record['updates']:,} "
        f"updates of {settings['batch']} sentences; {record['parameters']:,} parameters without the softmax over "
        f"{record['vocabulary']:,} words; mean loss {record['last_loss']:.3f} at the end.", "",
        "`options.json` and `weights.hdf5` are in the form of bilm-tf and AllenNLP; `softmax.safetensors` and "
        "`vocabulary.json` are what predicts words.", "",
        "| language | sentences | words | passes |", "|---|---:|---:|---:|", *rows, "",
        f"Texts: {', '.join(text['path'] for text in record['texts'])}.", "",
        "## Settings", "", "```json", json.dumps(settings, indent=2), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)
