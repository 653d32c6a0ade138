"""The site of the documentation: it builds without a warning, its links lead somewhere, and all it loads is its own."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

from tests.test_report_page import DESKTOP, LIGHTNESS, PHONE, Opened
from tests.training import ENVIRONMENT, ROOT

pytestmark = pytest.mark.slow

MAIN = (
    "index", "getting-started", "cleanrl", "presets/index", "presets/ppo", "own", "environments", "sweeps", "report",
    "equivalence", "contract", "configuration", "environment-files", "api", "results", "performance",
    "source/ppo_bench/mathematics/ppo.py",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = ENVIRONMENT | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return out


class Read(HTMLParser):
    """What a page links to, what it loads, and the names of its parts."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(given.get("href", ""))
        elif "src" in given:
            self.loads.append(given["src"])


read = cache(Read)


def test_every_link_leads_somewhere(site: Path) -> None:
    broken = []
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # its links are counted from the root of a server
            continue
        for link in (*read(page).links, *read(page).loads):
            url = urlsplit(link)
            if url.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            found = target.is_file() and (
                target.suffix != ".html" or not url.fragment or unquote(url.fragment) in read(target).names
            )
            if not found:
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    elsewhere = [
        f"{page.name}: {load}"
        for page in pages
        for load in read(page).loads
        if urlsplit(load).scheme in ("http", "https")
    ]
    assert elsewhere == []
    styles = [path for path in site.rglob("*.css") if re.search(r"url\(\s*['\"]?https?:|@import", path.read_text())]
    assert styles == []


@pytest.mark.parametrize(
    ("size", "scheme", "names"),
    [(DESKTOP, "light", ("index", "configuration", "api", "results")), (PHONE, "dark", MAIN)],
    ids=["desktop, light", "phone, dark"],
)
def test_pages_fit_and_say_nothing(
    browser: Browser, site: Path, size: dict[str, int], scheme: str, names: tuple[str, ...]
) -> None:
    for name in names:
        with Opened(browser, site / f"{name}.html", size, scheme) as opened:
            page = opened.page
            page.mouse.wheel(0, 20_000)
            page.wait_for_timeout(100)
            assert opened.said == [], name
            assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == [], name
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], name
            lightness = page.locator("body").evaluate(LIGHTNESS)
            assert lightness > 0.9 if scheme == "light" else lightness < 0.2, name
            pictures = "all => all.filter(one => one.offsetParent && !one.naturalWidth).map(one => one.src)"
            assert page.locator("article img").evaluate_all(pictures) == [], name
