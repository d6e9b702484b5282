"""Artificial results in the formats of `calque study`, `calque demo` and `calque analyze`."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LANGS = ("de", "es", "fr", "zh", "bg", "tr", "ru", "it")
METHODS = ("base", "rotation", "normalized-rotation", "finetune", "contrastive")
TASKS = ("retrieval", "ner", "pos", "nli", "word-alignment")
GAIN = dict(zip(METHODS, (0.0, 0.04, 0.045, 0.12, 0.3), strict=True))
METRIC = {"ner": "f1", "pos": "accuracy", "nli": "accuracy"}
EFFECT = {"retrieval": 1, "ner": 0.25, "pos": 0.2, "nli": 0.02, "word-alignment": -1}
WORDS = (
    ("house", "Haus"),
    ("river", "Fluss"),
    ("dog", "Hund"),
    ("green", "grün"),
    ("light", "Licht"),
)


def line(
    task: str,
    langs: Sequence[str],
    metric: str,
    value: float | None,
    half: float | None,
    *,
    n: int = 1000,
    data: str = "",
    settings: dict[str, Any] | None = None,
    percent: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return a score as a result line; omit `training_seed` for deterministic encoders, and set
    `half=None` for no interval.
    """
    ends = (None, None) if value is None or half is None else (value - half, value + half)
    return {
        "training_seed": None,
        **more,
        "task": task,
        "data": data or f"{task}.{langs[-1]}.tsv",
        "languages": list(langs),
        "metric": metric,
        "value": value,
        "low": ends[0],
        "high": ends[1],
        "n": n,
        "seed": 0,
        "settings": settings or {},
        "percent": percent,
        "queries": n,
    }


def study(
    langs: Sequence[str] = LANGS,
    methods: Sequence[str] = METHODS,
    tasks: Sequence[str] = TASKS,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Return the scores of a study in which each zero-shot score has three training seeds."""
    rng, found = random.Random(seed), []
    for method in methods:
        name = "mini" if method == "base" else f"mini+{method}"
        about = {"encoder": name, "encoder_fingerprint": f"{METHODS.index(method):032x}"}
        head = {
            "encoder": "mini",
            "method": method,
            "supervision": "" if method == "base" else "parallel",
        }
        for task in tasks:
            for lang in [*([] if task in ("retrieval", "word-alignment") else ["en"]), *langs]:
                value = (
                    0.6
                    if task == "word-alignment"
                    else rng.uniform(0.1, 0.3) + 0.2 * (task != "retrieval")
                )
                value += EFFECT[task] * GAIN[method] * rng.uniform(0.6, 1.4) * (lang != "en")
                if task == "retrieval":
                    for part, share in (("unseen", 0.6), ("all", 1)):
                        for metric in (f"accuracy.{part}", f"accuracy.{part}.en-{lang}"):
                            found.append(
                                line(
                                    task,
                                    ("en", lang),
                                    metric,
                                    share * value,
                                    0.015,
                                    settings=about,
                                    n=1310,
                                    **head,
                                )
                            )
                elif task == "word-alignment":
                    for metric in ("aer", "precision"):
                        found.append(
                            line(
                                task,
                                ("en", lang),
                                metric,
                                value,
                                0.02,
                                settings=about,
                                n=759,
                                **head,
                            )
                        )
                else:
                    own = {
                        "features": "frozen",
                        "seeds": [0, 1, 2],
                        "values": [value] * 3,
                        "sd": 0.01234,
                    }
                    found.append(
                        line(
                            task,
                            ("en", lang),
                            METRIC[task],
                            value,
                            0.015,
                            settings={**about, **own},
                            **head,
                        )
                    )
    return found


def analyses(
    langs: Sequence[str] = LANGS,
    encoders: Sequence[str] = ("base", "rotation", "contrastive"),
    pairs: int = 60,
) -> list[dict[str, Any]]:
    """Return the findings of all analyses in `calque analyze` except correlations."""
    rng, found = random.Random(1), []
    for encoder in encoders:
        gain, about = (
            GAIN[encoder],
            {"encoder": encoder, "encoder_fingerprint": f"{METHODS.index(encoder):032x}"},
        )
        for lang in langs:
            pair, base = ("en", lang), rng.uniform(0.1, 0.2)

            def add(analysis, metric, value, half=0.02, group=None, x=None, **more):
                own = {"analysis": analysis, "encoder": encoder, "group": group, "x": x}
                own |= {name: more.pop(name) for name in ("percent", "items") if name in more}
                task = more.pop("task", "retrieval")
                found.append(
                    line(task, pair, metric, value, half, settings={**about, **more}, n=300, **own)
                )

            for tag in ("NUM", "PROPN", "DET", "NOUN", "VERB", *(["AUX"] if lang != "zh" else [])):
                add("pos", "accuracy.all", base + gain * rng.uniform(0.5, 1.5), 0.04, tag)
            add("pos", "accuracy.all", base + gain, 0.02, "open-class", mean_of=["NOUN", "VERB"])
            for k, (start, end) in enumerate([(0, 1), (1, 3), (3, 10), (10, 30), (30, 100)]):
                x = (start * end) ** 0.5 if start else end / 2
                add("rank", "accuracy.all", base + gain - 0.02 * k, 0.03, f"{start}–{end}", x)
            for layer in range(4):
                for part in ("all", "unseen"):
                    add(
                        "layers",
                        f"accuracy.{part}",
                        base + gain * layer / 3,
                        0.015,
                        None,
                        float(layer),
                    )
            add(
                "isometry",
                "eigenvalue-similarity",
                3.1 - gain,
                None,
                task="isometry",
                percent=False,
            )
            for direction in (f"en-{lang}", f"{lang}-en"):
                add(
                    "hubness",
                    "skewness.csls",
                    2.3 - gain,
                    0.2,
                    direction,
                    task="hubness",
                    percent=False,
                )
            for group in ("en", f"en-{lang}", f"en-{lang} linked"):
                add(
                    "anisotropy",
                    "mean-cosine",
                    0.3 + gain / 2,
                    0.01,
                    group,
                    task="anisotropy",
                    percent=False,
                )
            add("language", "probe-accuracy", 0.98 - gain / 4, 0.01, task="language")
            add("points", "pca", None, items=_points(lang, gain, pairs))
    return [*found, _examples(list(encoders), langs[0])]


def _points(lang: str, gain: float, pairs: int) -> list[dict[str, Any]]:
    rng, items = random.Random(2), []
    for pair in range(pairs):
        x, y, apart = rng.gauss(0, 10), rng.gauss(0, 10), 20 * (1 - 3 * gain)
        source, target = WORDS[pair % len(WORDS)]
        for word, own, shift in ((source, "en", 0.0), (target, lang, apart)):
            items.append(
                {
                    "x": round(x + shift, 4),
                    "y": round(y, 4),
                    "word": word,
                    "sentence": f"… {word} no. {pair} .",
                    "lang": own,
                    "pair": pair,
                    "upos": None,
                }
            )
    return items


def _examples(encoders: list[str], lang: str) -> dict[str, Any]:
    items = []
    senses = (
        ("They sat on the bank of the river .", 4, "Ufer"),
        ("The bank raised its rates .", 1, "Bank"),
    )
    for sentence, position, word in senses:
        translation = f"… {word} …"
        got = {
            encoder: {
                "word": word if encoder != "base" else "Bank",
                "sentence": translation,
                "right": encoder != "base",
            }
            for encoder in encoders
        }
        items.append(
            {
                "form": "bank",
                "lang": "en",
                "sentence": sentence,
                "position": position,
                "translation": translation,
                "expected": {"word": word, "sentence": translation},
                "got": got,
            }
        )
    about = {"analysis": "examples", "encoder": None, "group": None, "x": None, "items": items}
    return line("retrieval", ("en", lang), "examples", None, None, n=len(items), **about)


def write(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    """Write scores to a file as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    path.write_text(text, encoding="utf-8")
    return path


def run_record() -> dict[str, Any]:
    """Return the content of a `calque-run.json`."""
    return {
        "calque": "0.1.0",
        "command": "calque align train.tsv --langs en de",
        "method": "contrastive",
        "towards": "en",
        "encoder": "mini",
        "encoder_fingerprint": "0" * 32,
        "seconds": {"words": 3.2, "method": 120.5},
        "texts": [
            {
                "path": "train.tsv",
                "langs": ["en", "de"],
                "sentence_pairs": 10000,
                "word_pairs": 81234,
            }
        ],
    }


HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7*7 }}",
    "&amp; <b>|*_`",
    # right-to-left text, and a directional override
    "\u05e9\u05dc\u05d5\u05dd \u202e \u0639\u0631\u0628\u064a",
    "🙂👩\u200d👩\u200d👧",
    "a\u2028b\tc",
    "' --x",
)


def hostile_lines() -> list[dict]:
    lines = []
    for k, text in enumerate(HOSTILE):
        for method in ("base", text):
            settings = {"encoder": text, "encoder_fingerprint": text}
            lines.append(
                line(
                    "ner",
                    ("en", f"x{k}{text}"),
                    "f1",
                    0.2,
                    0.02,
                    data=text,
                    settings=settings,
                    method=method,
                )
            )
        points = [
            {
                "x": side,
                "y": k,
                "word": text,
                "sentence": text,
                "lang": lang,
                "pair": pair,
                "upos": text,
            }
            for pair in range(3)
            for side, lang in enumerate(("en", "de"))
        ]
        for encoder in ("base", text):
            about = {
                "analysis": "points",
                "encoder": encoder,
                "group": None,
                "x": None,
                "items": points,
            }
            lines.append(line("retrieval", ("en", "de"), "pca", None, None, **about))
            about = {"analysis": "pos", "encoder": encoder, "group": text, "x": None}
            lines.append(line("retrieval", ("en", "de"), "accuracy.all", 0.3, 0.1, **about))
        answer = {"word": text, "sentence": text, "right": False}
        item = {
            "form": text,
            "lang": text,
            "sentence": text,
            "position": 0,
            "expected": answer,
            "got": {text: answer},
        }
        lines.append(
            line(
                "retrieval",
                ("en", "de"),
                "examples",
                None,
                None,
                analysis="examples",
                items=[item],
                encoder=None,
            )
        )
    lines.append(
        line(
            "task" + HOSTILE[0], ("en", "de"), "m" + HOSTILE[1], 0.2, 0.1, settings={"encoder": "e"}
        )
    )
    return lines
