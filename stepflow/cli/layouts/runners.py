"""Task runners of any language: Make, just and Task. Their files are read by the rules of the tools themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stepflow.cli.layouts.files import RepositoryFiles, table_of
from stepflow.cli.layouts.layout import PIP_INSTALL, Check, ProjectLayout
from stepflow.definition.judged import runs_code

#: The names of targets, recipes and tasks that check something → for what.
PURPOSES = {
    **dict.fromkeys(("test", "tests", "unittest", "unittests", "unit-test", "unit-tests", "test-unit"), "test"),
    **{"lint": "lint", "check": "check"},
    **dict.fromkeys(("typecheck", "type-check", "types"), "types"),
}
#: The first of these that is there is the one that Make reads.
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_INCLUDE = re.compile(r"^(?:-|s)?include[ \t]+([^#\n]+)", re.MULTILINE)
_RULE = re.compile(
    r"^ *+(?P<targets>[^\s#:=&][^#:=&\n]*+)(?:&:|::?)(?![:=])(?P<rest>[^\n]*)\n?"
    r"(?P<recipe>(?:(?:\t| {2,}|[ \t]*#)[^\n]*\n?|[ \t]*\n)*)",
    re.MULTILINE,
)
#: What a variable is for one target alone, which is no prerequisite.
_VALUE = re.compile(r"[ \t]*(?:(?:export|override|private|unexport)[ \t]+)*[\w.-]+[ \t]*[:+?!]*=")
_DEFINE = re.compile(r"^(?:override[ \t]+)?define\b.*?(?:^endef\b|\Z)", re.MULTILINE | re.DOTALL)
_PREFIX = re.compile(r"^\.RECIPEPREFIX[ \t]*:?=[ \t]*(\S)", re.MULTILINE)
_MOST_INCLUDED = 50


def make_file(repository: RepositoryFiles) -> str:
    """Return the file that Make would read."""
    # The file system may ignore case, so the names are compared with those in the folder.
    there = {path.name for path in repository.root.iterdir() if path.is_file()}
    return next((name for name in _MAKEFILES if name in there), "")


def make_text(repository: RepositoryFiles) -> str:
    """Return the text of the Makefile and of the files that it includes by name."""
    waiting, texts = [make_file(repository)], dict[str, str]()
    while waiting and len(texts) < _MOST_INCLUDED:
        if (name := waiting.pop(0)) and name not in texts:
            texts[name] = re.sub(r"\\\n[ \t]*", " ", repository.text(name))
            included = [word for match in _INCLUDE.finditer(texts[name]) for word in match[1].split()]
            inside = (word for word in included if not re.search(r"\$|\A/|\A\.\./", word))
            waiting += [found for word in inside for found in repository.names(word.removeprefix("./"))]
    text = "\n".join(texts.values())
    prefix = _PREFIX.search(text)
    return re.sub(rf"^{re.escape(prefix[1])}", "\t", text, flags=re.MULTILINE) if prefix else text


def make_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the targets of a Makefile that check something."""
    rules = dict[str, bool]()
    for rule in _RULE.finditer(_DEFINE.sub("", make_text(repository))):
        if _VALUE.match(rule["rest"]):
            continue
        prerequisites, _, inline = rule["rest"].partition(";")
        recipe = (line.strip().lstrip("@-+ ") for line in (*rule["recipe"].split("\n"), inline))
        commands = [line for line in recipe if line and not line.startswith("#")]
        does = bool(prerequisites.split("#")[0].split()) or any(map(runs_code, commands))
        for target in rule["targets"].split():
            rules[target] = rules.get(target, False) or does
    return _chosen("make {}", (target for target, does in rules.items() if does))


def _chosen(command: str, names: Iterable[str]) -> Iterator[Check]:
    """Yield one check for each purpose, of the first name in the order in which `PURPOSES` has them."""
    there = set(names)
    taken = set[str]()
    for name, purpose in PURPOSES.items():
        if name in there and purpose not in taken:
            taken.add(purpose)
            yield purpose, command.format(name)


_JUST_RECIPE = re.compile(
    r"^@?(?P<name>[A-Za-z_][\w-]*+)(?P<parameters>(?>[^\n:=]*+(?:=[^\n:=]*)*)):(?!=)(?P<rest>[^\n]*)\n?"
    r"(?P<body>(?:[ \t]+[^\n]*\n?|\n)*)",
    re.MULTILINE,
)
_JUST_ALIAS = re.compile(r"^alias[ \t]+([\w-]+)[ \t]*:=", re.MULTILINE)
_JUST_IMPORT = re.compile(r"""^import\??[ \t]+(["'])(.+?)\1""", re.MULTILINE)


def just_file(repository: RepositoryFiles) -> str:
    """Return the justfile, whose name may be written with any letters' case."""
    names = sorted(path.name for path in repository.root.iterdir() if path.is_file())
    return next((name for name in names if name.lower() in ("justfile", ".justfile")), "")


def just_text(repository: RepositoryFiles) -> str:
    """Return the text of the justfile and of the files that it imports."""
    text = repository.text(just_file(repository))
    return "\n".join((text, *(repository.text(match[2]) for match in _JUST_IMPORT.finditer(text))))


def just_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the recipes that check something and need no argument."""
    text = just_text(repository)
    names = [match[1] for match in _JUST_ALIAS.finditer(text)]
    for recipe in _JUST_RECIPE.finditer(text):
        needed = [word for word in recipe["parameters"].split() if "=" not in word and not word.startswith("*")]
        lines = (line.strip().lstrip("@- ") for line in recipe["body"].split("\n"))
        does = any(runs_code(line) for line in lines if line and not line.startswith("#"))
        if not needed and (does or recipe["rest"].split("#")[0].strip()):
            names.append(recipe["name"])
    return _chosen("just {}", names)


_TASKFILES = (
    *("Taskfile.yml", "taskfile.yml", "Taskfile.yaml", "taskfile.yaml"),
    *("Taskfile.dist.yml", "taskfile.dist.yml", "Taskfile.dist.yaml", "taskfile.dist.yaml"),
)


def task_checks(repository: RepositoryFiles) -> Iterator[Check]:
    """Yield the tasks of a Taskfile that check something."""
    tasks: Mapping[Any, Any] = repository.yaml(repository.find(*_TASKFILES)).get("tasks") or {}
    if not isinstance(tasks, dict):
        return
    names = [str(name) for name, task in tasks.items() if _task_does(task)]
    names += [alias for task in tasks.values() if isinstance(task, dict) for alias in task.get("aliases") or ()]
    yield from _chosen("task {}", names)


def _task_does(task: object) -> bool:
    commands: object = task
    if isinstance(task, dict):
        if task.get("deps"):
            return True
        commands = task.get("cmds", task.get("cmd", ()))
    listed = commands if isinstance(commands, list) else [commands]
    return any(runs_code(each) if isinstance(each, str) else bool(each) for each in listed)


def _task_text(repository: RepositoryFiles) -> str:
    return repository.text(repository.find(*_TASKFILES))


def _npm_text(repository: RepositoryFiles) -> str:
    return "\n".join(map(str, table_of(repository.package, "scripts").values()))


#: What runs commands from a file → the text of that file.
_TEXTS: Mapping[str, Callable[[RepositoryFiles], str]] = {
    "make": make_text,
    "just": just_text,
    "task": _task_text,
    "(?:npm|pnpm|yarn|bun)": _npm_text,
}


#: A word that may be the path of a file in the repository.
_PATH = re.compile(r"(?<![\w./~$-])(?:\./)?(\w[\w./-]{0,200})")


def running_text(repository: RepositoryFiles, commands: Sequence[str]) -> str:
    """Return the commands with the text of the files that they run: targets, recipes, tasks, and scripts."""
    text, waiting, scripts = "\n".join(commands), dict(_TEXTS), set[str]()
    # Each may start the next one: a script of npm that runs `make`.
    while True:
        used = [runner for runner in waiting if re.search(rf"(?<![\w./-]){runner}(?![\w-])", text)]
        named = [name for name in dict.fromkeys(_PATH.findall(text)) if name not in scripts]
        scripts.update(named)
        more = [*(waiting.pop(runner)(repository) for runner in used), *_script_texts(repository, named)]
        if not any(more):
            return text
        text = "\n".join((text, *more))


def _script_texts(repository: RepositoryFiles, names: Iterable[str]) -> Iterator[str]:
    """Yield the texts of those files that a shell would take for scripts."""
    texts = (repository.text(name) for name in names if (repository.root / name).is_file())
    return (text for text in texts if text.startswith("#!"))


MAKE = ProjectLayout("make", " ".join(_MAKEFILES), make_checks)
JUST = ProjectLayout(
    "just",
    "[Jj][Uu][Ss][Tt][Ff][Ii][Ll][Ee] .[Jj][Uu][Ss][Tt][Ff][Ii][Ll][Ee]",
    just_checks,
    f"{PIP_INSTALL} rust-just",
    runs="just",
    is_runner=True,
)
TASK = ProjectLayout(
    "task", " ".join(_TASKFILES), task_checks, f"{PIP_INSTALL} go-task-bin", runs="task", is_runner=True
)
