"""Open pages in a real browser, for their tests."""

import shutil
from contextlib import contextmanager

import pytest

WIDTH = 360
"""Pixels of a phone's screen."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def opened(path, inside=None, charts=True):
    """Open a page in Chromium and wait for its charts, if it has any; fail for any error, or for a
    request of anything but the page, or but what is in the folder `inside`.
    """
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    own, problems = (inside or path).as_uri(), []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 800}, offline=True)
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda request: problems.append(request.url))
        tab.goto(path.as_uri())
        if charts:
            tab.wait_for_selector("html[data-drawn]", timeout=60_000, state="attached")
        yield tab
        browser.close()
    assert [p for p in problems if not p.startswith((own, "data:"))] == []
