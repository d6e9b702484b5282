"""The model card of an aligned encoder: what was done to which encoder with which text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calque.corpora.by_name import hub_ids
from calque.distributed.environment import environment
from calque.encoders.folder import RUN_FILE, read_about
from calque.storage import write_text
from calque.version import VERSION

_DECODERS = {"decoder_layers", "num_decoder_layers"}  # settings of models whose encoder has to be taken out


def write_card(folder: Path, encoder: Any, record: dict[str, Any]) -> None:
    """Write `README.md` and `calque-run.json` of an encoder that was just saved; `record` gets what follows from the folder."""
    record.pop("vectors", None)
    about = read_about(folder)
    record["kind"] = about.get("base", about.get("kind"))
    if about.get("kind") in ("huggingface", "adapters"):
        n_layers = about["layer"] if about.get("cut") else encoder.n_layers
        record["vectors"] = {"layer": about["layer"], "n_layers": n_layers, "pooling": about["pooling"],
                             "add_prefix_space": bool(encoder.subwords.needs_space),
                             "decoder": bool(_DECODERS & encoder.model.config.to_dict().keys())}  # fmt: skip
        if languages := encoder.subwords.languages:
            record["vectors"]["language"] = encoder.tokenizer.convert_ids_to_tokens(languages[""])
        if "adapted" in about:
            record["vectors"]["adapted"] = about["adapted"]["place"]
        if ("adapted" in about and not encoder.tokenizer.name_or_path) or encoder.standard:
            del record["vectors"]  # transformers has no such tokenizer, or does not standardise vectors
    model_card(folder, record)


def model_card(folder: Path, record: dict[str, Any]) -> None:
    """Write `README.md` (for people and the hub) and `calque-run.json` (the same, for programs) into the folder."""
    write_text(folder / RUN_FILE, json.dumps(environment() | record, indent=2, default=str, ensure_ascii=False) + "\n")
    languages = record.get("langs") or sorted({lang for text in record["texts"] for lang in text["langs"]})
    others = [lang for lang in languages if lang != record["towards"]]
    library = {"huggingface": "transformers", "adapters": "peft"}.get(record.get("kind", "huggingface"), "calque")
    data = hub_ids(text["path"] for text in record["texts"])
    front = ["---", f"library_name: {library}", "language:", *[f"- {lang}" for lang in languages],
             *(["datasets:", *[f"- {name}" for name in data]] if data else []),
             f"base_model: {record['encoder']}", "tags:", "- cross-lingual", "- word-alignment", "- calque", "---"]  # fmt: skip
    trained, plain = "updates" in record, "vectors" in record
    made = f"distilled from {record['teacher']}" if "teacher" in record else f"aligned by {record['method']}"
    lines = [
        *front, "",
        f"# {record['encoder']}, {made}", "",
        _done(record, others), "",
        *([f"**Not to be trusted**: the maps of {', '.join(record['failed'])} failed.", ""] if record.get("failed") else []),
        "## Use", "", *_use(record, others, plain), "",
        *_data(record["texts"]),
        *_left_out(record.get("counts", {}) | {"max_words": record["settings"].get("max_words")}),
        *([f"Word links: {record['words']['model']}, {record['words']['symmetrize']}.", ""] if "words" in record else []),
        "## Settings", "", "```json", json.dumps(record["settings"], indent=2, default=str), "```", "",
    ]  # fmt: skip
    if trained:
        lines += ["## Training", "", "```json", json.dumps(record["schedule"], indent=2, default=str), "```", "",
                  f"{record['updates']:,} updates; loss {record['first_loss']:.4g} at the first and "
                  f"{record['last_loss']:.4g} at the last.", ""]  # fmt: skip
    if cost := record.get("sentence_cost"):
        lines += ["## What alignment cost sentence vectors", "",
                  f"Of {cost['sentences']:,} training sentences in {cost['lang']}, the cosines of all pairs correlate "
                  f"{cost['correlation']:.2f} with those before alignment. Their mean, the cosine of unrelated sentences, is "
                  f"{cost['unrelated_before']:.2f} before and {cost['unrelated_after']:.2f} after.", ""]  # fmt: skip
    lines += [
        "## Scores",
        "",
        "None recorded yet: `calque evaluate` measures them, and `--record` writes them here.",
        "",
    ]
    write_text(folder / "README.md", "\n".join(lines))


def _use(record: dict[str, Any], others: list[str], plain: bool) -> list[str]:
    """Return how to get vectors of the folder: of sentences where these were trained, else of words."""
    if "teacher" not in record:
        return _with_transformers(record["vectors"]) if plain else _with_calque(record, others)
    return [
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        'FOLDER = "."  # this folder, or its name on the hub',
        'vectors = SentenceTransformer(FOLDER).encode(["a bank by the river"])',
        "```",
        "",
        "With calque: `calque evaluate FOLDER sentences`, and `sentence_vectors` of `calque.encoders.sentence_vectors`.",
    ]


def _data(texts: list[dict[str, Any]]) -> list[str]:
    """Return a table of the texts: their names, languages, and whatever was counted in them."""
    if not texts:
        return []
    counted = list(dict.fromkeys(name for text in texts for name in text if name not in ("path", "langs")))
    header = ["text", "languages", *(name.replace("_", " ") for name in counted)]
    rows = [
        [text["path"], "-".join(text["langs"]), *(f"{text[name]:,}" if name in text else "" for name in counted)]
        for text in texts
    ]
    lines = [header, ["---", "---", *["---:"] * len(counted)], *rows]
    return ["## Data", "", *(f"| {' | '.join(line)} |" for line in lines), ""]


def _done(record: dict[str, Any], others: list[str]) -> str:
    """Return what the method did, in a sentence. Contrast, senses and projections move all languages, all others one side towards
    the other."""
    langs, towards, method = ", ".join(others), record["towards"], record["method"]
    if method == "contrastive":
        what = f"Words of {langs} and the words in {towards} that translate them were trained to have similar vectors"
    elif record["settings"].get("offset") is False:
        what = f"What tells languages apart was removed from the word vectors of {langs} and {towards}"
    elif method == "distillation":
        what = f"Sentences in {', '.join([towards, *others])} were trained to have the sentence vectors of *{record['teacher']}*"
    else:
        what = f"The word vectors of {langs} were moved towards those of {towards}"
    means = f" Then each language's mean was moved onto that of {towards}." if record["settings"].get("centre") else ""
    return f"{what}, with calque {VERSION} by the method *{method}*.{means}"


def _left_out(counts: dict[str, Any]) -> list[str]:
    """Return what of the texts was not trained on."""
    names = {
        "too_long": "sentence pairs longer than {max_words} words on a side",
        "without_links": "sentence pairs without word links",
        "links_without_vector": "links of words that have no vector",
        "truncated_words": "words beyond the encoder's length limit",
    }
    limit = counts.get("max_words")
    reasons = [f"{counts[name]:,} {what.format(max_words=limit)}" for name, what in names.items() if counts.get(name)]
    return [f"Not used in training: {', '.join(reasons)}.", ""] if reasons else []


_POOLED = {"last": ("[-1]", "its last subword"), "first": ("[0]", "its first subword"),
           "mean": (".mean(0)", "the mean of its subwords")}  # fmt: skip


def _with_transformers(vectors: dict[str, Any]) -> list[str]:
    """Return complete code for word vectors, with the layer and the pooling that were aligned."""
    layer, n, pooling = vectors["layer"], vectors["n_layers"], vectors["pooling"]
    take, words = _POOLED[pooling]
    last = layer == n
    states = "model(**batch).last_hidden_state[0]"
    if not last:
        states = f"model(**batch, output_hidden_states=True).hidden_states[{layer}][0]"
    which = f"the last layer ({layer})" if last else f"layer {layer} of {n}, **not the last one**"
    space = vectors["add_prefix_space"]  # byte-level: a word is cut as it is after a space
    given = '[" " + word for word in words]' if space else "words"
    part = ".get_encoder()" if vectors.get("decoder") else ""
    opened = _opened(vectors.get("adapted"), ", add_prefix_space=True" if space else "", part)
    alone = "transformers and PEFT" if "adapted" in vectors else "transformers alone"
    return [
        f"A word's vector is taken from {which}: {words}. With {alone}:", "",
        "```python",
        "import torch",
        *opened,
        "",
        "",
        "def word_vectors(words):",
        f'    """One row per word: layer {layer}, {words}."""',
        f'    batch = tokenizer({given}, is_split_into_words=True, return_tensors="pt")',
        "    with torch.no_grad():",
        f"        states = {states}",
        "    owner = batch.word_ids()  # of each subword",
        "    subwords = [[k for k, word in enumerate(owner) if word == number] for number in range(len(words))]",
        f"    return torch.stack([states[of]{take} for of in subwords])",
        "",
        "",
        'vectors = word_vectors("a bank by the river".split())',
        "```",
        "",
        "With calque: `calque.load_encoder(FOLDER).encode(sentences)`.",
        *([f"The tokenizer alone marks every text as {vectors['language']}; calque marks each sentence as its own language."]
          if "language" in vectors else []),
    ]  # fmt: skip


def _opened(base: str | None, options: str, part: str) -> list[str]:
    """Return code that opens tokenizer and model (or a part of it), or the adapters (LoRA) of this folder on their base."""
    lines = [
        "from transformers import AutoModel, AutoTokenizer",
        "",
        'FOLDER = "."  # this folder, or its name on the hub',
    ]
    if base is None:
        return [
            *lines,
            f"tokenizer = AutoTokenizer.from_pretrained(FOLDER{options})",
            f"model = AutoModel.from_pretrained(FOLDER).eval(){part}",
        ]
    return [
        "from peft import PeftModel",
        *lines,
        f'BASE = "{base}"  # the encoder that these adapters are for: a folder, or a name on the hub',
        f"tokenizer = AutoTokenizer.from_pretrained(BASE{options})",
        f"model = PeftModel.from_pretrained(AutoModel.from_pretrained(BASE), FOLDER).eval(){part}",
    ]


def _with_calque(record: dict[str, Any], others: list[str]) -> list[str]:
    lang = others[0] if others else record["towards"]
    lines = [
        "```python",
        "import calque",
        "",
        'FOLDER = "."  # this folder',
        "encoder = calque.load_encoder(FOLDER)  # the encoder with its maps or adapters",
        f'vectors = encoder.encode([calque.Sentence(("one", "word", "each"), lang="{lang}")])[0]',
        "```",
    ]
    if record.get("kind", "huggingface") == "huggingface":
        lines += [
            "",
            "Without calque, `AutoModel` gives the encoder *before* mapping; `maps.safetensors` holds, for each language and",
            "layer, what maps a word vector x: `(x - source_mean) @ matrix + target_mean`.",
        ]
    return lines
