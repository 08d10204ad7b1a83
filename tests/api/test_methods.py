"""The methods of `Room` and `Mailbox` against the verbs that they carry out: same parameters, same defaults."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from postroom import Batch, Letter, Mailbox, Room, Work
from postroom.core.verb import LOCAL, VERBS, Verb, load_verbs
from postroom.reader import Reader
from postroom.task import Task

load_verbs()
BY_CLASS = {verb.__name__: verb for verb in VERBS.values()}
STEPS = {"_perform", "_ask", "_settle"}
# Parameters of methods that become others: objects in place of ids, and a flag that says the opposite.
OWN = {"letters", "archive", "drafts", "id", "ids"}
# A program gets all where a wire gets a page; a tuple cannot be changed by a caller.
OTHER_DEFAULTS = {("waiting", "limit"), ("broadcast", "exclude")}


def one_liners() -> Iterator[tuple[str, Callable[..., Any], type[Verb], set[str]]]:
    """Yield each method that carries out one verb, with the verb and the parameters that it passes by name."""
    for face in (Room, Mailbox):
        for name, method in inspect.getmembers(face, inspect.isfunction):
            if name[0] == "_" or method.__name__ != name:
                continue
            tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STEPS:
                    verb = ast.unparse(node.args[0]).rpartition(".")[2]
                    passed = {word.arg for word in node.keywords if word.arg is not None}
                    yield f"{face.__name__}.{name}", method, BY_CLASS[verb], passed


METHODS = {name: (method, verb, passed) for name, method, verb, passed in one_liners()}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_and_its_verb_have_the_same_parameters(name: str) -> None:
    method, verb, passed = METHODS[name]
    fields = {field.name: field for field in msgspec.structs.fields(verb)}
    assert passed <= fields.keys()
    for one in list(inspect.signature(method).parameters.values())[1:]:
        if one.kind is one.VAR_KEYWORD or one.kind is one.VAR_POSITIONAL or one.name in OWN:
            continue
        assert one.name in passed, one.name
        field = fields[one.name]
        is_alike = (name.partition(".")[2], one.name) in OTHER_DEFAULTS
        if one.default is not one.empty and not field.required and not is_alike:
            assert field.default == one.default, one.name


def test_most_methods_are_compared() -> None:
    assert len(METHODS) >= 60


def described(method: Callable[..., Any]) -> dict[str, str]:
    """The parameters in the docstring of a method, with their words."""
    listed = (inspect.getdoc(method) or "").partition("Args:\n")[2]
    found = re.findall(r"^ {4}\**(\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in found}


@pytest.mark.parametrize("face", [Reader, Room, Mailbox, Letter, Work, Batch, Task])
def test_the_docstring_of_a_method_lists_its_parameters(face: type) -> None:
    for name, method in vars(face).items():
        if name[0] == "_" or not inspect.isfunction(method) or method.__name__ != name:
            continue
        assert [*inspect.signature(method).parameters][1:] == [*described(method)], name


# Parameters that are more in Python than on a wire.
IN_OTHER_WORDS = {"body", "drafts", "ids", "lines"}


@pytest.mark.parametrize("name", METHODS)
def test_a_docstring_describes_parameters_as_the_verb_does(name: str) -> None:
    method, verb, passed = METHODS[name]
    hints = get_type_hints(verb, include_extras=True)
    for parameter, words in described(method).items():
        if parameter in passed - IN_OTHER_WORDS and get_origin(hints[parameter]) is Annotated:
            about = get_args(hints[parameter])[-1]
            assert about in {words, LOCAL}, parameter
