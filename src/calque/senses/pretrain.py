"""Pretrain an encoder on text files, and save it to a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader

from calque.annotated import Dictionary
from calque.corpora import read_dictionary
from calque.corpora.readers import AUTO
from calque.distributed import is_first
from calque.distributed.environment import environment
from calque.encoders.card_blocks import CARD_FILE, whole_card
from calque.encoders.folder import RUN_FILE
from calque.errors import SettingError, did_you_mean
from calque.input_texts import Say, read_languages
from calque.runs.folder import TRAINING, check, writing
from calque.senses.bidirectional import BiLanguageModel, PretrainedElmo
from calque.senses.elmo import h5py_module
from calque.senses.masked import MaskedLanguageModel, PretrainedBert
from calque.senses.perplexity import masked_perplexity, word_perplexity
from calque.senses.training import LanguageModel, Pretrained, Senses
from calque.storage import json_text, write_text
from calque.tasks.base import Score
from calque.text import Sentences

MODELS: Mapping[str, type[LanguageModel]] = {"bert": MaskedLanguageModel, "elmo": BiLanguageModel}


def model_class(name: Any) -> type[LanguageModel]:
    """Return the class of the language model "bert" or "elmo"."""
    if not isinstance(name, str) or name not in MODELS:
        raise SettingError(
            f"unknown model {name!r} to pretrain, expected "
            f"{' or '.join(MODELS)}{did_you_mean(str(name), MODELS)}"
        )
    return MODELS[name]


def pretrain(
    texts: Sequence[tuple[str, str]],
    *,
    out: str | Path,
    model: str = "bert",
    preset: str | None = None,
    senses: int | Mapping[str, Any] | None = None,
    dictionaries: Sequence[tuple[tuple[str, str], str]] = (),
    options: Mapping[str, Any] | None = None,
    held_out: int = 0,
    format: str = AUTO,
    pretokenized: bool = False,
    limit: int | None = None,
    overwrite: bool = False,
    checkpoint_every: int = 200,
    progress: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train an encoder with its tokenizer or vocabulary, save it, and return the content of
    `calque-run.json`.

    Arguments not listed here are the options of `calque pretrain`.

    Args:
        texts: pairs of a language and a file with one sentence per line; files in the same language
            are concatenated.
        out: output folder, which is written atomically. During training, `.OUT.calque-part`
            contains the checkpoints from which an interrupted run resumes.
        preset: name of a preset in `PRESETS`; `senses` and `options` override its settings.
        senses: maximum number of senses per word, or arguments of `Senses`; if None, the model has
            no senses.
        dictionaries: language pairs and dictionary files, for predicting senses of translations.
            All languages are then sampled equally often, unless `options` contains `alpha`.
        options: arguments of `MaskedLanguageModel` or `BiLanguageModel`.
        held_out: number of evenly spaced sentences per language to hold out; their perplexity is
            stored in `scores`.
    """
    check(out, overwrite=overwrite)
    settings = settings_for(
        model,
        preset=preset,
        senses=senses,
        langs=list(dict.fromkeys(lang for lang, _ in texts)),
        translated=bool(dictionaries),
        options=options,
    )
    method = model_class(model)(**settings)
    if model == "elmo":
        h5py_module()  # so that a missing package is reported before the training
    opened_dictionaries = [read_dictionary(path, langs=pair) for pair, path in dictionaries]
    corpora = read_languages(texts, format=format, pretokenized=pretokenized, limit=limit, say=say)
    held_out_texts = []
    if held_out:
        for lang, text in corpora.items():
            corpora[lang], held_out_text = hold_out(text, held_out)
            held_out_texts.append(held_out_text)
    with writing(out, overwrite=overwrite) as folder:
        trained = method.train(
            corpora,
            folder=folder / TRAINING,
            dictionaries=opened_dictionaries,
            checkpoint_every=checkpoint_every,
            progress=progress,
            say=say,
        )
        scores: list[Score] = []
        for text in held_out_texts:
            scores += _perplexity(trained, text, Path(out).name)
        record = _record(method, trained, corpora, texts)
        if preset is not None:
            record["preset"] = preset
        if method.senses is not None:
            record["senses"] = _about_senses(trained, opened_dictionaries)
        record["scores"] = [score.to_dict() for score in scores]
        if is_first():
            trained.save(folder)
            write_text(folder / RUN_FILE, json_text(record, indent=2, ensure_ascii=False) + "\n")
            write_text(folder / CARD_FILE, whole_card(_card(method.unit, record)))
    return record


def settings_for(
    model: str,
    *,
    preset: str | None = None,
    senses: int | Mapping[str, Any] | None = None,
    langs: Sequence[str] = ("en",),
    translated: bool = False,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the keyword arguments of a language model: the settings of a preset, overridden by
    `senses` and `options`.
    """
    if preset is not None and preset not in PRESETS:
        raise SettingError(
            f"unknown preset {preset!r}, expected "
            f"{', '.join(PRESETS)}{did_you_mean(str(preset), PRESETS)}"
        )
    settings = {} if preset is None else dict(PRESETS[preset][model])
    if preset == "paper":
        settings["updates"] = 600_000 if len(langs) > 1 else 1_000_000
    if translated or (preset is not None and len(langs) > 1):
        settings["alpha"] = 0.0  # sample all languages equally often
    settings |= options or {}
    if senses is not None:
        sense_settings = dict(_PAPER_SENSES[model]) if preset == "paper" else {}
        sense_settings |= {"senses": senses} if isinstance(senses, int) else senses
        settings["senses"] = Senses(**sense_settings)
    return settings


def _perplexity(trained: Pretrained, text: Sentences, name: str) -> list[Score]:
    """Return the perplexity of the model on held-out text."""
    data = f"{len(text):,} sentences held out"
    if isinstance(trained, PretrainedElmo):
        return word_perplexity(trained.model, text, data=data, name=name)
    assert isinstance(trained, PretrainedBert)
    mask_id: Any = trained.encoder.mask_id
    score = masked_perplexity(
        trained.model,
        trained.encoder,
        text,
        mask_id=mask_id,
        senses=trained.softmax,
        data=data,
        name=name,
    )
    return [score]


def _record(
    method: LanguageModel,
    trained: Pretrained,
    corpora: Mapping[str, Sentences],
    texts: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return the content of `calque-run.json` without the scores."""
    mixture, history = trained.mixture, trained.history
    languages = {}
    for lang, blocks in mixture.languages.items():
        n_units = len(blocks.ids)  # subwords
        if method.unit == "words":
            n_units = int(corpora[lang].lengths().sum())
        sampled = method.updates / mixture.steps_per_epoch * mixture.drawn[lang]  # blocks
        languages[lang] = {
            "sentences": len(corpora[lang]),
            method.unit: n_units,
            "passes": round(sampled / len(blocks), 2),
        }
    vocabulary, parameters = trained.sizes
    record = {
        **environment(),
        "settings": trained.settings,
        "vocabulary": vocabulary,
        "parameters": parameters,
    }
    if trained.lower:
        record["lower_case"] = True
    last_losses = [line["loss"] for line in history[-100:]]
    return {
        **record,
        "texts": [{"path": Path(path).name, "lang": lang} for lang, path in texts],
        "languages": languages,
        "updates": len(history),
        "first_loss": history[0]["loss"],
        "last_loss": sum(last_losses) / len(last_losses),
    }


def _card(unit: str, record: dict[str, Any]) -> str:
    """Return the model card."""
    templates = Environment(
        loader=PackageLoader("calque.senses", "."), trim_blocks=True, lstrip_blocks=True
    )
    template = templates.get_template("card.md.j2")
    return template.render(record=record, unit=unit, json=partial(json_text, indent=2)) + "\n"


def hold_out(text: Sentences, n: int) -> tuple[Sentences, Sentences]:
    """Hold out up to n evenly spaced sentences, except empty sentences and those that also occur in
    the training text.

    Raises:
        SettingError: n is more than half of the sentences, or no held-out sentence is left.
    """
    if not 0 < 2 * n <= len(text):
        raise SettingError(
            f"at most half of the {len(text)} sentences in {text.lang} can be held out, got {n}"
        )
    chosen = np.arange(n) * len(text) // n
    rest = text.take(np.setdiff1d(np.arange(len(text)), chosen))
    known = {sentence.words for sentence in rest}
    new = [k for k in chosen.tolist() if text[k].words and text[k].words not in known]
    if not new:
        raise SettingError(
            f"every held-out sentence in {text.lang} also occurs in the training text; hold out "
            "more"
        )
    return rest, text.take(np.array(new, dtype=np.int64))


def _about_senses(trained: Pretrained, dictionaries: Sequence[Dictionary]) -> dict[str, Any]:
    """Return statistics on the number of senses per word in each table, and on the dictionaries."""
    assert trained.softmax is not None
    tables = []
    for table in trained.softmax.senses:
        n_senses = table.active.sum(1).cpu().numpy()
        words_by_senses = {str(k): n for k, n in enumerate(np.bincount(n_senses).tolist()) if n}
        tables.append(
            {
                "words": len(n_senses),
                "senses_per_word": round(float(n_senses.mean()), 3),
                "several": round(float((n_senses > 1).mean()), 4),
                "words_by_senses": words_by_senses,
            }
        )
    about: dict[str, Any] = {"tables": tables}
    if trained.translations is not None:
        about["translated_words"] = dict(trained.translations.words)
        about["dictionaries"] = [
            {
                "path": Path(dictionary.path or "").name,
                "langs": list(dictionary.langs),
                "pairs": len(dictionary),
            }
            for dictionary in dictionaries
        ]
    return about


# -- presets ---------------------------------------------------------------------------------------
# Settings from Tables 6 to 8 and Appendix D of the paper. The following settings differ or are not
# given there:
# - A batch contains sentences, not segments of a stream (`unroll_steps`; 16 words, or 12 for two
#   languages).
# - The training length is set in updates (1,000,000, or 600,000 for several languages), not in
#   epochs (`n_epochs`).
# - The paper does not give ELMo's vocabulary size, or BERT's batch size, learning rate and block
#   length.
_PAPER: Mapping[str, dict[str, Any]] = {
    "elmo": {
        "dim": 512,
        "hidden": 4096,
        "layers": 2,
        "clip": 10.0,
        "dropout": 0.1,
        "batch": 256,
        "negatives": 8192,
        "tables": 2,
        "optimiser": "adagrad",
        "learning_rate": 0.2,
        "vocabulary": 100_000,
        "lower": True,
    },
    "bert": {
        "dim": 512,
        "layers": 4,
        "heads": 8,
        "inner": 2048,
        "positions": 512,
        "initial": 0.02,
        "dropout": 0.1,
        "vocabulary": 27_654,
        "lower": True,
    },
}
_ALGORITHMS = {"warmup": 20_000, "occurrences": 0, "rate": 0.01, "queue": 20_000}
_PAPER_SENSES: Mapping[str, dict[str, Any]] = {
    "elmo": {**_ALGORITHMS, "start": "fresh", "axes": 16, "below": 0.1},
    "bert": {**_ALGORITHMS, "start": "kept", "axes": 14, "below": 0.0},
}

# With 9 MB of text in each language, `small` takes up to about an hour on two cores, and `tiny`
# takes minutes.
_SMALL: Mapping[str, dict[str, Any]] = {
    "elmo": {
        "dim": 64,
        "hidden": 256,
        "vocabulary": 20_000,
        "batch": 64,
        "updates": 3000,
        "negatives": 2048,
        "tables": 2,
    },
    "bert": {
        "dim": 128,
        "layers": 4,
        "vocabulary": 12_000,
        "batch": 32,
        "updates": 6000,
        "length": 64,
        "positions": 128,
    },
}
_TINY: Mapping[str, dict[str, Any]] = {
    "elmo": {
        "dim": 32,
        "hidden": 64,
        "vocabulary": 5000,
        "batch": 32,
        "updates": 400,
        "negatives": 512,
        "tables": 2,
    },
    "bert": {
        "dim": 64,
        "layers": 2,
        "vocabulary": 4000,
        "batch": 16,
        "updates": 600,
        "length": 64,
        "positions": 128,
    },
}
PRESETS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "paper": _PAPER,
    "small": _SMALL,
    "tiny": _TINY,
}
