"""The tests of a change: `python -m tests.changed [BASE]` lists them, nearest first, and runs them.

A test file is as far from a change as the imports between; those that stand further away than `FARTHEST` are left to
`make test`. Tests that the change changes, and those that quote a text that it removes, run too, however slow they are;
pages and golden files that quote it are named.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
FARTHEST = 1
#: Characters that a text must have to count as quoted.
SHORTEST = 12
#: pytest's exit code where the marks leave no test.
NONE_CHOSEN = 5
#: Marks of tests that need Docker, a browser, a registry or a model.
ELSEWHERE = ("e2e", "e2e_security", "browser", "image_twice", "local_model", "npm")


def main(base: str) -> int:
    """List the tests and run them. Return pytest's exit code."""
    changed = changed_files(base)
    near = nearest_tests(changed)
    removed, added = texts_of_change(changed, base)
    quoting = sorted({test for file in tests() for test in quoting_tests(file, removed, added)})
    own = sorted({test for path in changed for test in changed_tests(path, base)})
    for file, distance in near.items():
        print(f"{distance}  {file}")
    for test in quoting:
        print(f"quotes what the change removes: {test}")
    pages = pages_that_quote(removed, added)
    of_pages = [f"tests/docs/test_docs_{Path(page).stem.replace('-', '_').lower()}.py" for page in pages]
    near |= {file: 0 for file in of_pages if (ROOT / file).is_file()}
    for file in pages:
        print(f"quotes what the change removes; `make docs` or STEPFLOW_ACCEPT=1 renews it, or you do by hand: {file}")
    codes = [
        _pytest(*near) if near else 0,
        _pytest("-m", " and ".join(f"not {mark}" for mark in ELSEWHERE), *quoting, *own) if quoting or own else 0,
    ]
    if not near and not quoting and not own:
        print(f"No test is near to what differs from {base}. `make test` runs all.")
    return max(codes)


def changed_files(base: str) -> list[str]:
    """Return the files that differ from where this branch left the base, and those that git does not track."""
    fork = _fork(base)
    return [
        *_git("diff", "--name-only", fork).splitlines(),
        *_git("ls-files", "--others", "--exclude-standard").splitlines(),
    ]


def nearest_tests(changed: Iterable[str]) -> dict[str, int]:
    """Return each test file that a change reaches, with its distance, nearest first."""
    changed = set(changed)
    reached = _distances(modules_of(changed))
    found = {path: 0 for path in changed if Path(path).name.startswith("test_") and (ROOT / path).is_file()}
    helpers = {path.removesuffix(".py").replace("/", ".") for path in changed if path.startswith("tests/")}
    others = [path for path in changed if not path.endswith(".py")]
    for file in tests():
        name = str(file.relative_to(ROOT))
        imported = set(_imports(file))
        distances = [reached[module] for module in imported & reached.keys()]
        if imported & helpers or any(_reads(file, path) for path in others):
            distances.append(0)
        if distances and name not in found:
            found[name] = min(distances)
    return dict(sorted(found.items(), key=lambda each: (each[1], each[0])))


def modules_of(changed: Iterable[str]) -> set[str]:
    """Return the changed modules of stepflow, and those that name a changed file of another kind."""
    found: set[str] = set()
    for path in changed:
        if path.startswith("stepflow/") and path.endswith(".py"):
            found.add(_module(Path(path)))
        elif path.startswith("stepflow/"):
            readers = (file for file in (ROOT / "stepflow").rglob("*.py") if Path(path).name in file.read_text("utf-8"))
            found |= {_module(file.relative_to(ROOT)) for file in readers}
    return found


def texts_of_change(changed: Iterable[str], base: str) -> tuple[set[str], set[str]]:
    """Return the texts that a change of stepflow removes, and those that it adds."""
    removed: set[str] = set()
    added: set[str] = set()
    for path in (path for path in changed if path.startswith("stepflow/")):
        new = (ROOT / path).read_text("utf-8") if (ROOT / path).is_file() else ""
        before, after = (set(_texts(path, text)) for text in (_before(path, base), new))
        removed |= before - after
        added |= after - before
    return removed, added


def quoting_tests(file: Path, removed: Iterable[str], added: Iterable[str]) -> Iterator[str]:
    """Yield the tests of a file that quote a text that is gone, as pytest names them."""
    name = str(file.relative_to(ROOT))
    tree = _parsed(file)
    for node in tree.body:
        texts = (
            each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )
        if any(_is_quoted(text, removed, added) for text in texts):
            function = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            yield f"{name}::{node.name}" if function else name


def changed_tests(path: str, base: str) -> Iterator[str]:
    """Yield the tests of a file that are new or read otherwise than before, as pytest names them."""
    is_test = path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")
    if not is_test or not (ROOT / path).is_file():
        return
    before = {ast.dump(node) for node in ast.parse(_before(path, base)).body}
    for node in _parsed(ROOT / path).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and ast.dump(node) not in before:
            yield f"{path}::{node.name}"


def pages_that_quote(removed: Iterable[str], added: Iterable[str]) -> list[str]:
    """Return the pages and golden files that quote a text that is gone."""
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tests").rglob("*.txt"),
        *(ROOT / "tests").rglob("*.md"),
    ]
    gone = [text.strip() for text in removed if len(text.strip()) >= SHORTEST]
    gone = [text for text in gone if not any(text in new for new in added)]
    return sorted(
        str(page.relative_to(ROOT)) for page in pages if any(text in page.read_text("utf-8") for text in gone)
    )


@cache
def tests() -> tuple[Path, ...]:
    """Return every test file."""
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


def _is_quoted(text: str, removed: Iterable[str], added: Iterable[str]) -> bool:
    """Whether a text of a test is a part of one that is gone, or has one in it."""
    plain = text.strip()
    if len(plain) < SHORTEST or any(plain in new for new in added):
        return False
    return any(plain in old or (len(old.strip()) >= SHORTEST and old.strip() in plain) for old in removed)


def _distances(modules: set[str]) -> dict[str, int]:
    """Return each module that a change reaches, with the number of imports between."""
    graph = grimp.build_graph("stepflow", cache_dir=None)
    near = modules & graph.modules
    found = dict.fromkeys(near, 0)
    for distance in range(1, FARTHEST + 1):
        near = {each for module in near for each in graph.find_modules_that_directly_import(module)} - found.keys()
        found |= dict.fromkeys(near, distance)
    return found


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(_parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def _texts(path: str, text: str) -> Iterator[str]:
    """Yield the texts of a module, or the lines of any other file."""
    if not path.endswith(".py"):
        yield from text.splitlines()
        return
    yield from (
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _reads(file: Path, path: str) -> bool:
    """Whether a test may read a file that is no module: a page belongs to the tests of the documents."""
    if path.endswith(".md"):
        return file.parent.name == "docs"
    return Path(path).name in file.read_text("utf-8")


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def _before(path: str, base: str) -> str:
    """Return a file as it was where this branch left the base; empty if it was not there."""
    fork = _fork(base)
    return subprocess.run(
        ["git", "show", f"{fork}:{path}"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout


def _fork(base: str) -> str:
    """Return the commit where this branch left the base: that of this clone, or the one that it was cloned from."""
    for name in (base, f"origin/{base}"):
        found = subprocess.run(
            ["git", "merge-base", name, "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if found.returncode == 0:
            return found.stdout.strip()
    sys.exit(f"There is no branch {base} here. Name the commit that your change starts from: make test-changed BASE=…")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _pytest(*words: str) -> int:
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "pytest", "-n", "2", *words], cwd=ROOT, check=False)
    return 0 if done.returncode == NONE_CHOSEN else done.returncode


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["main"])))
