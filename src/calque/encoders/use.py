"""Code for a model card: how to read an encoder's word vectors without calque."""

from __future__ import annotations

from typing import Any

_POOLED = {"last": ("[-1]", "its last subword"), "first": ("[0]", "its first subword"),
           "mean": (".mean(0)", "the mean of its subwords")}  # fmt: skip


def word_vector_code(vectors: dict[str, Any]) -> list[str]:
    """Complete code for word vectors, with the layer and the pooling that were aligned."""
    layer, n, pooling = vectors["layer"], vectors["n_layers"], vectors["pooling"]
    take, words = _POOLED[pooling]
    last = layer == n
    states = "model(**batch).last_hidden_state[0]"
    if not last:
        states = f"model(**batch, output_hidden_states=True).hidden_states[{layer}][0]"
    which = f"the last layer ({layer})" if last else f"layer {layer} of {n}, **not the last one**"
    space = vectors["add_prefix_space"]  # byte-level: a word is cut as it is after a space
    given = '[" " + word for word in words]' if space else "words"
    opened = _opened(vectors.get("adapted"), ", add_prefix_space=True" if space else "")
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
    ]  # fmt: skip


def _opened(base: str | None, options: str) -> list[str]:
    """Code that opens tokenizer and model, or the adapters (LoRA) of this folder on their base."""
    lines = [
        "from transformers import AutoModel, AutoTokenizer",
        "",
        'FOLDER = "."  # this folder, or its name on the hub',
    ]
    if base is None:
        return [
            *lines,
            f"tokenizer = AutoTokenizer.from_pretrained(FOLDER{options})",
            "model = AutoModel.from_pretrained(FOLDER).eval()",
        ]
    return [
        "from peft import PeftModel",
        *lines,
        f'BASE = "{base}"  # the encoder that these adapters are for: a folder, or a name on the hub',
        f"tokenizer = AutoTokenizer.from_pretrained(BASE{options})",
        "model = PeftModel.from_pretrained(AutoModel.from_pretrained(BASE), FOLDER).eval()",
    ]
