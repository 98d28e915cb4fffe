"""What mkdocs.yml needs besides settings: the pages at the root of the repository, and links.

The site shows README.md as its front page, and CONTRIBUTING.md and others beside it. Their links
name files as GitHub shows them; here they become links between pages of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "reporting.md",
}
"""Files of the repository's root, and the names of their pages."""
LINK = re.compile(r"(\]\(|src=\"|href=\"|srcset=\")([^)\"#:\s]+)((?:#[^)\"\s]*)?[)\"])")
ROLE = re.compile(r":(?:class|data|exc|func|meth|mod|attr):<code>[~.]*([^<]+)</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand at the root."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    folder = "" if uri in ROOT_PAGES.values() else posixpath.join("docs", posixpath.dirname(uri))

    def replace(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path not in ROOT_PAGES and not path.startswith("docs/"):
            return match[0]
        path = ROOT_PAGES.get(path, path.removeprefix("docs/"))
        return before + posixpath.relpath(path, posixpath.dirname(uri) or ".") + after

    return LINK.sub(replace, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Show names in docstrings without the roles that Sphinx reads."""
    return ROLE.sub(r"<code>\1</code>", html)
