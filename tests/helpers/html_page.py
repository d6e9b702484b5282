"""Parse an HTML page into elements and texts; malformed HTML raises an error."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Parsed page: a list of elements, and a list of (path of open elements, text).

    Each element is a dictionary with the keys tag, attrs, text and above (its ancestors).

    """

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[dict] = []
        self.open: list[dict] = []
        self.texts: list[tuple[list[dict], str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {[each['tag'] for each in self.open]}"

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "attrs": dict(attrs), "text": "", "above": list(self.open)}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append(
            {"tag": tag, "attrs": dict(attrs), "text": "", "above": list(self.open)}
        )

    def handle_endtag(self, tag):
        assert self.open[-1]["tag"] == tag, f"</{tag}> closes <{self.open[-1]['tag']}>"
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data
        self.texts.append((list(self.open), data))

    def find(self, tag: str) -> list[dict]:
        return [element for element in self.elements if element["tag"] == tag]
