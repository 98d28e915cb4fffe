"""Django's template backend, but ``{{ order.id }}`` has no thousand separators.

One line of settings, for projects with ``USE_THOUSAND_SEPARATOR = True``::

    TEMPLATES = [{"BACKEND": "django_idgen.template_backends.django.DjangoTemplates", ...}]

Django groups the digits of each number that a template shows: 1234567 becomes 1,234,567,
which nobody can search for. Here a variable whose last part is an id of ours is written as
its digits: ``{{ order.id }}``, ``{{ order.pk }}``, ``{{ line.order_id }}``. Of an instance
it goes by the model's fields; in dictionaries, the rows of ``values()``, named tuples and
variables of the template itself (``{{ id }}``) by the names that fields of ours have. All
else stays as Django has it: other numbers, filters, ``{% localize on %}``, inheritance,
included and cached templates, and the backend's NAME, ``django``.

It goes by the variables of compiled templates. ``{% blocktranslate %}``, ``{% firstof %}``
and tags that show a number by themselves need the filter ``id_text``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from django.apps import apps
from django.db import models
from django.template import Origin, TemplateDoesNotExist
from django.template.backends import django
from django.template.base import FilterExpression, Variable, VariableDoesNotExist, VariableNode
from django.template.context import Context
from django.template.engine import Engine
from django.template.loaders.base import Loader as BaseLoader

from ..fields.relations import id_behind

__all__ = ["DjangoTemplates", "Loader"]

_OWNER = "idgen_owner"
"""The name under which what comes before the last part is put into the context."""
_SLOTS: tuple[str, ...] = vars(FilterExpression)["__slots__"]


class DjangoTemplates(django.DjangoTemplates):
    """Takes the same settings as Django's."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.engine.loaders = [(f"{__name__}.Loader", self.engine.loaders)]

    def from_string(self, template_code: str) -> Any:
        made = super().from_string(template_code)
        _adapt(made.template)
        return made


class Loader(BaseLoader):
    """What other loaders find, adapted. Around the cached loader: once for each template."""

    def __init__(self, engine: Engine, loaders: Any) -> None:
        self.loaders = engine.get_template_loaders(loaders)
        super().__init__(engine)

    def get_template(self, template_name: str, skip: list[Origin] | None = None) -> Any:
        tried: list[Any] = []
        for loader in self.loaders:
            try:
                return _adapt(loader.get_template(template_name, skip=skip))
            except TemplateDoesNotExist as error:
                tried += error.tried
        raise TemplateDoesNotExist(template_name, tried=tried)

    def get_template_sources(self, template_name: str) -> Iterator[Origin]:
        for loader in self.loaders:
            yield from loader.get_template_sources(template_name)

    def get_contents(self, origin: Any) -> str:
        return str(origin.loader.get_contents(origin))

    def get_dirs(self) -> Iterator[Any]:
        # For the autoreloader.
        for loader in self.loaders:
            if hasattr(loader, "get_dirs"):
                yield from loader.get_dirs()

    def reset(self) -> None:
        for loader in self.loaders:
            loader.reset()


class IdExpression(FilterExpression):
    """A variable whose last part has the name of a field of ours, and its filters."""

    __slots__ = ("name", "owner", "rest")

    def __init__(self, plain: FilterExpression) -> None:
        for slot in _SLOTS:
            setattr(self, slot, getattr(plain, slot))
        *before, self.name = plain.var.lookups
        self.owner = Variable(".".join(before)) if before else None
        # What is left once the owner is known: it must not be looked up, or called, twice.
        self.rest = copy.copy(plain)
        if before:
            self.rest.var = Variable(f"{_OWNER}.{self.name}")
            self.rest.var.var = plain.var.var  # the name in messages

    def resolve(self, context: Context, ignore_failures: bool = False) -> Any:
        if self.owner is None:
            shown = super().resolve(context, ignore_failures)
            return _written(shown, context, self.name)
        try:
            owner = self.owner.resolve(context)
        except VariableDoesNotExist:
            return super().resolve(context, ignore_failures)
        if callable(owner):  # a manager, or what was told not to be called
            return super().resolve(context, ignore_failures)
        with context.push(**{_OWNER: owner}):
            shown = self.rest.resolve(context, ignore_failures)
        return _written(shown, owner, self.name)


def _written(shown: Any, owner: Any, name: str) -> Any:
    """What is shown, as digits if it is an int and still the id that ``owner`` has."""
    if not isinstance(shown, int) or isinstance(shown, bool):
        return shown
    return str(int(shown)) if shown == _id_of(owner, name) else shown


def _id_of(owner: Any, name: str) -> Any:
    if isinstance(owner, models.Model):
        return getattr(owner, name) if id_behind(type(owner), (name,)) else None
    if isinstance(owner, Mapping | Context):
        return owner.get(name)
    return getattr(owner, name, None) if isinstance(owner, tuple) else None


def _adapt(template: Any) -> Any:
    if not getattr(template, "idgen_adapted", False):
        names = _id_names()
        for node in template.nodelist.get_nodes_by_type(VariableNode):
            expression = node.filter_expression
            if type(expression) is FilterExpression and _last_part(expression) in names:
                node.filter_expression = IdExpression(expression)
        template.idgen_adapted = True
    return template


def _last_part(expression: FilterExpression) -> str | None:
    lookups = expression.var.lookups if expression.is_var else None
    return lookups[-1] if lookups else None


@cache
def _id_names() -> frozenset[str]:
    """Names of the attributes that hold ids of ours in some model."""
    names = {"pk"}
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.concrete_fields:
            if id_behind(model, (field.name,)):
                names.add(field.attname)
    return frozenset(names)
