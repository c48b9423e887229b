"""Python projects that name what their tests need in a place of their own, or nowhere."""

from __future__ import annotations

from tests.e2e.layouts.python import FLAT, HATCHLING, PROJECT, PYTEST, SETUPTOOLS, SIZES, SRC, src
from tests.e2e.layouts.sample import SampleProject

UNITTEST = (
    "import unittest\n\nfrom sizes import parse\n\n\nclass SizeTest(unittest.TestCase):\n"
    "    def test_a_size(self) -> None:\n        self.assertEqual(parse('12'), 12)\n"
)
PIP = ("python3 -m pytest -q",)
SETUP = (
    "from setuptools import setup\n\nsetup(\n    name='sizes',\n    version='1.0',\n    package_dir={'': 'src'},\n"
    "    packages=['sizes'],\n    install_requires=['toolz'],\n    extras_require={'tests': ['pytest']},\n)\n"
)
NOX_PYTEST = (
    "import nox\n\n\n@nox.session(python=['3.11', '3.13'])\ndef tests(session: nox.Session) -> None:\n"
    "    session.install('.', 'pytest', 'pytest-timeout')\n    session.run('pytest')\n"
)
PYTEST_INI = "[pytest]\naddopts = --timeout=60\n"
NOX_UNITTEST = (
    "import nox\n\n\n@nox.session\ndef tests(session: nox.Session) -> None:\n"
    "    session.install('.')\n    session.run('python', '-m', 'unittest', 'discover', '-s', 'tests')\n"
)
FLAT_TESTS = {"sizes.py": SIZES, "tests/test_sizes.py": PYTEST}
ON_PATH = {"sizes.py": SIZES, "test_sizes.py": PYTEST}
DJANGO = {
    "requirements.txt": "django\n",
    "manage.py": (
        "import os\nimport sys\n\nfrom django.core.management import execute_from_command_line\n\n"
        "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'site_settings')\nexecute_from_command_line(sys.argv)\n"
    ),
    "site_settings.py": "SECRET_KEY = 'x'\nINSTALLED_APPS = ['sizes']\n",
    "sizes/__init__.py": "",
    "sizes/parsing.py": "def parse(text: str) -> int:\n    return int(text)\n",
    "sizes/tests.py": (
        "from django.test import SimpleTestCase\n\nfrom sizes.parsing import parse\n\n\n"
        "class SizeTest(SimpleTestCase):\n"
        "    def test_a_size(self) -> None:\n        self.assertEqual(parse('12'), 12)\n"
    ),
}
VENV_PYTEST = "test:\n\t.venv/bin/python -m pytest -q\n"
VENV_RULE = (
    "VENV := .venv\n$(VENV)/bin/pytest: pyproject.toml\n\tpython3 -m venv $(VENV)\n"
    "\t$(VENV)/bin/pip install --quiet --editable . pytest\n\ttouch $@\n"
    ".PHONY: test\ntest: $(VENV)/bin/pytest\n\t. $(VENV)/bin/activate && pytest -q\n"
)
PYTHON_MORE = (
    SampleProject(
        name="tox-extras",
        files=src(
            HATCHLING + PROJECT + '[project.optional-dependencies]\nverify = ["pytest", "pytest-timeout"]\n',
            **{
                "tox.ini": "[tox]\nenv_list = py{311,313}\n[testenv]\nextras = verify\ncommands = pytest -q\n",
                "pytest.ini": PYTEST_INI,
            },
        ),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="tox-unittest",
        files={
            **src(HATCHLING + PROJECT),
            "tests/test_sizes.py": UNITTEST,
            "tox.ini": "[tox]\nenv_list = py311\n[testenv]\ncommands = python -m unittest discover -s tests\n",
        },
        fault=SRC,
        checks=("tox run -e py",),
    ),
    SampleProject(
        name="nox-pytest",
        files=src(HATCHLING + PROJECT, **{"noxfile.py": NOX_PYTEST, "pytest.ini": PYTEST_INI}),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="nox-unittest",
        files={**src(HATCHLING + PROJECT), "tests/test_sizes.py": UNITTEST, "noxfile.py": NOX_UNITTEST},
        fault=SRC,
        checks=("nox --session tests --force-python python3 --reuse-venv yes",),
    ),
    SampleProject(
        name="hatch",
        files=src(
            HATCHLING
            + PROJECT
            + '[tool.hatch.envs.default]\ndependencies = ["pytest", "pytest-timeout"]\n'
            + '[tool.hatch.envs.default.scripts]\ntest = "pytest {args}"\n'
            + '[tool.pytest.ini_options]\naddopts = "--timeout=60"\n'
        ),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="pdm-unlocked",
        files=src(
            '[build-system]\nrequires = ["pdm-backend"]\nbuild-backend = "pdm.backend"\n'
            + PROJECT
            + '[tool.pdm.dev-dependencies]\ntest = ["pytest>=8", "pytest-timeout"]\n',
            **{"pytest.ini": PYTEST_INI},
        ),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="poetry-unlocked",
        files=src(
            '[tool.poetry]\nname = "sizes"\nversion = "1.0"\ndescription = ""\nauthors = []\n'
            'packages = [{ include = "sizes", from = "src" }]\n'
            '[tool.poetry.dependencies]\npython = ">=3.11"\ntoolz = "*"\n'
            '[tool.poetry.group.test.dependencies]\npytest = "^9.0"\npytest-timeout = { version = "*" }\n'
            '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n',
            **{"pytest.ini": PYTEST_INI},
        ),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="pixi",
        files={
            **FLAT_TESTS,
            "pixi.toml": (
                '[workspace]\nname = "sizes"\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n'
                '[tasks]\ntest = "pytest"\n'
                '[dependencies]\npython = ">=3.11"\ntoolz = "*"\n[feature.test.dependencies]\npytest = "*"\n'
                '[environments]\ntest = ["test"]\n'
            ),
        },
        fault=FLAT,
        checks=PIP,
    ),
    SampleProject(
        name="pipfile",
        files={
            **FLAT_TESTS,
            "Pipfile": '[packages]\ntoolz = ">=0.12"\n[dev-packages]\npytest = "*"\n[requires]\npython_version = "3"\n',
        },
        fault=FLAT,
        checks=PIP,
    ),
    SampleProject(
        name="setup-py",
        files={"setup.py": SETUP, "src/sizes/__init__.py": SIZES, "tests/test_sizes.py": PYTEST},
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(name="src-bare", files=src(HATCHLING + PROJECT), fault=SRC, checks=PIP),
    SampleProject(
        name="src-no-backend",
        files={"src/sizes.py": SIZES, "tests/test_sizes.py": PYTEST, "requirements.txt": "toolz\n"},
        fault=("src/sizes.py", *SRC[1:]),
        checks=("PYTHONPATH=src python3 -m pytest -q",),
    ),
    SampleProject(
        name="extra-dev",
        files=src(
            SETUPTOOLS + PROJECT + '[project.optional-dependencies]\ndev = ["pytest", "pytest-timeout"]\n',
            **{"pytest.ini": PYTEST_INI},
        ),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="group-of-groups",
        files=src(
            HATCHLING
            + PROJECT
            + '[dependency-groups]\nbasis = ["pytest-timeout"]\ntests = ["pytest", { include-group = "basis" }]\n',
            **{"pytest.ini": PYTEST_INI},
        ),
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="several-folders",
        files={
            "pyproject.toml": (
                PROJECT
                + '[project.optional-dependencies]\ntest = ["pytest-timeout"]\n'
                + '[tool.pytest.ini_options]\naddopts = "--timeout=60"\npythonpath = ["."]\n'
            ),
            "sizes/__init__.py": SIZES,
            "shapes/__init__.py": "",
            "tests/test_sizes.py": PYTEST,
        },
        fault=("sizes/__init__.py", *SRC[1:]),
        checks=PIP,
    ),
    SampleProject(
        name="requirements-folder",
        files={
            **FLAT_TESTS,
            "requirements/base.txt": "toolz\n",
            "requirements/test.txt": "-r base.txt\npytest\n",
            "requirements/docs.txt": "no-such-package-of-ours\n",
        },
        fault=FLAT,
        checks=PIP,
    ),
    SampleProject(
        name="requirements-utf-16",
        files={**ON_PATH, "requirements.txt": "toolz\r\npytest\r\n".encode("utf-16")},
        fault=FLAT,
        checks=PIP,
    ),
    SampleProject(
        name="unittest",
        files={
            "requirements.txt": "toolz\n",
            "sizes.py": SIZES,
            "tests/__init__.py": "",
            "tests/test_sizes.py": UNITTEST,
        },
        fault=FLAT,
        checks=("python3 -m unittest",),
    ),
    SampleProject(
        name="uv-group",
        files=src(HATCHLING + PROJECT + '[dependency-groups]\ntest = ["pytest"]\n'),
        fault=SRC,
        checks=("uv run --locked --group test pytest -q",),
        locks=("uv.lock",),
    ),
    SampleProject(
        name="django",
        files=DJANGO,
        fault=("sizes/parsing.py", "int(text)", "-int(text)"),
        checks=("python3 manage.py test",),
    ),
    SampleProject(
        name="agent-in-a-folder",
        files={
            **{f"services/sizes/{name}": text for name, text in src(HATCHLING + PROJECT).items()},
            "services/other/package.json": "{}",
            "README.md": "Two services.\n",
        },
        folder="services/sizes",
        fault=SRC,
        checks=PIP,
    ),
    SampleProject(
        name="project-in-a-folder",
        files={
            **{f"sizes/{name}": text for name, text in src(HATCHLING + PROJECT).items()},
            "README.md": "The project is below.\n",
        },
        fault=("sizes/src/sizes/__init__.py", *SRC[1:]),
        checks=("cd sizes && python3 -m pytest -q",),
    ),
    SampleProject(
        name="make-venv",
        files=src(HATCHLING + PROJECT, Makefile=VENV_PYTEST),
        fault=SRC,
        checks=("make test",),
    ),
    SampleProject(
        name="make-venv-rule",
        files=src(HATCHLING + PROJECT, Makefile=VENV_RULE),
        fault=SRC,
        checks=("make test",),
    ),
    SampleProject(
        name="script-venv",
        files={
            **FLAT_TESTS,
            "requirements.txt": "toolz\npytest\n",
            "pytest.ini": "[pytest]\npythonpath = .\n",
            "Makefile": "test:\n\tbash scripts/test.sh\n",
            "scripts/test.sh": "#!/usr/bin/env bash\nset -e\nsource venv/bin/activate\npytest -q\n",
            ".gitignore": "venv/\n__pycache__/\n",
        },
        fault=FLAT,
        checks=("make test",),
    ),
    SampleProject(
        name="pyproject-of-windows",
        files={
            **src(HATCHLING + PROJECT),
            "pyproject.toml": (HATCHLING + PROJECT + '[dependency-groups]\ntest = ["pytest", "pytest-timeout"]\n')
            .replace("\n", "\r\n")
            .encode(),
            "requirements-dev.txt": "pytest-timeout\r\n".encode("utf-16"),
            "pytest.ini": PYTEST_INI.replace("\n", "\r\n"),
        },
        fault=SRC,
        checks=PIP,
    ),
)
