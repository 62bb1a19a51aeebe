"""What the docs site adds to the pages of `docs/`: the changelog and the guide for contributors, and links that leave `docs/`.

On GitHub a page may link to any file of the repository. The site holds some of them as pages; of the others it shows the name.
"""

from __future__ import annotations

import logging
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

logger = logging.getLogger("mkdocs.plugins.site_hooks")
ADDED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""File of the repository -> its page of the site."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside `docs/`."""
    for name, page in ADDED.items():
        with open(posixpath.join(posixpath.dirname(config.config_file_path), name), encoding="utf-8") as file:
            files.append(File.generated(config, page, content=file.read()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site; where a file has none, leave the link's words."""
    here = page.file.src_uri
    source = next((name for name, added in ADDED.items() if added == here), f"docs/{here}")

    def linked(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = ADDED.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        if uri is None or files.get_file_from_path(uri) is None:
            # a folder of pages is its first page; anything else under docs/ that is missing is left to fail the strict build
            index = f"{uri}/index.md" if uri else None
            if index is None or files.get_file_from_path(index) is None:
                return found[0] if uri else words
            uri = index
        return f"[{words}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    return _LINK.sub(linked, markdown)


_RAW = re.compile(r"<p>(?:(?!</p>).)*?\n *(?:[-*] |\d+\. |\|)|<p>\|", re.DOTALL)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Warn of a table or list that GitHub shows as one and the site as running text; a strict build fails on it."""
    if found := _RAW.search(html):
        logger.warning("%s: a list or table is shown as text: %s", page.file.src_uri, found[0][-200:])
