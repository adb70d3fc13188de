"""Pages of the documentation's site that are not in docs/, as hooks of MkDocs.

The README is the home page. The changelog and the security notes are pages, too. A link to any other file or folder of
the repository leads to a page with its text, so that the site is complete without a code host.
"""

from __future__ import annotations

import posixpath
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
TEXT_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "sh"}
LINK = re.compile(r"(?P<open>\]\()(?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?P<close>\))")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//[^"]*"
      | <link\b(?=[^>]*\brel="(?:stylesheet|preconnect|preload|icon)")[^>]*\bhref="(?:https?:)?//[^"]*" """,
    re.VERBOSE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand folders of the navigation to their pages, and show the version."""
    config.nav = [expanded(entry) for entry in config.nav or ()]
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "transom/version.py").read_text(), re.MULTILINE)
    if version is None:
        raise PluginError("transom/version.py has no __version__")
    config.copyright = f"Transom {version[1]}, Apache License 2.0"
    return config


def expanded(entry: Any) -> Any:
    """An entry of the navigation in which no target is a folder."""
    if isinstance(entry, dict):
        return {title: expanded(target) for title, target in entry.items()}
    if isinstance(entry, list):
        return [expanded(each) for each in entry]
    if not entry.endswith("/"):
        return entry
    names = sorted(page.name for page in (ROOT / "docs" / entry).glob("*.md"))
    return [entry + name for name in sorted(names, key=lambda name: name != "README.md")]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and Mermaid."""
    documents = {path: site_path(path) for path in TEXT_PAGES}
    documents |= {f"docs/{file.src_uri}": file.src_uri for file in files.documentation_pages()}
    for path in TEXT_PAGES:
        files.append(File.generated(config, site_path(path), content=(ROOT / path).read_text("utf-8")))
    for target in sorted({target for path in documents for target in linked_sources(path)}):
        files.append(File.generated(config, site_path(target), content=source_page(target)))
    for file in mermaid_files(config):
        files.append(file)
    return files


def linked_sources(path: str) -> set[str]:
    """The files and folders of the repository that a document links to and that are no pages."""
    targets = {
        repository_path(path, link["target"]) for link in LINK.finditer((ROOT / path).read_text("utf-8"))
    }
    return {
        target
        for target in targets
        if target not in TEXT_PAGES and not target.startswith("docs/") and (ROOT / target).exists()
    }


def repository_path(document: str, target: str) -> str:
    """The path from the repository's root that a link of a document names.

    >>> repository_path("docs/algorithms/zones.md", "../../transom/promising/zones.py")
    'transom/promising/zones.py'
    """
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), target))


def site_path(path: str) -> str:
    """The page of the site for a path of the repository."""
    if path in TEXT_PAGES:
        return TEXT_PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"


def source_page(path: str) -> str:
    """A page with the text of a file, or with the names in a folder. The search leaves it out."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if (ROOT / path).is_dir():
        entries = sorted(entry for entry in (ROOT / path).iterdir() if entry.name != "__pycache__")
        return head + "".join(f"- `{entry.name}`\n" for entry in entries)
    text = (ROOT / path).read_text("utf-8")
    fence = "`" * 4
    return f"{head}{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}{fence}\n"


def mermaid_files(config: MkDocsConfig) -> list[File]:
    """Mermaid as NiceGUI brings it, and the script that draws diagrams with it."""
    folder = Path(str(distribution("nicegui").locate_file("nicegui/elements/mermaid/dist")))
    scripts = [
        File.generated(config, f"assets/mermaid/{script.name}", abs_src_path=str(script))
        for script in sorted(folder.glob("*.js"))
    ]
    drawer = ROOT / "scripts" / "site_diagrams.js"
    return [*scripts, File.generated(config, "assets/diagrams.js", abs_src_path=str(drawer))]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the pages of the site."""
    here = page.file.src_uri
    document = next((path for path, uri in TEXT_PAGES.items() if uri == here), f"docs/{here}")
    if here.startswith("source/"):
        return markdown

    def rewritten(link: re.Match[str]) -> str:
        path = repository_path(document, link["target"])
        if not (ROOT / path).exists() or (document.startswith("docs/") and path.startswith("docs/")):
            return link[0]  # MkDocs resolves it, or reports it
        target = posixpath.relpath(site_path(path), posixpath.dirname(here))
        return f"{link['open']}{target}{link['anchor'] or ''}{link['close']}"

    return LINK.sub(rewritten, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that loads something from another server: the site works offline."""
    loaded = LOADED.search(output)
    if loaded is not None:
        raise PluginError(f"{page.file.src_uri} loads from another server: {loaded[0]}")
    return output
