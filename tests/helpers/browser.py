"""A page in headless Chromium that keeps what went wrong in it and what it asked for; skipped where there is none.

from browser import browser, page, seen, violations  # noqa: F401 (fixtures)

def test_it_renders(page, seen):
    page.goto(url)
    assert violations(page) == []

Run as a program it says how to get a browser, if there is none, and nothing otherwise.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
HOW = (
    "no Chromium found, so the tests of the report and the explorer in a browser are skipped: install one by "
    "`apt-get update && apt-get install -y chromium` (Debian, Ubuntu) or `python -m playwright install chromium`, "
    "or set CHROMIUM to the path of one"
)


def find(running: Any = None) -> str | None:
    """The program: what CHROMIUM names, one in the path, or the one that Playwright has downloaded.

    Args:
        running: Playwright, which knows where it puts its own.
    """
    named = os.environ.get("CHROMIUM")
    places = [*map(shutil.which, (named,) if named else NAMES), *PLACES]
    if running is not None:
        places.append(running.chromium.executable_path)
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


@dataclass
class Seen:
    """What happened in a page since it was opened.

    Attributes:
        errors: messages of the console's errors, of exceptions nobody caught, and of requests that failed.
        requests: addresses asked for, the page's own among them; `data:` and `blob:` ask nobody.
    """

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def foreign(self) -> list[str]:
        """Requests that leave this machine."""
        own = ("file:", "http://127.0.0.1", "http://localhost")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, one for a file of tests. It ends with the file: an event loop runs in this thread as long as it lives, and
    `asyncio.run` of other tests would fail."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        program = find(running)
        if program is None:
            pytest.skip(HOW)
        chromium = running.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def seen() -> Seen:
    """What happened in `page`."""
    return Seen()


@pytest.fixture
def page(browser: Any, seen: Seen) -> Iterator[Any]:
    """An empty page of 1280 × 900, in which nothing may go wrong; `set_viewport_size` and `emulate_media(color_scheme="dark")`
    change it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", bypass_csp=True)
    context.set_default_timeout(60_000)  # a busy machine is no failure
    opened = context.new_page()
    opened.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: seen.errors.append(str(error)))
    opened.on("requestfailed", lambda request: _failed(seen, request))
    opened.on("request", lambda r: None if r.url.startswith(("data:", "blob:")) else seen.requests.append(r.url))
    yield opened
    context.close()
    assert seen.errors == []


def _failed(seen: Seen, request: Any) -> None:
    """A request that the browser gave up itself, because the page was left, did not fail."""
    if "ERR_ABORTED" not in str(request.failure):
        seen.errors.append(f"{request.url}: {request.failure}")


def violations(page: Any, *, impacts: tuple[str, ...] = ("serious", "critical")) -> list[str]:
    """What axe-core finds wrong for people who use a keyboard or a screen reader or need contrast; a line for each."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {each['nodes'][0]['target']} and {len(each['nodes']) - 1} more"
        for each in found
        if each["impact"] in impacts
    ]


def scrolls_sideways(page: Any) -> bool:
    """Whether the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


if __name__ == "__main__" and find() is None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        if find(running) is None:
            print(HOW)
