"""From plain text to a folder with an encoder trained on nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import InputError
from calque.linking import Say, digest_of, divided, read_languages
from calque.runs.environment import environment
from calque.runs.folder import TRAINING, check, writing

if TYPE_CHECKING:
    from calque.text import Sentences


def pretrain(
    texts: Sequence[str],
    *,
    out: str | Path,
    vocabulary: int = 16_000,
    tokenizer: str | Path | None = None,
    start: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    half: bool = False,
    pretokenized: bool = False,
    limit: int | None = None,
    overwrite: bool = False,
    checkpoint_every: int = 200,
    progress: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train a tokenizer, unless one is given, and an encoder.

    Args:
        texts: `LANG=FILE`, one sentence a line; several files of one language are read one after the other.
        out: folder for the result, which appears when it is complete. Until then everything is in `OUT.part`; a run that
            was stopped goes on from what it finds there, the tokenizer included.
        vocabulary: subwords of the tokenizer.
        tokenizer: folder of one to use instead.
        start: folder, or `mini`, of a BERT to go on from, with its tokenizer.
        options: keyword arguments of `MaskedLanguageModel`.
        half: write float16.
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
    """
    from calque.encoders.loading import BUNDLED
    from calque.pretraining.masked import MaskedLanguageModel

    options = dict(options or {})
    check(out, overwrite=overwrite)
    if start is not None:
        start = tokenizer = str(BUNDLED.get(str(start), start))
        if not (Path(start) / "config.json").exists():
            raise InputError("no config.json in this folder, expected a BERT to continue from", path=start)
    method = MaskedLanguageModel(**options, start=start)
    corpora = read_languages(texts, pretokenized=pretokenized, limit=limit, say=say)
    with writing(out, overwrite=overwrite) as folder:
        if tokenizer is not None:
            found = _open_tokenizer(tokenizer)
        else:
            how = {"size": vocabulary, "alpha": options.get("alpha", 0.5), "seed": options.get("seed", 0)}
            found = _own_tokenizer(corpora, folder / TRAINING / "tokenizer", how, say)
        record = _train(method, corpora, found, texts, folder, half, checkpoint_every, progress)
    return record


def _train(method, corpora, tokenizer, texts, folder: Path, half: bool, checkpoint_every: int, progress: bool):
    import torch

    from calque.distributed import is_first
    from calque.encoders.checkpoint import save_model
    from calque.encoders.folder import read_about, write_about

    encoder = method.train(
        corpora, tokenizer, folder=folder / TRAINING, checkpoint_every=checkpoint_every, progress=progress
    )
    mixture, history = method.mixture, method.history
    record = {
        **environment(),
        "settings": method.settings(),
        "vocabulary": len(tokenizer),
        "parameters": sum(p.numel() for p in method.model.parameters()),
        "texts": [
            {"path": Path(path).name, "lang": lang} for lang, path in (divided(text) for text in texts)
        ],
        "languages": {
            lang: {"sentences": len(corpora[lang]), "subwords": len(blocks.ids),
                   "passes": round(method.updates / mixture.steps_per_epoch * mixture.drawn[lang] / len(blocks), 2)}
            for lang, blocks in mixture.languages.items()
        },
        "updates": len(history),
        "first_loss": history[0]["loss"],
        "last_loss": sum(line["loss"] for line in history[-100:]) / len(history[-100:]),
    }  # fmt: skip
    if is_first():
        encoder.save(folder)
        method.model.to(dtype=torch.float16 if half else torch.float32)  # type: ignore[call-arg]
        save_model(method.model, folder)  # with its head, instead of the bare encoder
        write_about(folder, "huggingface", read_about(folder) | {"max_length": None})
        (folder / "calque-run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(_card(record), encoding="utf-8")
    return record


def _own_tokenizer(corpora: Mapping[str, Sentences], folder: Path, how: Mapping[str, Any], say: Say) -> Any:
    """Of these texts; the one that a stopped run trained, if that read the same texts in the same way."""
    from calque.distributed import is_first
    from calque.pretraining.masked import train_tokenizer

    key = json.dumps([how, {lang: digest_of(text) for lang, text in corpora.items()}], sort_keys=True)
    about = folder / "made-from.json"
    if about.is_file() and about.read_text(encoding="utf-8") == key:
        return _open_tokenizer(folder)
    say(f"training a tokenizer of {how['size']:,} subwords")
    made = train_tokenizer(corpora, **how)
    if not is_first():
        return made
    about.unlink(missing_ok=True)
    made.save_pretrained(folder)
    about.write_text(key, encoding="utf-8")
    return _open_tokenizer(folder)  # as the run that goes on from here will have it


def _open_tokenizer(where: str | Path) -> Any:
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(str(where))
    except Exception as error:  # a name the hub does not know, a damaged file
        raise InputError(f"not a tokenizer ({str(error).splitlines()[0]})", path=where) from error
    if not getattr(found, "is_fast", False) or found.mask_token_id is None:
        raise InputError("not a fast tokenizer with a mask token, which masked language modelling needs", path=where)
    return found


def _card(record: dict[str, Any]) -> str:
    settings, languages = record["settings"], record["languages"]
    front = ["---", "library_name: transformers", "pipeline_tag: fill-mask", "language:",
             *[f"- {lang}" for lang in languages], "tags:", "- calque", "---"]  # fmt: skip
    rows = [
        f"| {lang} | {text['sentences']:,} | {text['subwords']:,} | {text['passes']} |"
        for lang, text in languages.items()
    ]
    lines = [
        *front, "", f"# A BERT of {settings['num_hidden_layers']} layers × {settings['hidden_size']}", "",
        f"Trained from scratch by masked language modelling with calque {record['calque']}: {record['updates']:,} updates "
        f"of {settings['batch']} blocks of up to {settings['length']} subwords; {record['parameters']:,} parameters, "
        f"{record['vocabulary']:,} subwords; mean loss {record['last_loss']:.3f} at the end.", "",
        "| language | sentences | subwords | passes |", "|---|---:|---:|---:|", *rows, "",
        f"Texts: {', '.join(text['path'] for text in record['texts'])}.", "",
        "## Settings", "", "```json", json.dumps(settings, indent=2), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)
