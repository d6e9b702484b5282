"""The command `calque encode`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calque.commands.base import Loading, say_unless
from calque.commands.checks import output_file
from calque.corpora.readers import AUTO
from calque.runs.settings import Limit, PlainFormat, Pretokenized, Quiet, file_name, language
from calque.spec import argument, option

ENCODER = "Encoder: Hugging Face name, folder, mini (bundled) or word vectors."


@dataclass(frozen=True, kw_only=True)
class Encode(Loading):
    """Write a vector for every word of a text."""

    encoder: str = argument(..., ENCODER, "ENCODER")
    text: str = argument(..., "Text file, one sentence per line (may be .gz or .zst).", "TEXT")
    lang: str = option(..., "Language of the text.", check=language)
    out: Path = option(
        ...,
        "Safetensors file for the tensors data [words, dim] and offsets [sentences + 1].",
        metavar="PATH",
        check=file_name,
    )
    format: PlainFormat = AUTO
    pretokenized: Pretokenized = False
    precision: str | None = option(
        None,
        "Precision of the forward pass: highest (float32) or bfloat16; default: the saved "
        "precision, or highest.",
    )
    limit: Limit = None
    quiet: Quiet = False

    def run(self) -> None:
        from calque.corpora import read_sentences
        from calque.encoders import load_encoder
        from calque.storage import locked

        output_file("--out", self.out, [self.text, self.encoder])
        sentences = read_sentences(
            self.text,
            lang=self.lang,
            format=self.format,
            pretokenized=self.pretokenized,
            limit=self.limit,
        )
        loading = self.loading()
        if self.precision is not None:
            loading["precision"] = self.precision
        encoder = load_encoder(self.encoder, **loading)
        with locked(self.out):
            embeddings = encoder.encode_to(self.out, sentences, progress=not self.quiet)
        rows = f"{embeddings.n_words:,} {encoder.rows} in {len(embeddings):,} sentences"
        say_unless(self.quiet)(f"{rows}, {embeddings.dim} dimensions: {self.out}")
