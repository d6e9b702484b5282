"""From a language model and plain text to perplexities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calque.linking import Say, read_languages

if TYPE_CHECKING:
    from calque.tasks import Score


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
