"""From plain text to a folder with an encoder trained on nothing else; and from such a model to perplexities."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.corpora import read_dictionary
from calque.distributed.environment import environment
from calque.encoders.folder import RUN_FILE
from calque.errors import SettingError
from calque.linking import Say, read_languages
from calque.runs.folder import TRAINING, check, writing
from calque.storage import write_text

if TYPE_CHECKING:
    from calque.pretraining.base import LanguageModel
    from calque.runs.language_models import LanguageModelRun
    from calque.tasks import Score
    from calque.text import Sentences


def pretrain(
    texts: Sequence[tuple[str, str]],
    *,
    out: str | Path,
    model: str = "bert",
    preset: str | None = None,
    senses: int | Mapping[str, Any] | None = None,
    dictionaries: Sequence[tuple[tuple[str, str], str]] = (),
    options: Mapping[str, Any] | None = None,
    pretokenized: bool = False,
    limit: int | None = None,
    overwrite: bool = False,
    checkpoint_every: int = 200,
    progress: bool = False,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train an encoder, and what it needs beside it: a tokenizer, or the words that it predicts.

    Arguments not listed here are the options of `calque pretrain`.

    Args:
        texts: languages and files, one sentence a line; several files of one language are read one after the other.
        out: folder for the result, which appears when it is complete. Until then everything is in `.OUT.calque-part`; a run that
            was stopped goes on from what it finds there, the tokenizer included.
        preset: a name in `PRESETS`, for what neither `senses` nor `options` say.
        senses: how many senses a word has at most, or the options of `calque.pretraining.senses.Senses`; None for a plain
            model.
        dictionaries: pairs of languages of the text, and files, whose translations the senses learn from. Then the
            languages are seen in equal shares, unless `options` say else.
        options: keyword arguments of `Bert` or `Elmo`, in `calque.runs.language_models`.

    Returns:
        what was done, as `calque-run.json` has it; `scores`, if there are any, are those on what was held out.

    Raises:
        SettingError: a finished encoder in `out`; a model, a preset or a dictionary's language that there is not; a
            dictionary, but no senses.
        MissingExtraError: a library that the model needs is not installed; before anything is computed.
    """
    from calque.distributed import is_first
    from calque.runs.language_models import MODELS

    check(out, overwrite=overwrite)
    langs = list(dict.fromkeys(lang for lang, _ in texts))
    if model not in MODELS:
        raise SettingError(f"unknown model {model!r} to pretrain, expected {' or '.join(MODELS)}")
    _check_dictionaries(dictionaries, langs, senses)
    settings = settings_for(
        model, preset=preset, senses=senses, langs=langs, translated=bool(dictionaries), options=options or {}
    )
    run = MODELS[model](**settings)
    check_warmup(run.method)
    opened = [read_dictionary(path, langs=pair) for pair, path in dictionaries]
    corpora = run.training_part(read_languages(texts, pretokenized=pretokenized, limit=limit, say=say))
    with writing(out, overwrite=overwrite) as folder:
        run.train(
            corpora, folder / TRAINING, say, dictionaries=opened, checkpoint_every=checkpoint_every, progress=progress
        )
        named = {} if preset is None else {"preset": preset}
        record = {**_record(run, corpora, texts), **named, **run.figures(Path(out).name, opened)}
        if is_first():
            run.save(folder)
            write_text(folder / RUN_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
            write_text(folder / "README.md", _card(run, record))
    return record


def settings_for(
    model: str, *, preset: str | None, senses: int | Mapping[str, Any] | None, langs: Sequence[str], translated: bool,
    options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Keyword arguments of `Bert` or `Elmo`: those of a preset, and over them those that are named."""
    from calque.pretraining.senses import Senses

    equal = {"alpha": 0.0} if translated else {}
    settings = {**of_model(preset, model, len(langs) > 1), **equal, **options}
    if senses is None:
        return settings
    given = {"senses": senses} if isinstance(senses, int) else dict(senses)
    return {**settings, "senses": Senses(**{**of_senses(preset, model), **given})}


def pair_of(name: str, langs: Sequence[str]) -> tuple[str, str] | None:
    """The two languages that `en-de` names, either of which may have a hyphen of its own; None where they are not two of
    these."""
    return next(((a, b) for a in langs for b in langs if f"{a}-{b}" == name and a != b), None)


def _check_dictionaries(
    dictionaries: Sequence[tuple[tuple[str, str], str]], langs: Sequence[str], senses: int | Mapping[str, Any] | None
) -> None:
    if dictionaries and senses is None:
        raise SettingError("a dictionary translates senses: say how many a word has at most, 2 or more")
    for pair, path in dictionaries:
        if pair[0] == pair[1] or not set(pair) <= set(langs):
            raise SettingError(
                f"dictionary {path} is of {' and '.join(pair)}, expected two languages of the text, which is in "
                f"{', '.join(langs)}"
            )


def check_warmup(method: LanguageModel) -> None:
    """Complain of a training that ends before there is more than one sense.

    Raises:
        SettingError: it does.
    """
    if method.senses is None:
        return
    warmup = method.senses.warmup_of(method.updates)
    if warmup >= method.updates:
        raise SettingError(
            f"the warm-up of {warmup:,} updates with one sense leaves none of {method.updates:,} to learn senses in: "
            "train longer, or shorten the warm-up"
        )


def _record(
    run: LanguageModelRun, corpora: Mapping[str, Sentences], texts: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    method = run.method
    mixture, history = method.mixture, method.history
    return {
        **environment(),
        "settings": method.settings(),
        "vocabulary": run.vocabulary_size,
        "parameters": run.parameters,
        **({"lower_case": True} if run.lower else {}),
        "texts": [{"path": Path(path).name, "lang": lang} for lang, path in texts],
        "languages": {
            lang: {
                "sentences": len(corpora[lang]),
                run.unit: run.size(corpora[lang], blocks),
                "passes": round(method.updates / mixture.steps_per_epoch * mixture.drawn[lang] / len(blocks), 2),
            }
            for lang, blocks in mixture.languages.items()
        },
        "updates": len(history),
        "first_loss": history[0]["loss"],
        "last_loss": sum(line["loss"] for line in history[-100:]) / len(history[-100:]),
    }


def _card(run: LanguageModelRun, record: dict[str, Any]) -> str:
    unit, front, text = run.unit, *run.card(record)
    rows = [f"| {lang} | {r['sentences']:,} | {r[unit]:,} | {r['passes']} |" for lang, r in record["languages"].items()]
    lines = [
        "---", *front, "---", "", *text,
        f"| language | sentences | {unit} | passes |", "|---|---:|---:|---:|", *rows, "",
        f"Texts: {', '.join(file['path'] for file in record['texts'])}{', in lower case' if run.lower else ''}.", "",
        *(f"{score['metric'].split('.')[0].capitalize()} of {score['data']} in {score['languages'][0]}: {score['value']:.1f}.\n"
          for score in record.get("scores", [])),
        "## Settings", "", "```json", json.dumps(record["settings"], indent=2), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def perplexity(
    encoder: str,
    texts: Sequence[tuple[str, str]],
    *,
    share: float = 0.15,
    pretokenized: bool = False,
    limit: int | None = None,
    seed: int = 0,
    say: Say = lambda line: None,
) -> list[Score]:
    """Perplexity of hidden words in each language; of an ELMo, of each word that comes next. Where senses are predicted, p
    of a word is the sum over its senses.

    Arguments not listed here are the options of `calque perplexity`.

    Args:
        texts: languages and files, one sentence a line.

    Raises:
        InputError: no masked language model there.
    """
    from calque.encoders.elmo_files import file_pair
    from calque.encoders.loading import BUNDLED, load_encoder
    from calque.encoders.sense_files import has_senses
    from calque.pretraining.bidirectional import SOFTMAX_FILE, WordModel
    from calque.pretraining.sense_reader import open_masked
    from calque.pretraining.softmax import SenseSoftmax
    from calque.tasks.perplexity import masked_perplexity, word_perplexity

    sentences = read_languages(texts, pretokenized=pretokenized, limit=limit, say=say)
    names = {lang: ", ".join(Path(path).name for language, path in texts if language == lang) for lang in sentences}
    folder = Path(encoder)
    if (folder / SOFTMAX_FILE).is_file() or (has_senses(folder) and file_pair(folder) is not None):
        words, name = WordModel.open(encoder), Path(encoder).resolve().name
        return [
            score
            for lang, text in sentences.items()
            for score in word_perplexity(words, text, seed=seed, data=names[lang], name=name)
        ]
    loaded, where = load_encoder(encoder), str(BUNDLED.get(encoder, encoder))
    model, tokenizer = open_masked(where)
    model.to(loaded.device).eval()  # type: ignore[attr-defined]
    senses = None
    if has_senses(where):
        words, dim = model.config.vocab_size, model.config.hidden_size
        senses = SenseSoftmax.open(where, words=words, dim=dim, tables=1).to(model.device)
    return [
        masked_perplexity(
            model, loaded.subwords, text, share=share, mask_id=tokenizer.mask_token_id, senses=senses, seed=seed,  # type: ignore[attr-defined]
            data=names[lang], name=loaded.name,
        )
        for lang, text in sentences.items()
    ]  # fmt: skip


# -- presets -----------------------------------------------------------------------------------------------------------
# Settings under a name: those of the Multi-sense paper, and smaller ones that can be compared alike. A preset holds for a model
# with senses and without, so that the two differ in nothing else. Whatever is named beside it counts instead.
Settings = dict[str, Any]

# Tables 6 to 8 of the paper, and Appendix D. Where it gives no number, or one that has no counterpart, ours stay:
# - a batch is of sentences, not of pieces of 20 words (12, with two languages) of a stream (`unroll_steps`);
# - an epoch (`n_epochs`) is counted in updates: 1,000,000, or 600,000 for several languages;
# - of ELMo the size of the vocabulary, of BERT the batch, the learning rate and the length of a block.
_PAPER: Mapping[str, Settings] = {
    "elmo": {
        "dim": 512, "hidden": 4096, "layers": 2, "clip": 10.0, "dropout": 0.1, "batch": 256, "negatives": 8192, "tables": 2,
        "optimiser": "adagrad", "learning_rate": 0.2, "vocabulary": 100_000, "lower": True,
    },
    "bert": {
        "dim": 512, "layers": 4, "heads": 8, "inner": 2048, "positions": 512, "segments": 2, "initial": 0.02,
        "dropout": 0.1, "vocabulary": 27_654, "lower": True,
    },
}  # fmt: skip
_ALGORITHMS: Settings = {
    "warmup": 20_000,
    "occurrences": 0,
    "rate": 0.01,
    "queue": 20_000,
    "centred": False,
    "whiten": 0.0,
    "joint": False,
}
_PAPER_SENSES: Mapping[str, Settings] = {
    "elmo": {**_ALGORITHMS, "start": "fresh", "axes": 16, "below": 0.1},
    "bert": {**_ALGORITHMS, "start": "kept", "axes": 14, "below": 0.0},
}

# About an hour at most on two cores, with 9 MB of text of each language; and minutes.
_SMALL: Mapping[str, Settings] = {
    "elmo": {"dim": 64, "hidden": 256, "vocabulary": 20_000, "batch": 64, "updates": 3000, "negatives": 2048, "tables": 2},
    "bert": {"dim": 128, "layers": 4, "vocabulary": 12_000, "batch": 32, "updates": 6000, "length": 64, "positions": 128},
}  # fmt: skip
_TINY: Mapping[str, Settings] = {
    "elmo": {"dim": 32, "hidden": 64, "vocabulary": 5000, "batch": 32, "updates": 400, "negatives": 512, "tables": 2},
    "bert": {"dim": 64, "layers": 2, "vocabulary": 4000, "batch": 16, "updates": 600, "length": 64, "positions": 128},
}
PRESETS: Mapping[str, Mapping[str, Settings]] = {"paper": _PAPER, "small": _SMALL, "tiny": _TINY}


def of_model(preset: str | None, model: str, several: bool) -> Settings:
    """What a preset says of a language model.

    Raises:
        SettingError: no such preset.
    """
    if preset is None:
        return {}
    if preset not in PRESETS:
        raise SettingError(f"unknown preset {preset!r}, expected {', '.join(PRESETS)}")
    settings = dict(PRESETS[preset][model])
    if preset == "paper":
        settings["updates"] = 600_000 if several else 1_000_000
    return {**settings, **({"alpha": 0.0} if several else {})}


def of_senses(preset: str | None, model: str) -> Settings:
    """Return what a preset says of the senses; `small` and `tiny` have the defaults. How many there are is not among it: 5 as
    published, or 3 with two languages."""
    return dict(_PAPER_SENSES[model]) if preset == "paper" else {}
