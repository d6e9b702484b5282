"""Write model cards for aligned encoders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from jinja2 import Environment, PackageLoader

from calque.corpora.by_name import hub_ids
from calque.distributed.environment import environment
from calque.encoders.card_blocks import CARD_FILE, whole_card
from calque.encoders.folder import RUN_FILE, read_about
from calque.encoders.sentence_folders import modules_of
from calque.encoders.sentence_transformers import MAPPED_MODULE, read_recipe
from calque.errors import CalqueError
from calque.storage import JsonObject, json_text, write_text
from calque.version import VERSION

_UNUSED = {
    "too_long": "sentence pairs with more than {max_words} words on one side",
    "without_links": "sentence pairs without word links",
    "links_without_vector": "word links with a word that has no vector",
    "truncated_words": "words beyond the encoder's length limit",
}


class Described(Protocol):
    """An encoder with a model card; this module cannot import the class `Encoder`, which imports
    this module.
    """

    def vector_settings(self, about: JsonObject) -> JsonObject | None: ...


def write_card(folder: Path, encoder: Described, record: JsonObject) -> None:
    """Write `README.md` and `calque-run.json` for a saved encoder; add the encoder's kind and
    vector settings to `record`.
    """
    record.pop("vectors", None)
    about = read_about(folder)
    record["kind"] = about.get("kind")
    if "base_folder" in about and about.get("kind") != "mapped":
        record["kind"] = "standardized"
    # A class of another package may be derived from an encoder that transformers can open.
    if about.get("kind") in ("huggingface", "adapters"):
        vectors = encoder.vector_settings(about)
        if vectors is not None:
            if "adapted" in about:
                vectors["own_tokenizer"] = (folder / "tokenizer.json").is_file()
            elif about.get("own_pooling", True):
                vectors["sentences"] = _is_sentence_encoder(folder)
            record["vectors"] = vectors
    model_card(folder, record)


def _is_sentence_encoder(folder: Path) -> bool:
    """Return whether sentence-transformers opens a folder and computes the same sentence vectors as
    calque.
    """
    try:
        return bool(modules_of(folder)) and bool(read_recipe(folder)["modes"])
    except CalqueError:  # calque does not support a module or a setting of the folder
        return False


def model_card(folder: Path, record: JsonObject) -> None:
    """Write the model card (`README.md`) and the record (`calque-run.json`) to the folder."""
    run = json_text(environment() | record, indent=2, default=str, ensure_ascii=False)
    write_text(folder / RUN_FILE, run + "\n")
    text_languages: set[str] = set()
    counted: dict[str, None] = {}  # names of the counts of all texts, in order
    for text in record["texts"]:
        text_languages.update(text.get("langs", ()))
        counted |= dict.fromkeys(name for name in text if name not in ("path", "langs"))
    languages = record.get("langs") or sorted(text_languages)
    libraries = {"huggingface": "transformers", "adapters": "peft"}
    base = record["encoder"]
    on_hub = base.count("/") == 1 and base[0] not in "/.~" and not Path(base).exists()
    templates = Environment(
        loader=PackageLoader("calque.encoders", "."), trim_blocks=True, lstrip_blocks=True
    )
    card = templates.get_template("card.md.j2").render(
        record=record,
        base=base if on_hub else None,
        modules=(folder / "modules.json").is_file(),
        mapped=record.get("kind") == "mapped",
        mapped_module=any(module.get("type") == MAPPED_MODULE for module in modules_of(folder)),
        library=libraries.get(record.get("kind", "huggingface"), "calque"),
        languages=languages,
        others=[lang for lang in languages if lang != record["towards"]],
        data=hub_ids(text["path"] for text in record["texts"]),
        counted=list(counted),
        unused=_unused(record),
        version=VERSION,
        json=partial(json_text, indent=2, default=str),
    )
    write_text(folder / CARD_FILE, whole_card(card))


def _unused(record: JsonObject) -> list[str]:
    """Return a description of each kind of text that the alignment did not use, with its count."""
    counts, limit = record.get("counts", {}), record["settings"].get("max_words")
    unused = []
    for name, description in _UNUSED.items():
        if counts.get(name):
            unused.append(f"{counts[name]:,} {description.format(max_words=limit)}")
    return unused
