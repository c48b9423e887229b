"""Python projects, in the ways that their tools lay them out."""

from __future__ import annotations

from tests.e2e.layouts.sample import SampleProject

# The package is `sizes`, below src unless said otherwise, and its tests import it and a dependency.

SIZES = "from toolz import identity\n\n\ndef parse(text: str) -> int:\n    return int(identity(text))\n"
PYTEST = "from sizes import parse\n\n\ndef test_a_size() -> None:\n    assert parse('12') == 12\n"
SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
HATCHLING = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
PROJECT = '[project]\nname = "sizes"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies = ["toolz"]\n'


def src(pyproject: str, **more: str) -> dict[str, str]:
    """Return the package below src with its test."""
    package = {"src/sizes/__init__.py": SIZES, "tests/test_sizes.py": PYTEST}
    return {"pyproject.toml": pyproject, **package, **more}


HOOKS = """repos:
  - repo: local
    hooks:
      - id: parse
        name: parse
        entry: python -c 'import ast, sys; [ast.parse(open(name).read()) for name in sys.argv[1:]]'
        language: python
        types: [python]
"""
FAULT = ("int(identity(text))", "-int(identity(text))")
SRC = ("src/sizes/__init__.py", *FAULT)
FLAT = ("sizes.py", *FAULT)
PYTHON = (
    SampleProject(
        name="src-extras",
        files=src(
            SETUPTOOLS
            + PROJECT
            + '[project.optional-dependencies]\ntest = ["pytest"]\ndocs = ["no-such-package-of-ours"]\n'
        ),
        fault=SRC,
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="groups",
        files=src(
            HATCHLING
            + PROJECT
            + (
                '[dependency-groups]\ndev = ["pytest", "mypy"]\n[tool.mypy]\nfiles = ["src"]\n'
                'disable_error_code = ["import-untyped"]\n'
            )
        ),
        fault=SRC,
        checks=("python3 -m pytest -q", "python3 -m mypy"),
    ),
    SampleProject(
        name="uv",
        files=src(HATCHLING + PROJECT + '[dependency-groups]\ndev = ["pytest"]\n'),
        fault=SRC,
        checks=("uv run --locked pytest -q",),
        locks=("uv.lock",),
    ),
    SampleProject(
        name="uv-extras",
        files=src(HATCHLING + PROJECT + '[project.optional-dependencies]\ntest = ["pytest"]\n[tool.ruff]\n'),
        fault=SRC,
        checks=("uv run --locked --extra test pytest -q", "ruff check ."),
        locks=("uv.lock",),
    ),
    SampleProject(
        name="poetry",
        files=src(
            '[tool.poetry]\nname = "sizes"\nversion = "1.0"\ndescription = ""\nauthors = []\n'
            'packages = [{ include = "sizes", from = "src" }]\n'
            '[tool.poetry.dependencies]\npython = ">=3.11"\ntoolz = "*"\n'
            '[tool.poetry.group.dev.dependencies]\npytest = "*"\n'
            '[[tool.poetry.source]]\nname = "simple"\nurl = "https://pypi.org/simple/"\npriority = "primary"\n'
            '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n'
        ),
        fault=SRC,
        checks=("poetry run pytest -q",),
        locks=("poetry.lock",),
    ),
    SampleProject(
        name="pdm",
        files=src(
            '[build-system]\nrequires = ["pdm-backend"]\nbuild-backend = "pdm.backend"\n'
            + PROJECT
            + '[dependency-groups]\ntest = ["pytest"]\n[tool.pdm]\ndistribution = true\n'
        ),
        fault=SRC,
        checks=("pdm run pytest -q",),
        locks=("pdm.lock",),
    ),
    SampleProject(
        name="tox",
        files=src(
            HATCHLING + PROJECT,
            **{"tox.ini": "[tox]\nenv_list = py{311,313}\n[testenv]\ndeps = pytest\ncommands = pytest -q\n"},
        ),
        fault=SRC,
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="requirements",
        files={
            "sizes.py": SIZES,
            "tests/test_sizes.py": PYTEST,
            "requirements.txt": "toolz\n",
            "requirements-dev.txt": "-r requirements.txt\npytest\n",
            "requirements-docs.txt": "no-such-package-of-ours\n",
        },
        fault=FLAT,
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="setup-cfg",
        files={
            "setup.py": "from setuptools import setup\n\nsetup()\n",
            "setup.cfg": "[metadata]\nname = sizes\nversion = 1.0\n[options]\npackage_dir =\n    = src\n"
            "packages = sizes\ninstall_requires =\n    toolz\n"
            "[options.extras_require]\ntesting =\n    pytest\n[tool:pytest]\ntestpaths = tests\n",
            "src/sizes/__init__.py": SIZES,
            "tests/test_sizes.py": PYTEST,
        },
        fault=SRC,
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="pre-commit",
        files={
            **src(HATCHLING + PROJECT),
            ".pre-commit-config.yaml": HOOKS,
        },
        fault=SRC,
        checks=("pre-commit run --all-files", "python3 -m pytest -q"),
    ),
    SampleProject(
        name="make-requirements",
        files={
            "Makefile": "test:\n\tPYTHONPATH=src python3 -m pytest -q\n",
            "src/sizes.py": SIZES,
            "tests/test_sizes.py": PYTEST,
            "requirements/base.txt": "toolz\n",
            "requirements/test.txt": "-r base.txt\npytest\n",
        },
        fault=("src/sizes.py", *FAULT),
        checks=("make test",),
    ),
)
