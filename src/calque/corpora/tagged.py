"""Read text with one tag per word (named entities, slots, parts of speech)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike, fspath

import numpy as np

from calque.annotated import Labels, TaggedText
from calque.corpora.lines import Losses, OnError
from calque.corpora.readers import AUTO, TAGGED, reader_of
from calque.corpora.stanzas import RawTags, TaggedSentence
from calque.offsets import offsets_of
from calque.spans import detect_scheme, to_bio, unknown_tag_fact, unknown_tags
from calque.text import Sentences
from calque.text_files import Flaw


def read_tagged(
    path: str | PathLike[str],
    *,
    lang: str,
    format: str = AUTO,
    column: int | str | None = None,
    on_error: OnError = "raise",
) -> TaggedText:
    """Read words with their tags; spans in any tagging scheme are converted to BIO (see
    `calque.spans`).

    Files may be compressed (gzip, zstd, xz, bzip2).

    Args:
        path: a file, a data set folder, or `hub:NAME` (see `rows.open_rows`).
        lang: language of the text.
        format: a format of the table `readers.TAGGED`, or a reader as `package.module:function`;
            `auto` detects the format from the name and the first 1,000 lines.

            - `columns`: one word per line, with blank lines between sentences. The first column
              contains the word and the last column the tag; tabs or spaces separate columns
              (CoNLL-2002, CoNLL-2003, WikiANN, PAN-X, MultiCoNER, `word⇥UPOS`). `-DOCSTART-` lines
              are skipped, and language prefixes of words (`en:` in WikiANN) are removed.
            - `numbered`: like `columns`, with word numbers in an additional first column: `id word
              tag …` (UNER), or `id word intent tag` if comments `# intent = …` precede the
              sentences (xSID).
            - `conllu`: ten columns, including the universal part of speech; see
              `conllu.read_treebank`.
            - `facebook`: `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization`; see
              `facebook.read_facebook`.
            - `hub`: rows of a data set with a list of words and a list of tags (strings, or numbers
              for which the data set defines names); requires the extra `hub`.
        column: column that contains the tags, given as a number from 1, as `upos` or `xpos`
            (CoNLL-U), or as a name (data sets).
        on_error: how to handle unusable sentences: `raise` an error, or `skip` them and count them
            in a `SkippedWarning`.

    Raises:
        InputError: the file cannot be read or contains no sentence; or, with `raise`, a row has the
            wrong number of columns, a word or its tag is missing, words are not numbered 1, 2, 3 …,
            a tag does not belong to the scheme of the other tags (`B_PER` or `i-PER` among `B-LOC`
            and `O`), or a line is not valid UTF-8.
        SettingError: an argument has an invalid value.
    """
    losses = Losses(path, on_error, "sentences")
    raw = reader_of(TAGGED, path, format)(path, lang=lang, column=column)
    if not isinstance(raw, RawTags):
        raw = RawTags(raw)
    sentences = list(losses.kept(raw.items))
    labels, offsets = _tags_of(sentences)
    scheme = raw.scheme or detect_scheme(labels.codes, labels.names, offsets)
    unknown = unknown_tags(labels.names, scheme)
    if unknown:
        sentences = list(losses.kept(_without_tags(sentences, unknown, labels.names)))
        labels, offsets = _tags_of(sentences)
    losses.settle(len(sentences))
    bio, n_repaired_tags = to_bio(labels.codes, labels.names, offsets, scheme)
    n_repaired_spans = sum(sentence.repaired for sentence in sentences)
    intents = [sentence.intent for sentence in sentences if sentence.intent is not None]
    return TaggedText(
        Sentences.of((sentence.words for sentence in sentences), lang),
        bio,
        Labels.of(intents) if intents else None,
        n_repaired_tags + n_repaired_spans,
        fspath(path),
        np.array([sentence.line for sentence in sentences], np.int64),
    )


def _tags_of(sentences: Sequence[TaggedSentence]) -> tuple[Labels, np.ndarray]:
    """Return the tags of all words, and the offsets of the sentences."""
    tags: list[str] = []
    for sentence in sentences:
        tags += sentence.tags
    return Labels.of(tags), offsets_of([len(sentence.tags) for sentence in sentences])


def _without_tags(
    sentences: Sequence[TaggedSentence], unknown: Sequence[str], names: Sequence[str]
) -> Iterator[TaggedSentence | Flaw]:
    """Yield each sentence, or a `Flaw` at the first word of the sentence that has an unknown tag.

    Args:
        unknown: tags that do not belong to the scheme of the other tags.
        names: all tags.
    """
    for sentence in sentences:
        place = next((k for k, tag in enumerate(sentence.tags) if tag in unknown), None)
        if place is None:
            yield sentence
            continue
        line = sentence.word_lines[place] if sentence.word_lines else sentence.line
        yield Flaw(line, "unknown tag", unknown_tag_fact(sentence.tags[place], names))
