"""Commands. `COMMANDS` lists the commands without importing them.

To add a command, write a subclass of `Command` and add a row to this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from calque.named import Table


@dataclass(frozen=True)
class CommandRow:
    """Entry of `COMMANDS` for one command.

    Attributes:
        target: class of the command, `package.module:Class`.
        heading: heading in the help under which the command is listed.
    """

    target: str
    heading: str


def _row_of(name: str, command: type) -> CommandRow:
    return CommandRow(name, "Other")


COMMANDS: Table[CommandRow] = Table(
    "command",
    {
        "demo": CommandRow("calque.commands.demo:Demo", "Start here"),
        "try": CommandRow("calque.commands.trial:Try", "Start here"),
        "align": CommandRow("calque.commands.align:Align", "Start here"),
        "evaluate": CommandRow("calque.commands.evaluate:Evaluate", "Start here"),
        "report": CommandRow("calque.commands.report:Report", "Start here"),
        "analyze": CommandRow("calque.commands.analyze:Analyze", "Look"),
        "explore": CommandRow("calque.commands.explore:Explore", "Look"),
        "neighbours": CommandRow("calque.commands.neighbours:Neighbours", "Look"),
        "senses": CommandRow("calque.senses.commands:SensesOfText", "Look"),
        "perplexity": CommandRow("calque.senses.commands:Perplexity", "Look"),
        "words": CommandRow("calque.commands.words:LinkWords", "Build"),
        "anchors": CommandRow("calque.commands.anchors:MakeAnchors", "Build"),
        "encode": CommandRow("calque.commands.encode:Encode", "Build"),
        "distil": CommandRow("calque.commands.distil:Distil", "Build"),
        "pretrain": CommandRow("calque.senses.commands:Pretrain", "Build"),
        "merge": CommandRow("calque.commands.merge:Merge", "Build"),
        "study": CommandRow("calque.commands.study:RunStudy", "Build"),
        "data": CommandRow("calque.commands.data:ListData", "Share"),
        "push": CommandRow("calque.commands.push:Push", "Share"),
    },
    base="calque.commands.base:Command",
    row_of=_row_of,
)
