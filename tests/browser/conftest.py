"""A real Chromium, driven by Playwright, that may reach nothing but the page under test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("playwright") is None:
    # `make browser` installs it; without it these tests are no part of a run.
    collect_ignore_glob = ["test_*.py"]
else:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page, sync_playwright

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "browser"
PICTURE_ATTEMPTS, REFUSED = 4, "Unable to capture screenshot"
#: The version that GitHub's pages had when this was written is not told anywhere; the last two major ones are tried.
PACKAGES = {"axe-core": "4.14.1", "mermaid-11": "npm:mermaid@11.17.2", "mermaid-12": "npm:mermaid@12.3.0"}


@dataclass
class Opened:
    """A page, its console messages and its requests."""

    page: Page
    address: str
    said: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @property
    def foreign(self) -> list[str]:
        """Everything that was requested besides the page itself."""
        return [url for url in self.requests if url.partition("#")[0] != self.address]

    def picture(self, name: str, *, whole: bool = False) -> None:
        """Keep what it looks like, for people. Chromium now and then refuses one picture, and takes it when asked
        again; nothing is tested by it."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        for attempt in range(PICTURE_ATTEMPTS):
            try:
                self.page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)
                return
            except Error as error:
                if REFUSED not in str(error) or attempt == PICTURE_ATTEMPTS - 1:
                    raise
                self.page.wait_for_timeout(250)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = os.environ.get("STEPFLOW_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not program:
        pytest.fail("there is no Chromium: apt-get install chromium, or set STEPFLOW_CHROMIUM")
    with sync_playwright() as playwright:
        # Root has no user namespaces for Chromium's own sandbox; what is opened here is ours.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a text as a file, at a width and in a scheme; `wait` false gives it as soon as it begins to load."""
    contexts = []

    def opened(
        text: str, at: str = "", *, width: int = 1280, height: int = 900, scheme: str = "light", scripts: bool = True
    ) -> Opened:
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        viewport = {"width": width, "height": height}
        context = chromium.new_context(viewport=viewport, color_scheme=scheme, java_script_enabled=scripts)
        contexts.append(context)
        view = Opened(page=context.new_page(), address=file.as_uri())
        view.page.on("console", lambda message: view.said.append(describe_message(message)))
        view.page.on("pageerror", lambda error: view.said.append(str(error)))
        view.page.on("dialog", lambda dialog: (view.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        view.page.on("request", lambda request: view.requests.append(request.url))
        view.page.goto(view.address + at, wait_until="load")
        return view

    yield opened
    for context in contexts:
        context.close()


def describe_message(message: ConsoleMessage) -> str:
    return f"{message.type}: {message.text}"


@pytest.fixture(scope="session")
def npm() -> Path:
    """The folder of the packages that are put into pages; installed once on a machine, outside the repository."""
    cache = Path(os.environ.get("STEPFLOW_TEST_CACHE") or Path.home() / ".cache" / "stepflow-tests")
    installed = cache / ("browser-" + "-".join(version.rpartition("@")[2] for version in PACKAGES.values()))
    if not installed.exists():
        program = shutil.which("npm")
        if not program:
            pytest.fail("there is no npm; install Node.js")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as partial:
            options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save")
            names = [f"{name}@{version}" for name, version in PACKAGES.items()]
            command = [program, "install", *options, "--prefix", f"{partial}/whole", *names]
            subprocess.run(command, cwd=partial, check=True, capture_output=True, timeout=300)
            # Another test process may have been faster; what it put there is the same.
            with contextlib.suppress(OSError):
                Path(partial, "whole").rename(installed)
    return installed / "node_modules"
