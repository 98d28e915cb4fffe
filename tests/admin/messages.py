"""The messages of the package, as gettext's tools would find them; and those of a .po file.

Written with the standard library and Django alone: the tools are not on every machine.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.utils.translation.template import templatize

import django_idgen

__all__ = ["CATALOGS", "Entry", "Message", "entries", "messages"]

PACKAGE = Path(django_idgen.__file__).parent
CATALOGS = PACKAGE / "locale"
CALLS = {
    "gettext": ("id",),
    "gettext_lazy": ("id",),
    "gettext_noop": ("id",),
    "ngettext": ("id", "plural"),
    "ngettext_lazy": ("id", "plural"),
    "pgettext": ("context", "id"),
    "pgettext_lazy": ("context", "id"),
    "npgettext": ("context", "id", "plural"),
    "npgettext_lazy": ("context", "id", "plural"),
}
"""Django's functions, and what their first arguments are."""
CALL_IN_TEMPLATE = re.compile(r"(?<![\w.])(?:n?p?gettext|_)\((?=u?['\"])")


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be translated."""

    id: str
    plural: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of a .po file, with its translation."""

    message: Message
    text: str
    flags: str
    forms: int
    """How many forms it has, if it is a plural."""


# --- in the package -----------------------------------------------------------------------


@cache
def messages() -> dict[Message, str]:
    """Every message that the package marks, and a file that does."""
    found: dict[Message, str] = {}
    for path in sorted(PACKAGE.rglob("*")):
        place = str(path.relative_to(PACKAGE))
        if path.suffix == ".py":
            found |= dict.fromkeys(_of_python(path.read_text()), place)
        elif path.suffix in {".html", ".txt"}:
            found |= dict.fromkeys(_of_template(path.read_text()), place)
    return found


def _of_python(source: str) -> Iterator[Message]:
    tree = ast.parse(source)
    named = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _called(named.get(node.func.id, ""), node.args)


def _of_template(source: str) -> Iterator[Message]:
    code = templatize(source)
    for match in CALL_IN_TEMPLATE.finditer(code):
        call = _parsed(code[match.start() :])
        assert isinstance(call.func, ast.Name)
        name = "gettext" if call.func.id == "_" else call.func.id
        yield from _called(name, call.args)


def _parsed(code: str) -> ast.Call:
    """The call that ``code`` begins with."""
    for end in (match.end() for match in re.finditer(r"\)", code)):
        try:
            node = ast.parse(code[:end], mode="eval").body
        except SyntaxError:
            continue
        assert isinstance(node, ast.Call)
        return node
    raise AssertionError(code[:80])


def _called(name: str, given: list[ast.expr]) -> Iterator[Message]:
    kinds = CALLS.get(name, ())
    texts = [each.value for each in given[: len(kinds)] if isinstance(each, ast.Constant)]
    if kinds and len(texts) == len(kinds):
        yield Message(**{kind: str(text) for kind, text in zip(kinds, texts, strict=True)})


# --- in a .po file --------------------------------------------------------------------------


def entries(path: Path) -> list[Entry]:
    """Of a .po file, without its header."""
    blocks = re.split(r"\n{2,}", path.read_text(encoding="utf-8"))
    return [entry for block in blocks if (entry := _entry(block)) and entry.message.id]


def _entry(block: str) -> Entry | None:
    flags, key, values = "", "", dict[str, str]()
    for line in block.splitlines():
        if line.startswith("#,"):
            flags += line
        elif not line.startswith("#"):
            word, _, quoted = line.partition(' "') if line[0] != '"' else ("", "", line[1:])
            key = word or key
            values[key] = values.get(key, "") + str(ast.literal_eval(f'"{quoted}'))
    if "msgid" not in values:
        return None
    message = Message(values["msgid"], values.get("msgid_plural", ""), values.get("msgctxt", ""))
    forms = sum(key.startswith("msgstr[") for key in values)
    return Entry(message, values.get("msgstr", values.get("msgstr[0]", "")), flags, forms)
