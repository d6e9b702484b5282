"""Help about one task: the options that it has, sorted by what they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from typer.core import TyperCommand

from calque.tasks.table import TASKS, users


class TaskCommand(TyperCommand):
    """A command whose help is about the task that stands before `--help`, or lists the tasks and what all of them have."""

    #: dataclasses of options, whose docstrings are the titles
    groups: Sequence[type[Any]] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        ctx.meta["task"] = next((word for word in words[1:] if word in TASKS), None)
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        task = ctx.meta["task"]
        if task is None:
            return super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{task}: {TASKS[task].help}")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        task = ctx.meta["task"]
        for title, parameters in self.sections(ctx, task).items():
            rows = [row for each in parameters if (row := each.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if task is None:
            with formatter.section("Tasks"):
                formatter.write_dl([(name, row.help) for name, row in TASKS.items()])
            formatter.write_paragraph()
            formatter.write_text("calque evaluate ENCODER TASK --help lists the options of a task.")
        elif more := self.without_name(task):
            with formatter.section("Others, as --option NAME=VALUE"):
                formatter.write_text(", ".join(more))

    def sections(self, ctx: Any, task: str | None) -> dict[str, list[Any]]:
        """Arguments and options of a task by title; without a task, those that every task has."""
        titles = {param.name: (group.__doc__ or "").rstrip(".") for group in self.groups for param in fields(group)}
        own = () if task is None else TASKS[task].takes
        listed: dict[str, list[Any]] = {"Arguments": [], **{title: [] for title in titles.values()}, "Others": []}
        for param in self.get_params(ctx):
            if param.name in own or not (users(param.name) or param.name == "option"):
                title = "Arguments" if param.param_type_name == "argument" else titles.get(param.name, "Others")
                listed[title].append(param)
        return listed

    def without_name(self, task: str) -> list[str]:
        """Options of a task that only `--option` sets."""
        return [name for name in TASKS[task].options if name not in {each.name for each in self.params}]
