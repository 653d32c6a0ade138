"""Hooks of mkdocs: generated pages, and links that work both in the repository and on the site.

A page under docs/ links to source files, such as `../ppo_bench/mathematics/ppo.py#gae`. On the site such a link leads
to a page with the file's source, at the line where the name behind `#` is defined. File names in backticks become
links, too.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from machines import machines_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from presets import preset_names, preset_pages
from settings import configuration_page, environments_page
from sources import line_of, source_file, source_page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
NAMED = re.compile(r"(?<![\[`])`([\w./]+\.(?:py|yaml|sh))`(?![\]`])")
MARK = re.compile(r"^<!-- (run|composed|slurm|not run)(?:: (.*?))? -->\n", re.M)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the presets' pages in the navigation."""
    names = [f"presets/{name}.md" for name in preset_names()]
    config.nav = [{"Presets": ["presets/index.md", *names]} if "Presets" in item else item for item in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from README, conf/, docs/results/ and the source."""
    pages = {
        "index.md": (ROOT / "README.md").read_text(encoding="utf-8"),
        "configuration.md": configuration_page(),
        "environment-files.md": environments_page(),
        "machines.md": machines_page(),
        **preset_pages(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()}
    sources = {path for name, text in texts.items() for path in _sources(text, _place(name))}
    for path in sorted(sources):
        files.append(File.generated(config, f"source/{path}.md", content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The Markdown of a page, with links to files of the repository replaced by links within the site."""
    name = page.file.src_uri
    if name.startswith("source/"):
        return markdown
    if name == "index.md":
        page.meta["hide"] = ["navigation"]
    place = _place(name)
    here = posixpath.dirname(name)
    markdown = MARK.sub("", markdown)

    def linked(match: re.Match[str]) -> str:
        return f"{match[1]}{_target(match[2], place, here, name)}{match[3]}"

    def named(match: re.Match[str]) -> str:
        path = source_file(match[1])
        return f"[{match[0]}]({_relative(f'source/{path}.md', here)})" if path else match[0]

    return _outside_code(markdown, lambda text: NAMED.sub(named, LINK.sub(linked, text)))


def _outside_code(markdown: str, change: Any) -> str:
    """`markdown` with `change` applied to all text outside fenced code blocks."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _place(name: str) -> str:
    """The folder of the repository that the links of page `name` are relative to."""
    return "" if name == "index.md" else posixpath.join("docs", posixpath.dirname(name))


def _sources(text: str, place: str) -> set[str]:
    """Paths of the repository files that `text` names or links to; each gets a page of its own."""
    found = {path for match in NAMED.finditer(text) if (path := source_file(match[1]))}
    for match in LINK.finditer(text):
        path = _path(match[2], place)
        if path and not path.startswith("docs/"):
            found.add(path)
    return found


def _path(link: str, place: str) -> str | None:
    """The path within the repository that a link leads to; None if it leads elsewhere."""
    target = link.partition("#")[0]
    if not target or "://" in target or target.startswith("mailto:"):
        return None
    path = posixpath.normpath(posixpath.join(place, target))
    return path if (ROOT / path).is_file() else None


def _target(link: str, place: str, here: str, page: str) -> str:
    path, fragment = _path(link, place), link.partition("#")[2]
    if path is None:
        return link
    if path == "README.md":
        return _relative("index.md", here) + (f"#{fragment}" if fragment else "")
    if path.startswith("docs/"):
        return _relative(path.removeprefix("docs/"), here) + (f"#{fragment}" if fragment else "")
    line = line_of(path, fragment) if fragment else None
    if fragment and line is None:
        raise PluginError(f"{page}: {path} has no {fragment}")
    return _relative(f"source/{path}.md", here) + (f"#__codelineno-0-{line}" if line else "")


def _relative(path: str, here: str) -> str:
    return posixpath.relpath(path, here or ".")
