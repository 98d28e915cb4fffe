"""What a text that somebody pasted may mean: every number that it can be read as, and why.

Nothing is guessed in silence. A text of 13 digits and letters may be base36 or Crockford's
base32: both are read. Only digits alone that don't begin with 0 are decimal in every form,
since all forms agree on that (see :mod:`...core.encoding`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from django.apps import apps
from django.utils.translation import gettext as _

from ...core.encoding import ALPHABETS, TextForm
from ...core.errors import ConfigurationError, InvalidId
from ...core.segment import MAX_ID
from ...fields.base import GeneratedOnSave

__all__ = ["FORMS", "HEXADECIMAL", "Spelling", "label", "spellings"]

HEXADECIMAL = "hexadecimal"
FORMS = (*ALPHABETS, HEXADECIMAL)
LONGEST_TEXT = 10_000
"""Characters that are looked at: a page of a log, not the log."""
MOST_WORDS = 20
"""Ids that are read out of a longer text."""

_NARROW = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""The full-width digits and letters that Chinese and Japanese keyboards write."""
_SPACES = {ord(char): " " for char in "\t\n\r\u00a0\u2007\u2009\u202f\u3000"}
_INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060"))
_AROUND = " \"'`“”‘’«»()[]{}<>,;"
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?P<by>[ ,.'’_])(?:[0-9]{2,3}(?P=by))*[0-9]{3}", re.ASCII)
_HEXADECIMAL = re.compile(r"0[xX][0-9A-Fa-f]+|(?=.*[A-Fa-f])[0-9A-Fa-f]{16}", re.ASCII)
_WORD = re.compile(r"(?<![\w.+−-])[0-9A-Za-z][\w-]*(?![\w-]|\.[0-9])", re.ASCII)
# No two ways to match the same digits: trying them all would take seconds.
_FRACTION = re.compile(r"[-+−]?(?:[0-9]+(?:[.,][0-9]+)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_LETTERED = tuple(TextForm(alphabet) for alphabet in ALPHABETS if alphabet != "decimal")

_Fields = tuple[GeneratedOnSave, ...]
_Known = dict[TextForm, _Fields]
"""The fields of installed models, by the form in which they write their ids."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One number that the text may mean. Frozen."""

    id: int
    text: str
    """The part of what was given that was read."""
    form: str
    """One of :data:`FORMS`."""
    prefix: str
    why: str
    """In words, for people."""
    fields: tuple[GeneratedOnSave, ...] = ()
    """The fields of installed models that write their ids just so; not told for plain digits."""

    @property
    def is_named(self) -> bool:
        """Whether the prefix says of which fields it is: then it can be no other's."""
        return bool(self.prefix)


def spellings(given: object, *, form: str | None = None) -> list[Spelling]:
    """Every way to read ``given``: an int, or a text with an id in it; the likeliest first.

    With ``form`` (one of :data:`FORMS`) only that one is tried, with any prefix of the
    project's fields. Raises :class:`InvalidId` where there is none.
    """
    if isinstance(given, bool) or not isinstance(given, int | str):
        kind = "nothing" if given is None else f"a {type(given).__name__}"
        raise InvalidId(given, f"an id is a whole number or a text, and this is {kind}")
    if isinstance(given, int):
        return [Spelling(_checked(given, given), str(given), "decimal", "", _("a whole number"))]
    text, known = _cleaned(given), _forms()
    found = list(_whole(text, form, known))
    if not found and not _is_number(text):  # of which a part would be another one
        found = list(_within(text, form, known))
    if not found:
        raise InvalidId(given, _reason(text, form, known))
    return sorted(_distinct(found), key=_rank)


def label(field: GeneratedOnSave) -> str:
    """``shop.Order.id``: how a field is named to people."""
    return f"{field.model._meta.label}.{field.name}"


def _cleaned(given: str) -> str:
    if len(given) > LONGEST_TEXT:
        raise InvalidId(given, f"it has {len(given)} characters, and at most {LONGEST_TEXT} do")
    text = given.translate(_INVISIBLE).translate(_NARROW).translate(_SPACES).strip(_AROUND)
    if not text:
        raise InvalidId(given, "there is nothing in it")
    return text


def _rank(spelling: Spelling) -> tuple[bool, bool, int]:
    # Of the numbers in a URL the port is the shorter one.
    return (not spelling.is_named, not spelling.fields, -len(spelling.text))


# --- a text that is an id ---------------------------------------------------------------


def _whole(text: str, form: str | None, known: _Known) -> Iterator[Spelling]:
    """The text, or the word, as one id."""
    for spelling in (*_prefixed(text, known), *_numeric(text), *_lettered(text, known)):
        if form in (None, spelling.form):
            yield spelling


def _prefixed(text: str, known: _Known) -> Iterator[Spelling]:
    for text_form, fields in known.items():
        if text_form.prefix and text.startswith(text_form.prefix):
            with suppress(InvalidId):
                number = text_form.parse(text)
                names = ", ".join(map(label, fields))
                why = _("%(form)s after “%(prefix)s”, the prefix of %(fields)s") % {
                    "form": text_form.alphabet,
                    "prefix": text_form.prefix,
                    "fields": names,
                }
                yield Spelling(number, text, text_form.alphabet, text_form.prefix, why, fields)


def _numeric(text: str) -> Iterator[Spelling]:
    if _is_digits(text):
        zeros = text[0] == "0"
        why = _("decimal digits, filled up with zeros") if zeros else _("decimal digits")
        yield from _decimal(text, text, why)
    elif grouped := _GROUPED.fullmatch(text):
        why = _("decimal digits, grouped by “%(separator)s”") % {"separator": grouped["by"]}
        yield from _decimal(text, text.replace(grouped["by"], ""), why)
    if _HEXADECIMAL.fullmatch(text):
        with suppress(InvalidId):
            number = _checked(text, int(text, 16))
            yield Spelling(number, text, HEXADECIMAL, "", _("hexadecimal digits"))


def _decimal(text: str, digits: str, why: str) -> Iterator[Spelling]:
    digits = digits.lstrip("0")
    if 0 < len(digits) <= len(str(MAX_ID)) and int(digits) <= MAX_ID:
        yield Spelling(int(digits), text, "decimal", "", why)


def _lettered(text: str, known: _Known) -> Iterator[Spelling]:
    if _is_digits(text) and text[0] != "0":
        return  # decimal, in every form
    for text_form in _LETTERED:
        with suppress(InvalidId):
            number = text_form.parse(text)
            fields = known.get(text_form, ())
            why = _why_lettered(text_form, fields)
            yield Spelling(number, text, text_form.alphabet, "", why, fields)


def _why_lettered(text_form: TextForm, fields: _Fields) -> str:
    values = {"count": text_form.width, "form": text_form.alphabet}
    if fields:
        values["fields"] = ", ".join(map(label, fields))
        return _("%(count)d digits of %(form)s, as %(fields)s writes its ids") % values
    return _("%(count)d digits of %(form)s, which no field of this project is written in") % values


def _forms() -> _Known:
    found: dict[TextForm, list[GeneratedOnSave]] = {}
    for model in apps.get_models():
        for field in model._meta.local_concrete_fields:
            if isinstance(field, GeneratedOnSave):
                with suppress(ConfigurationError):  # which a check has told
                    found.setdefault(field.text, []).append(field)
    return {text_form: tuple(fields) for text_form, fields in found.items()}


# --- a text that holds ids ----------------------------------------------------------------


def _within(text: str, form: str | None, known: _Known) -> Iterator[Spelling]:
    """The ids in a URL, a piece of JSON, a line of a log: of each word that can be one."""
    read = 0
    for word in _WORD.finditer(unquote(text)):
        found = [each for each in _whole(word[0], form, known) if _stands_alone(each)]
        for each in found:
            why = _("“%(word)s” in the text: %(why)s") % {"word": word[0], "why": each.why}
            yield Spelling(each.id, each.text, each.form, each.prefix, why, each.fields)
        read += bool(found)
        if read == MOST_WORDS:
            return


def _stands_alone(spelling: Spelling) -> bool:
    # An ordinary word ("Application") may be base62, too; hardly an id has no digit.
    return spelling.is_named or any(char.isdigit() for char in spelling.text)


def _distinct(found: list[Spelling]) -> list[Spelling]:
    seen: dict[tuple[int, str, str], Spelling] = {}
    for each in found:
        seen.setdefault((each.id, each.form, each.prefix), each)
    return list(seen.values())


# --- a text that is none --------------------------------------------------------------------


def _reason(text: str, form: str | None, known: _Known) -> str:
    if _is_number(text):
        return "ids are whole numbers of 1 to 2**63 - 1"
    named = _reason_of_prefix(text, known)
    if named and form is None:
        return named
    forms = [form] if form else list(FORMS)
    allowed = ", ".join(_described(name) for name in forms)
    own = ", ".join(sorted({text_form.prefix for text_form in known} - {""}))
    prefixes = f", with or without a prefix of this project ({own})" if own else ""
    return f"it can't be read as {allowed}{prefixes}"


def _reason_of_prefix(text: str, known: _Known) -> str:
    for text_form in sorted(known, key=lambda each: -len(each.prefix)):
        if text_form.prefix and text.startswith(text_form.prefix):
            try:
                text_form.parse(text)
            except InvalidId as error:
                return str(error).partition("is not an id: ")[2].rstrip(".")
    return ""


def _described(form: str) -> str:
    if form == "decimal":
        return "decimal digits"
    if form == HEXADECIMAL:
        return "hexadecimal (0x...)"
    return f"{form} ({TextForm(form).width} digits)"


def _checked(given: object, number: int) -> int:
    if not 1 <= number <= MAX_ID:
        raise InvalidId(given, "ids are 1 to 2**63 - 1")
    return number


def _is_number(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_GROUPED, _FRACTION))


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
