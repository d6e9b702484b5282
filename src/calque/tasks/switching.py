"""Code-switched copies of training text (Qin et al. 2020), for every task whose answers are of texts, words and spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from calque.annotated import LabelledText, ProbeText, TaggedText, Treebank
from calque.corpora import read_dictionary
from calque.corpora.choices import ChoiceText
from calque.corpora.languages import name_and_path
from calque.corpora.squad import QuestionText
from calque.corpora.word_pairs import WordPairText
from calque.errors import SettingError
from calque.offsets import ranges
from calque.tasks.datasets import Dataset, Switched
from calque.wordalign import CodeSwitch, Translations

if TYPE_CHECKING:
    from calque.tasks.inputs import Inputs
    from calque.text import Sentences

D = TypeVar("D")
TUNED_COPIES = 5  # where they cost but subwords


def switched(each: Dataset[D], switch: CodeSwitch, copies: int = 1) -> Dataset[D]:
    """A training text with copies that are learnt from in its place; development text, held out of it or apart, stays as it is.

    Every word stands for one word at its place, so labels of words, spans and trees are those of the original.

    Args:
        each: the text.
        switch: how words are replaced.
        copies: each text is learnt from in one of so many at a time, drawn anew at each visit. The paper draws the words anew
            for each batch: more copies come nearer to that, and frozen features are to be computed for all of them.

    Raises:
        SettingError: other text than one of sentences with answers, or no word has changed.
    """
    if copies < 1:
        raise SettingError(f"{copies} code-switched copies, expected 1 or more")
    data: Any = each.data
    if isinstance(data, ChoiceText | LabelledText | QuestionText | WordPairText):
        columns = data.texts
    elif isinstance(data, ProbeText | TaggedText | Treebank):
        columns = (data.sentences,)
    else:
        raise SettingError(f"{each.name}: {type(data).__name__} cannot be code-switched; leave out --code-switch")
    rows = np.full((copies, len(data)), -1, dtype=np.int64)
    parts, counts, first = [], {}, 0
    for number in range(copies):
        changed, texts, counted = switch.copy(columns, number)
        rows[number, changed] = first + np.arange(len(changed))
        first += len(changed)
        parts.append((changed, texts))
        counted |= {"of_texts": len(data)}
        counts = {name: counts.get(name, 0) + n for name, n in counted.items()}
    if not first:
        langs = ", ".join(switch.translations)
        raise SettingError(
            f"{each.name}: no word was replaced by one in {langs}: are the dictionaries from {each.lang}?"
        )
    taken = data.take(np.concatenate([changed for changed, _ in parts]))
    joined = [type(column).joined([texts[k] for _, texts in parts]) for k, column in enumerate(columns)]
    new = _with_words(taken, joined)
    record = {"texts": switch.texts, "words": switch.words, "seed": switch.seed, "copies": copies,
              "translations": {lang: len(found) for lang, found in switch.translations.items()},
              "entries_of_several_words": sum(found.several for found in switch.translations.values()),
              "counts": counts}  # fmt: skip
    return replace(each, switched=Switched(new, rows, record))


def _with_words(data: Any, columns: Sequence[Sentences]) -> Any:
    """A text with other words in the places of its own."""
    if isinstance(data, ChoiceText | LabelledText | WordPairText):
        return replace(data, texts=tuple(columns))
    if isinstance(data, QuestionText):  # each question gets a passage of its own
        words = data.word_offsets()
        places = data.places[ranges(words[data.owner], np.diff(words)[data.owner])]
        return replace(
            data, questions=columns[0], passages=columns[1], written=tuple(data.written[k] for k in data.owner), places=places,
            owner=np.arange(len(data)),
        )  # fmt: skip
    return replace(data, sentences=columns[0])


def with_copies(
    train: list[Dataset[D]], inputs: Inputs, given: Mapping[str, Any], *, tune: bool = False
) -> list[Dataset[D]]:  # fmt: skip
    """Training texts with copies by the dictionaries and the parallel texts that the inputs name; as they are without these.

    Args:
        train: the texts, all in one language.
        inputs: `code_switch` and `code_switch_from` are read.
        given: those of `texts`, `words` and `seed` of `CodeSwitch`, and `copies` of `switched`, that are not the default.
        tune: whether copies cost but subwords, so that the default is to have several.

    Raises:
        SettingError: a file without its language, training text in several languages, or settings without files.
    """
    if not inputs.code_switch and not inputs.code_switch_from:
        if given:
            option = f"--code-switch-{next(iter(given))}"
            raise SettingError(f"{option} is for code-switched training text: add --code-switch LANG=DICTIONARY")
        return train
    if inputs.project:
        raise SettingError("--code-switch and --project cannot be combined: leave one out")
    sources = list(dict.fromkeys(each.lang for each in train))
    if len(sources) > 1:
        raise SettingError(
            f"--code-switch is for training text in one language, which dictionaries are from; got {', '.join(sources)}"
        )
    found: dict[str, list[Translations]] = {}
    for name in ("code_switch", "code_switch_from"):
        for file in getattr(inputs, name):
            lang, path = name_and_path(file)
            option = f"--{name.replace('_', '-')}"
            if not lang or not path:
                raise SettingError(f"{option} {file}: say the language before the name, as in de={path or 'FILE'}")
            if lang == sources[0]:
                raise SettingError(f"{option} {file}: the training text is in {lang} itself; expected another language")
            langs = (sources[0], lang)
            read = _linked if name == "code_switch_from" else _listed
            found.setdefault(lang, []).append(read(inputs, path, langs))
    given = {"copies": TUNED_COPIES if tune else 1, **given}
    copies = given.pop("copies")
    switch = CodeSwitch({lang: Translations.joined(parts) for lang, parts in found.items()}, **given)
    copied = [switched(each, switch, copies) for each in train]
    for each in copied:
        if each.switched is not None:
            inputs.say(f"{each.name}: {told(each.switched.record)}")
    return copied


def _listed(inputs: Inputs, path: str, langs: tuple[str, str]) -> Translations:
    found = Translations.of(read_dictionary(path, langs=langs))
    several = f", {found.several:,} entries of several words left out" if found.several else ""
    inputs.say(f"{path}: {langs[1]} translations of {len(found):,} words{several}")
    return found


def _linked(inputs: Inputs, path: str, langs: tuple[str, str]) -> Translations:
    words = replace(inputs.words.unlimited, pretokenized=False)
    corpus = words.read(path, langs)
    found = Translations.linked(corpus, words.link(corpus))
    inputs.say(
        f"{path}: {langs[1]} translations of {len(found):,} words, by the links of {len(corpus):,} sentence pairs"
    )
    return found


# -- what is said of it ------------------------------------------------------------------------------------------------
def settings_of(train: Sequence[Dataset[Any]]) -> dict[str, Any]:
    """What decides the scores, as a name that tells results apart, and in full by text; nothing where nothing was switched."""
    records = {each.name: each.switched.record for each in train if each.switched is not None}
    names = dict.fromkeys(_name(record) for record in records.values())
    return {"code_switch": "; ".join(names), "code_switched": records} if records else {}


def told(record: Mapping[str, Any]) -> str:
    """How much of a text was switched, in words."""
    n, copies = record["counts"], record["copies"]
    share = n["words_changed"] / max(1, n["words"])
    many = f" in {copies} copies" if copies > 1 else ""
    return (
        f"{n['texts_changed']:,} of {n['of_texts']:,} texts{many} are code-switched; of the {n['words']:,} words of "
        f"those drawn {share:.0%} changed, {n['words_without_translation']:,} had no translation into the language drawn"
    )


def _name(record: Mapping[str, Any]) -> str:
    langs = ", ".join(record["translations"])
    seed = f", seed {record['seed']}" if record["seed"] else ""
    return f"{langs}: {record['texts']:g} of texts, {record['words']:g} of words, copies {record['copies']}{seed}"
