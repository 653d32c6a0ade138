"""report.html in a real Chromium: it is shown, fits the window, and makes no network request."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from ppo_bench.commands.report.__main__ import main
from tests.synthetic import write_run, write_sweep

pytestmark = pytest.mark.slow

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
LIGHTNESS = """element => getComputedStyle(element).backgroundColor.match(/\\d+/g).map(Number)
    .slice(0, 3).reduce((sum, x) => sum + x, 0) / 765"""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every section, an unfinished run and a name that is markup."""
    outputs = tmp_path_factory.mktemp("page") / "outputs"
    write_sweep(outputs, ("cartpole", "acrobot", "pong"), iterations=150)
    write_run(outputs, "cartpole", "jax_xla", 6, 60, finished=False, changes={"config.total_timesteps": 150 * 512})
    markup = {"hardware.cpu": "</script><img src=http://example.org/x.png onerror=alert(1)>"}
    write_run(outputs, "cartpole", "jax_xla", 7, 150, changes=markup)
    assert main([str(outputs)]) == 0
    return outputs / "report" / "report.html"


class Opened:
    """The page, and all that it said and asked for."""

    def __init__(self, browser: Browser, html: Path, size: dict[str, int], scheme: str = "light") -> None:
        self.context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        # The browser's own log, of everything that any part of it asks for.
        log = self.context.new_cdp_session(self.page)
        log.send("Network.enable")
        log.on("Network.requestWillBeSent", lambda event: self.requests.append(event["request"]["url"]))
        self.page.goto(html.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()


def scroll_through(page: Page) -> None:
    """Show the whole page, so that all charts are drawn."""
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for()


def test_it_opens_without_a_word_and_asks_for_nothing_but_itself(browser: Browser, html: Path) -> None:
    assert html.stat().st_size < 2_500_000
    with Opened(browser, html, DESKTOP) as opened:
        page = opened.page
        scroll_through(page)
        assert opened.said == []
        assert opened.requests == [html.as_uri()]
        sections = page.locator("main > section").evaluate_all("all => all.map(one => one.id)")
        assert sections == [
            "summary", "learning", "training", "speed", "returns", "equivalence", "runs",
        ]  # fmt: skip
        assert page.locator(".chart").count() == 3 * 2 + 3 * 6 + 3 * 3 + 3 + 3
        assert page.locator("img").count() == 0
        assert "<img src=" in page.locator(".warnings").inner_text()
        assert page.locator("#summary tbody tr").count() == 9


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_it_fits_and_is_legible(browser: Browser, html: Path, size: dict[str, int], scheme: str) -> None:
    with Opened(browser, html, size, scheme) as opened:
        page = opened.page
        scroll_through(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        lightness = page.locator("body").evaluate(LIGHTNESS)
        assert lightness > 0.9 if scheme == "light" else lightness < 0.2
        outside = page.locator(".chart .main-svg text").evaluate_all(
            """(all) => all.filter((text) => {
                const box = text.getBoundingClientRect(), frame = text.closest(".chart").getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1;
            }).map((text) => text.textContent)"""
        )
        assert outside == []
        assert opened.said == []


def test_charts_follow_a_change_of_the_colour_scheme(browser: Browser, html: Path) -> None:
    with Opened(browser, html, PHONE) as opened:
        page = opened.page
        scroll_through(page)
        all_have = "(ink) => [...document.querySelectorAll('.chart')].every((chart) => chart.layout.font.color === ink)"
        ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink')"
        light = page.evaluate(ink)
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(ink)
        assert dark != light
        page.wait_for_function(all_have, arg=dark)
        page.emulate_media(media="print")  # on paper, ink is dark
        page.wait_for_function(all_have, arg=light)
        assert opened.said == []


def test_curves_can_be_smoothed(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        page = opened.page
        scroll_through(page)
        roughness = """() => document.querySelector(".chart").data[2].y.slice(10, 60)
            .reduce((sum, y, k, all) => sum + (k ? Math.abs(y - all[k - 1]) : 0), 0)"""
        before = page.evaluate(roughness)
        page.locator("[data-smooth]").first.select_option("15")
        assert page.evaluate(roughness) < before
        assert opened.said == []
