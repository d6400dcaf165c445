"""A name says one thing: public classes have names of their own, and no name has a word that hides its use.

Every name is held: private functions, parameters, local variables and attributes, too.
"""

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT, find_modules, parse_those_with

CODE = find_modules("mailhub", "campaigns", "vendors", "sandbox", "waiter")  # migrations are history
TESTS = find_modules("tests", "benchmarks")
DJANGOS = {"Command", "Meta"}  # the framework wants these names, a management command's and a model's options
FORBIDDEN = {
    *("bell", "bells", "desk", "desks", "outlook", "pace", "people", "picture", "pictures", "prospect", "prospects"),
    *("room", "rooms", "roster", "standing", "told", "words"),
}
HIDING = FORBIDDEN | {"clerk", "house", "ring", "rings", "street", "world"}
STAYS = {  # name and file -> why it may stay
    ("told", "campaigns/integrations/api/session_schemas.py"): "a member of the API's answers; programs read it",
    ("told", "campaigns/integrations/api/webhooks.py"): "a member of the API's answers; programs read it",
}
PROSE = re.compile(  # DOTALL: a backslash may stand before the end of a line
    r'"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)
NAME = re.compile(r"[A-Za-z_]\w*")
MAKES_A_TYPE = {"NamedTuple", "NewType", "ParamSpec", "TypeVar", "TypedDict", "namedtuple"}

Place = tuple[str, str]  # a name, and file:line


def outermost(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those below `if` and `try`, and nothing that is in a class or function."""
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
                yield from outermost(getattr(node, part, []))


def types(file: str, tree: ast.Module) -> Iterator[Place]:
    """Public classes and names for types that a module makes."""
    for node in outermost(tree.body):
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [one.id for one in node.targets if isinstance(one, ast.Name) and is_type(one.id, node.value)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id] if "TypeAlias" in ast.unparse(node.annotation) else []
        else:
            names = []
        yield from ((name, f"{file}:{node.lineno}") for name in names if not name.startswith("_"))


def is_type(name: str, value: ast.expr) -> bool:
    """CamelCase, or made as a type is made: `T = TypeVar("T")`, `S = Status`."""
    if camel(name):
        return True
    if isinstance(value, ast.Call):
        return last(value.func) in MAKES_A_TYPE
    return camel(last(value))


def camel(name: str) -> bool:
    return name[:1].isupper() and not name.isupper()


def last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def functions(file: str, tree: ast.Module) -> Iterator[Place]:
    for node in outermost(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name, f"{file}:{node.lineno}"


def bound(file: str, tree: ast.Module) -> Iterator[Place]:
    """Every name that is made here: of classes, functions, parameters, variables, attributes and imports.

    The name of a test is a sentence, in which every word is allowed.
    """
    for node in ast.walk(tree):
        for name in names_of(node):
            if not name.startswith("test_"):
                yield name, f"{file}:{node.lineno}"  # type: ignore[attr-defined]


def names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.arg(arg=name) | ast.alias(asname=str(name)):
            return [name]
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
    return []


def hiding(places: list[Place]) -> list[str]:
    """Names that have one of the words that may not even be used inside a function."""
    found = [(name, place) for name, place in places if parts(name) & HIDING]
    return [f"{place} {name}" for name, place in found if (name, place.partition(":")[0]) not in STAYS]


@functools.cache
def parts(name: str) -> set[str]:
    """The words of a name: `desk_rows`, `DeskRows` and `DESKRows` have desk and rows."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def twice(places: list[Place]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for name, place in places:
        found[name].append(place)
    return {name: where for name, where in found.items() if len(where) > 1 and name not in DJANGOS}


def in_the_way(places: list[Place]) -> list[str]:
    """Names that have one of the words."""
    return [f"{place} {name}" for name, place in places if parts(name) & FORBIDDEN]


def modules(paths: list[Path]) -> list[Place]:
    """Each file and each folder, once."""
    steps = {one for path in paths for one in [path, *path.parents] if ROOT in one.parents}
    return [(path.stem, str(path.relative_to(ROOT))) for path in sorted(steps)]


@functools.cache
def public() -> tuple[list[Place], list[Place]]:
    """The types and the functions of the product."""
    found: tuple[list[Place], list[Place]] = ([], [])
    for file, tree in parse_those_with("", CODE):
        found[0].extend(types(file, tree))
        found[1].extend(functions(file, tree))
    return found


@functools.cache
def bound_anywhere() -> list[Place]:
    """What is bound in files that have a hiding word in any name; parsing all of them takes seconds."""
    found: list[Place] = []
    for path in [*CODE, *TESTS]:
        if has_hiding_name(text := path.read_text()):
            found += bound(str(path.relative_to(ROOT)), ast.parse(text))
    return found


def has_hiding_name(text: str) -> bool:
    return not HIDING.isdisjoint(itertools.chain.from_iterable(map(parts, set(NAME.findall(PROSE.sub("", text))))))


def test_a_public_class_has_a_name_of_its_own() -> None:
    found, _ = public()
    assert len(found) > 200, "the test reads nothing"
    assert twice(found) == {}


def test_no_public_name_has_a_word_that_hides_what_it_is() -> None:
    found, others = public()
    assert in_the_way([*found, *others]) == []


def test_no_module_has_a_word_that_hides_what_it_is() -> None:
    found = modules([*CODE, *TESTS])
    assert len(found) > 400, "the test reads nothing"
    assert in_the_way(found) == []


def test_no_name_inside_a_module_has_a_word_that_hides_what_it_is() -> None:
    assert len([*CODE, *TESTS]) > 1_000, "the test reads nothing"
    assert hiding(bound_anywhere()) == []


def test_a_name_that_may_stay_is_there() -> None:
    found = {(name, place.partition(":")[0]) for name, place in bound_anywhere()}
    assert {one for one in STAYS if one not in found} == set(), "a reason for a name that is gone"


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    told = 1",
        "def f(desk, /):\n    pass",
        "def f(*words, **people):\n    pass",
        "def _ring():\n    pass",
        "class A:\n    _pace: int = 3",
        "def f(self):\n    self.last_words = []",
        "import a as bell",
        "for n, (world, x) in ():\n    pass",
        "[told for told in ()]",
        "with a() as desk:\n    pass",
        "if (told := 1):\n    pass",
        "lambda words: 1",
        "try:\n    pass\nexcept E as told:\n    pass",
    ],
)
def test_a_word_that_hides_inside_a_function_would_be_seen(code: str) -> None:
    assert hiding(list(bound("a.py", ast.parse(code))))
    assert has_hiding_name(code), "it is read at all"


@pytest.mark.parametrize("code", ["# told", "'told'", '"""a\n"told"\n"""', "r'\\' # told", "f'it''s' + \"a'told\""])
def test_a_file_that_has_the_word_in_texts_alone_is_not_parsed(code: str) -> None:
    assert not has_hiding_name(code)
    assert has_hiding_name(f"{code}\ntold = 1")


@pytest.mark.parametrize("code", ["a.told", "f(words=1)", "a.desk.b = 1", "string = 'told'", "keyword, worlds = 1, 2"])
def test_a_name_that_is_made_elsewhere_is_no_fault_here(code: str) -> None:
    assert hiding(list(bound("a.py", ast.parse(code)))) == []


ONE = "class Answer:\n    pass\n"


@pytest.mark.parametrize(
    "other",
    [
        "class Answer(Base):\n    pass",
        "Answer = dict[str, int]",
        "Answer: TypeAlias = 'dict[str, int]'",
        "Answer = TypeVar('Answer')",
        "try:\n    import fast\nexcept ImportError:\n    class Answer:\n        pass",
        "if TYPE_CHECKING:\n    Answer = str",
    ],
)
def test_a_second_class_of_a_name_would_be_seen(other: str) -> None:
    first = list(types("a.py", ast.parse(ONE)))
    assert list(twice([*first, *types("b.py", ast.parse(other))])) == ["Answer"]


@pytest.mark.parametrize(
    "other",
    [
        "class Command(BaseCommand):\n    pass",
        "class Outer:\n    class Answer:\n        pass",
        "class _Answer:\n    pass",
        "def f():\n    class Answer:\n        pass",
        "from a import Answer",
    ],
)
def test_what_makes_no_second_public_name_is_no_fault(other: str) -> None:
    first = list(types("a.py", ast.parse(ONE + "class Command:\n    pass")))
    assert twice([*first, *types("b.py", ast.parse(other))]) == {}


def test_a_second_name_for_one_type_is_a_type_also_in_capitals() -> None:
    assert [name for name, _ in types("a.py", ast.parse("S = lifecycle.Status\nT = TypeVar('T')\nMOST = 3"))] == [
        "S",
        "T",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "class DeskRows:\n    pass",
        "def in_words():\n    pass",
        "async def ring_bell():\n    pass",
        "Roster = dict[str, int]",
        "class HTTPProspects:\n    pass",
    ],
)
def test_a_word_that_hides_would_be_seen(code: str) -> None:
    tree = ast.parse(code)
    assert in_the_way([*types("a.py", tree), *functions("a.py", tree)])


@pytest.mark.parametrize("code", ["class Bellows:\n    pass", "def words_of():\n    pass", "def f():\n    told = 1"])
def test_only_whole_words_of_names_count(code: str) -> None:
    tree = ast.parse(code)
    assert bool(in_the_way([*types("a.py", tree), *functions("a.py", tree)])) == ("words" in code)


@pytest.mark.parametrize("path", ["campaigns/desk.py", "campaigns/desk/queries.py", "tests/faults/test_49_people.py"])
def test_a_module_of_such_a_name_would_be_seen(path: str) -> None:
    assert in_the_way(modules([ROOT / path]))
