"""Fixtures for tests in headless Chromium, which are skipped if no browser is installed.

The fixture `seen` records the errors and requests of the fixture `page`.

from browser import browser, page, seen, violations  # noqa: F401 (fixtures)

def test_it_renders(page, seen):
    page.goto(url)
    assert violations(page) == []

Run as a program, the module prints how to install a browser if none is found.

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
    "no Chromium found, so the tests of the report and the explorer in a browser are skipped: "
    "install one by `apt-get update && apt-get install -y chromium` (Debian, Ubuntu) or `python -m "
    "playwright install chromium`, or set CHROMIUM to the path of one"
)


def find(running: Any = None) -> str | None:
    """Return the path of the browser: the value of CHROMIUM, a program on PATH, or the one
    downloaded by Playwright.

    Args:
        running: Playwright instance, which contains the path of its own browser.

    """
    named = os.environ.get("CHROMIUM")
    places = [*map(shutil.which, (named,) if named else NAMES), *PLACES]
    if running is not None:
        places.append(running.chromium.executable_path)
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


@dataclass
class Seen:
    """Errors and requests of a page since it was opened.

    Attributes:
        errors: console errors, uncaught exceptions and failed requests.
        requests: requested URLs including that of the page, without `data:` and `blob:` URLs.

    """

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def foreign(self) -> list[str]:
        """Return the requests to other hosts."""
        own = ("file:", "http://127.0.0.1", "http://localhost")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start one Chromium instance per test file.

    The browser is closed at the end of the file: `asyncio.run` in other tests fails while
    Playwright's event loop is running.

    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        program = find(running)
        if program is None:
            pytest.skip(HOW)
        chromium = running.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def seen() -> Seen:
    """Return the record of the errors and requests of `page`."""
    return Seen()


@pytest.fixture
def page(browser: Any, seen: Seen) -> Iterator[Any]:
    """Open an empty page of 1280 × 900 pixels, and check after the test that no errors occurred.

    `set_viewport_size` and `emulate_media(color_scheme="dark")` change its size and colours.

    """
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme="light", bypass_csp=True
    )
    context.set_default_timeout(60_000)  # so the test does not fail on a busy machine
    opened = context.new_page()
    opened.on(
        "console",
        lambda message: seen.errors.append(message.text) if message.type == "error" else None,
    )
    opened.on("pageerror", lambda error: seen.errors.append(str(error)))
    opened.on("requestfailed", lambda request: _failed(seen, request))
    opened.on(
        "request",
        lambda r: None if r.url.startswith(("data:", "blob:")) else seen.requests.append(r.url),
    )
    yield opened
    context.close()
    assert seen.errors == []


def _failed(seen: Seen, request: Any) -> None:
    """Record a failed request, unless the browser cancelled the request by leaving the page."""
    if "ERR_ABORTED" not in str(request.failure):
        seen.errors.append(f"{request.url}: {request.failure}")


def violations(
    page: Any,
    *,
    impacts: tuple[str, ...] = ("serious", "critical"),
    rules: list[str] | None = None,
) -> list[str]:
    """Return the accessibility problems that axe-core finds, one per line; `rules` selects the
    rules to check.
    """
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules is not None:
        options["runOnly"] = {"type": "rule", "values": rules}
    found = axe.Axe().run(page, options=options).response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {each['nodes'][0]['target']} and "
        f"{len(each['nodes']) - 1} more"
        for each in found
        if each["impact"] in impacts
    ]


def scrolls_sideways(page: Any) -> bool:
    """Return whether the page is wider than the window, so that it scrolls horizontally."""
    return page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )


if __name__ == "__main__" and find() is None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        if find(running) is None:
            print(HOW)
