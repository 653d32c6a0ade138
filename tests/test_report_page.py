"""report.html in a real Chromium: it is shown, reacts, fits the window, prints, and makes no network request."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page

from ppo_bench.commands.report.command import main
from tests.synthetic import write_run, write_sweep
from tests.training import rows

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
    markup = {"hardware.cpu": "<img src=http://example.org/x.png onerror=alert(1)>"}
    write_run(outputs, "cartpole", "jax_xla", 7, 150, changes=markup)
    assert main([str(outputs), "--resamples", "200"]) == 0
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


def chart(page: Page, title: str) -> Locator:
    return page.locator(".chart", has=page.locator("h4", has_text=title)).first


def test_it_opens_without_a_word_and_asks_for_nothing_but_itself(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        page = opened.page
        page.mouse.wheel(0, 20_000)
        page.wait_for_timeout(200)
        assert opened.said == []
        assert opened.requests == [html.as_uri()]
        sections = page.locator("main > section").evaluate_all("all => all.map(one => one.id)")
        assert sections == [
            "summary", "learning", "training", "speed", "speedup", "returns", "equivalence", "all", "human",
            "published", "settings", "runs",
        ]  # fmt: skip
        count = page.locator(".chart").count()
        assert count == 3 * 2 + 3 * 6 + 3 * 3 + 1 + 3 + 1 + 1 + 1 + 1
        assert page.locator(".chart > .frame > svg").count() == count
        assert page.locator("img").count() == 0
        assert "<img src=" in page.locator(".warnings").inner_text()
        assert "is fastest at" in page.locator("#summary").inner_text()


def test_axes_have_names_units_and_numbers(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        labels = {
            "by environment steps": ("environment steps", "episodic return"),
            "by wall time": ("training time without compilation (s)", "episodic return"),
            "steady speed": ("environment steps per second",),
            "training": ("seconds of wall time",),
            "speed-up": ("times the steady speed of torch_eager",),
            "performance profile": ("normalised score τ", "fraction of runs above τ"),
        }
        for title, expected in labels.items():
            texts = chart(opened.page, title).locator("svg text").all_text_contents()
            assert set(expected) <= set(texts), title
            assert sum(text[:1].isdigit() for text in texts) >= 3, title


def test_curves_answer_to_the_pointer(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        curves = chart(opened.page, "by environment steps")
        curves.scroll_into_view_if_needed()
        assert not curves.locator(".tip").is_visible()
        curves.locator(".frame > svg").hover()
        tip = curves.locator(".tip")
        assert tip.is_visible()
        lines = tip.inner_text().splitlines()
        assert lines[0].startswith("environment steps: ")
        assert [line.partition(":")[0] for line in lines[1:]] == ["torch_eager", "torch_compile", "jax_xla"]
        assert all("[" in line for line in lines[1:])
        opened.page.mouse.move(0, 0)
        assert not tip.is_visible()
        bars = chart(opened.page, "steady speed")
        bars.locator("g.row").first.hover()
        assert "seeds: " in bars.locator(".tip").inner_text()


def test_the_legend_hides_and_shows_series(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        curves = chart(opened.page, "by environment steps")
        button = curves.get_by_role("button", name="torch_compile")
        names = "all => all.map(one => one.dataset.name)"
        series = curves.locator("g.series")
        assert series.evaluate_all(names) == ["torch_eager", "torch_compile", "jax_xla"]
        button.click()
        assert series.evaluate_all(names) == ["torch_eager", "jax_xla"]
        assert button.get_attribute("aria-pressed") == "false"
        curves.locator(".frame > svg").hover()
        assert "torch_compile" not in curves.locator(".tip").inner_text()
        for name in ("torch_eager", "jax_xla"):
            curves.get_by_role("button", name=name).click()
        assert series.count() == 0
        button.press("Enter")
        assert series.evaluate_all(names) == ["torch_compile"]
        assert opened.said == []


HEIGHTS = """one => one.querySelector("path.mean").getAttribute("d").match(/ (-?[0-9.]+)/g).map(Number)"""


def test_a_constant_curve_can_be_smoothed(browser: Browser, tmp_path: Path) -> None:
    """Its means differ in the last digit."""
    folder = write_run(tmp_path / "o", iterations=150)
    level = [row | {"entropy": 0.1} for row in rows(folder)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in level))
    assert main([str(tmp_path / "o"), "--resamples", "200"]) == 0
    with Opened(browser, tmp_path / "o" / "report" / "report.html", DESKTOP) as opened:
        for width in ("3", "7", "15"):
            opened.page.locator("select[data-smooth=training]").select_option(value=width)
        curve = chart(opened.page, "entropy").locator(".frame > svg")
        assert curve.is_visible()
        assert opened.said == []


def test_the_reader_chooses_how_smooth_curves_are(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        entropy = chart(opened.page, "entropy")
        data = json.loads(opened.page.locator("#data").text_content() or "")
        (drawn,) = [each for each in data[3] if each["title"] == "entropy"]  # after the learning curves of three panels
        mean = np.array(drawn["series"][0]["mean"])
        for width in (15, 1, 3):
            opened.page.locator("select[data-smooth=training]").select_option(value=str(width))
            reach = width // 2
            expected = [mean[max(0, k - reach) : k + reach + 1].mean() for k in range(len(mean))]
            heights = -np.array(entropy.locator("g.series").first.evaluate(HEIGHTS))
            across = [(values - np.min(values)) / np.ptp(values) for values in (np.array(expected), heights)]
            np.testing.assert_allclose(across[1], across[0], atol=0.01)
        assert opened.page.locator("select").count() == 2  # learning curves have their own


def test_every_seed_is_drawn_behind_its_mean(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        (cartpole,) = opened.page.locator("#learning .figure", has=opened.page.locator("h3", has_text="cartpole")).all()
        runs = cartpole.locator(".chart").first.locator("g.series[data-name=jax_xla] path.runs").get_attribute("d")
        assert runs is not None
        assert runs.count("M") == 7  # five seeds, the unfinished one and the one with another CPU


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_fits_and_is_legible(browser: Browser, html: Path, size: dict[str, int], scheme: str) -> None:
    with Opened(browser, html, size, scheme) as opened:
        page = opened.page
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        lightness = page.locator("body").evaluate(LIGHTNESS)
        assert lightness > 0.9 if scheme == "light" else lightness < 0.2
        outside = page.locator(".chart svg text").evaluate_all(
            """(all) => all.filter((text) => {
                const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1;
            }).map((text) => text.textContent)"""
        )
        assert outside == []
        small = page.locator(".chart svg text").evaluate_all(
            "(all) => all.filter((text) => text.getBoundingClientRect().height < 9).length"
        )
        assert small == 0
        contrast = page.evaluate(
            """() => {
                const light = (colour) => {
                    const [r, g, b] = colour.match(/\\d+(\\.\\d+)?/g).map((x) => Number(x) / 255)
                        .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                const paper = light(getComputedStyle(document.body).backgroundColor);
                const series = [...document.querySelectorAll("g.series")].map((g) => getComputedStyle(g).stroke);
                const texts = [...document.querySelectorAll("p, li, td, th")].map((e) => getComputedStyle(e).color);
                const ratio = (c) => {
                    const [a, b] = [light(c), paper].sort((x, y) => y - x);
                    return (a + 0.05) / (b + 0.05);
                };
                return [Math.min(...new Set(series.map(ratio))), Math.min(...new Set(texts.map(ratio)))];
            }"""
        )
        assert contrast[0] >= 3  # WCAG 2.1: graphics 3, text 4.5
        assert contrast[1] >= 4.5
        assert opened.said == []


def test_it_follows_the_window(browser: Browser, html: Path) -> None:
    with Opened(browser, html, DESKTOP) as opened:
        svg = chart(opened.page, "by environment steps").locator(".frame > svg")
        before = svg.evaluate("svg => svg.viewBox.baseVal.width")
        opened.page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        opened.page.wait_for_function(
            "before => document.querySelector('.chart .frame > svg').viewBox.baseVal.width < before", arg=before
        )
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_it_prints(browser: Browser, html: Path, tmp_path: Path) -> None:
    with Opened(browser, html, DESKTOP, "dark") as opened:
        path = tmp_path / "report.pdf"
        opened.page.pdf(path=path)
        assert path.read_bytes().startswith(b"%PDF-")
        assert 3 <= path.read_bytes().count(b"/Type /Page\n") <= 20
        opened.page.emulate_media(media="print")
        # Paper is white, whatever the screen is.
        assert opened.page.locator("body").evaluate(LIGHTNESS) == 1
        assert not opened.page.locator("nav").is_visible()
        assert opened.said == []


def test_a_thousand_runs_stay_fluid(browser: Browser, tmp_path: Path) -> None:
    """As many curves as 1,000 runs have, on a page that is drawn in no time."""
    write_sweep(tmp_path / "o", ("cartpole", "acrobot"), seeds=167, iterations=100)
    assert main([str(tmp_path / "o"), "--resamples", "100"]) == 0
    html = tmp_path / "o" / "report" / "report.html"
    assert html.stat().st_size < 6_000_000
    with Opened(browser, html, DESKTOP) as opened:
        curves = chart(opened.page, "by environment steps")
        curves.scroll_into_view_if_needed()
        box = curves.locator(".frame > svg").bounding_box()
        assert box is not None
        took = opened.page.evaluate(
            """([x, y, width]) => {
                const svg = document.elementFromPoint(x, y).closest("svg");
                const times = [];
                for (let batch = 0; batch < 5; batch++) {
                    const started = performance.now();
                    for (let k = 0; k < 50; k++) {
                        const at = { clientX: x + k * width / 200, clientY: y, bubbles: true };
                        svg.dispatchEvent(new PointerEvent("pointermove", at));
                        svg.getBoundingClientRect();
                    }
                    times.push((performance.now() - started) / 50);
                }
                return Math.min(...times);
            }""",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"]],
        )
        assert took < 16  # ms, a frame
        assert curves.locator(".tip").is_visible()
