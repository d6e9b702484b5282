"""What an analysis gives back: a score, and where on a picture it belongs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calque.tasks.base import Score


@dataclass(frozen=True)
class Finding:
    """One figure of an analysis, or what it found word by word.

    Attributes:
        analysis: one of `calque.analyses.table.ANALYSES`.
        encoder: what the encoder is called; None where several are compared.
        score: the figure; NaN, with `items`, where there is none.
        group: what the figure is over, such as "NOUN" or "2–3"; None for everything.
        x: where it stands on an axis: middle of a bin, layer, number of sentence pairs.
        items: of `examples` and `points`: one object each.
    """

    analysis: str
    encoder: str | None
    score: Score
    group: str | None = None
    x: float | None = None
    items: Sequence[dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON: what `Score.to_dict` gives, and the rest beside it."""
        about = {"analysis": self.analysis, "encoder": self.encoder, "group": self.group, "x": self.x}
        return {**self.score.to_dict(), **about, **({} if self.items is None else {"items": list(self.items)})}

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)
