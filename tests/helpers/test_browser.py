"""Where there is no browser, the tests that need one are skipped, and `make test` says how to get one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import browser

ROOT = Path(__file__).parents[2]


def said(tmp_path, **environment):
    """What `tests/helpers/browser.py` prints where nothing is installed but what `environment` names."""
    (tmp_path / "bin").mkdir()
    nothing = {"PATH": str(tmp_path / "bin"), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path), "CHROMIUM": ""}
    ended = subprocess.run(
        [sys.executable, ROOT / "tests" / "helpers" / "browser.py"], capture_output=True, text=True, check=True,
        env={**os.environ, **nothing, **environment},
    )  # fmt: skip
    return ended.stdout


@pytest.mark.skipif(os.access(browser.PLACES[0], os.X_OK), reason="Chrome is where it always is on this system")
def test_without_a_browser_one_line_says_how_to_get_one(tmp_path):
    pytest.importorskip("playwright")
    printed = said(tmp_path)
    assert printed.count("\n") == 1
    assert "apt-get install -y chromium" in printed
    assert "playwright install chromium" in printed


def test_with_a_browser_nothing_is_said(tmp_path):
    assert said(tmp_path, CHROMIUM=sys.executable) == ""


def test_one_that_is_named_comes_first(tmp_path, monkeypatch):
    for name in ("mine", "chromium"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert browser.find() == str(tmp_path / "chromium")
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "mine"))
    assert browser.find() == str(tmp_path / "mine")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_test_says_it_last_and_keeps_the_status_of_the_tests():
    # As a person calls it: inside another make, which may run this test, it would also say which folder it enters.
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    made = ["make", "-n", "--no-print-directory", "test"]
    printed = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True, env=own).stdout
    command = printed.splitlines()[-1]
    assert command.index("-m pytest") < command.index("tests/helpers/browser.py") < command.index("exit $status")
