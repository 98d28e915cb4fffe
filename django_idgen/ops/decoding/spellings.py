"""Every number that a text can be read as, and why.

A text of 13 digits and letters may be base36 or Crockford's base32: both are read. Only
plain digits without a leading 0 are decimal in every form (see :mod:`...core.encoding`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from django.apps import apps

from ...core.encoding import ALPHABETS, LONGEST_TEXT, WHOLE_NUMBERS, TextForm
from ...core.errors import ConfigurationError, InvalidId
from ...core.segment import MAX_ID
from ...fields.base import GeneratedOnSave

FORMS = tuple(ALPHABETS)

_FRACTION = re.compile(r"[-+−]?(?:[0-9]+(?:[.,][0-9]+)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_LETTERED = tuple(TextForm(alphabet) for alphabet in ALPHABETS if alphabet != "decimal")

_Fields = tuple[GeneratedOnSave, ...]
_Known = dict[TextForm, _Fields]
"""The fields of installed models, by the text form of their ids."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One number that the text may mean."""

    id: int
    text: str
    form: str
    """One of :data:`FORMS`."""
    prefix: str
    """It names the fields, and the id belongs to no other."""
    why: str
    """For people."""
    fields: tuple[GeneratedOnSave, ...] = ()
    """The fields of installed models with this form; none for plain digits."""


def spellings(given: object, *, form: str | None = None) -> list[Spelling]:
    """Every way to read ``given``, an int or the text of an id; the likeliest first.

    With ``form`` (one of :data:`FORMS`) only that one is tried, with any prefix of the
    project's fields. Raises :class:`InvalidId` if there is none.
    """
    if isinstance(given, bool) or not isinstance(given, int | str):
        kind = "nothing" if given is None else f"a {type(given).__name__}"
        raise InvalidId(given, f"an id is a whole number or a text, not {kind}")
    if isinstance(given, int):
        if not 1 <= given <= MAX_ID:
            raise InvalidId(given, "ids are 1 to 2**63 - 1")
        return [Spelling(given, str(given), "decimal", "", "a whole number")]
    text, known = given.strip(), _forms()
    if not text:
        raise InvalidId(given, "it is empty")
    if len(text) > LONGEST_TEXT:
        raise InvalidId(given, f"it has {len(text)} characters; the limit is {LONGEST_TEXT}")
    found = [
        each for each in (*_decimal(text), *_lettered(text, known)) if form in (None, each.form)
    ]
    if not found:
        raise InvalidId(given, _reason(text, form, known))
    return sorted(found, key=lambda each: (not each.prefix, not each.fields))


def _forms() -> _Known:
    found: dict[TextForm, list[GeneratedOnSave]] = {}
    for model in apps.get_models():
        for field in model._meta.local_concrete_fields:
            if isinstance(field, GeneratedOnSave) and field.copied_from is None:
                with suppress(ConfigurationError):  # a check reports it
                    found.setdefault(field.text, []).append(field)
    return {text_form: tuple(fields) for text_form, fields in found.items()}


def _decimal(text: str) -> Iterator[Spelling]:
    digits = text.lstrip("0")
    why = "decimal digits" if digits == text else "decimal digits, filled up with zeros"
    if _is_digits(digits) and len(digits) <= len(str(MAX_ID)) and int(digits) <= MAX_ID:
        yield Spelling(int(digits), text, "decimal", "", why)


def _lettered(text: str, known: _Known) -> Iterator[Spelling]:
    forms: _Known = dict.fromkeys(_LETTERED, ())
    forms |= {each: fields for each, fields in known.items() if not each.is_plain}
    is_decimal = _is_digits(text) and text[0] != "0"  # in every form without a prefix
    for text_form, fields in forms.items():
        if text_form.prefix or not is_decimal:
            with suppress(InvalidId):
                number = text_form.parse(text)
                why = _why(text_form, fields)
                yield Spelling(number, text, text_form.alphabet, text_form.prefix, why, fields)


def _why(text_form: TextForm, fields: _Fields) -> str:
    form, named = text_form.alphabet, ", ".join(map(str, fields))
    if text_form.prefix:
        return f"{form} after “{text_form.prefix}”, the prefix of {named}"
    digits = f"{text_form.width} digits of {form}"
    if fields:
        return f"{digits}, as {named} writes its ids"
    return f"{digits}, a form that no field of this project uses"


# --- a text that is not an id -------------------------------------------------------------------


def _reason(text: str, form: str | None, known: _Known) -> str:
    if _FRACTION.fullmatch(text):
        return WHOLE_NUMBERS
    named = _reason_of_prefix(text, known)
    if named and form is None:
        return named
    forms = [TextForm(form)] if form else [TextForm(), *_LETTERED]
    allowed = ", ".join(
        f"{each.named} ({each.width} characters)" if each.width else "decimal digits"
        for each in forms
    )
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


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
