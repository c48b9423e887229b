"""Twenty small repositories of the usual layouts, each green once what it asks for is installed. Their lock files are
those that the real tools wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.checkout import git

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCKS = Path(__file__).parent / "locks"


@dataclass(frozen=True, kw_only=True)
class SampleProject:
    """A repository. `locks` are copied from the folder of its name below `locks/`; `checks` are what `init` finds."""

    name: str
    files: Mapping[str, str]
    checks: tuple[str, ...]
    locks: tuple[str, ...] = ()
    #: Debian packages that stand for what the language's own registry would give.
    registry: str = ""
    #: What `init` says that it does not know.
    unknown: str = ""
    #: Commands that the author gives, where `init` finds none.
    given: tuple[str, ...] = ()

    def write(self, root: Path) -> None:
        """Make the repository, with everything committed."""
        for name, text in {
            **self.files,
            **{lock: (LOCKS / self.name / lock).read_text("utf-8") for lock in self.locks},
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        git("init", "--quiet", "--initial-branch=main", cwd=root)
        git("add", "--all", cwd=root)
        git("commit", "--quiet", "--message", "Begin", cwd=root)


# Python: the package is `sizes`, below src unless said otherwise, and its tests import it and a dependency.

SIZES = "from toolz import identity\n\n\ndef parse(text: str) -> int:\n    return int(identity(text))\n"
PLAIN = "def parse(text: str) -> int:\n    return int(text)\n"
PYTEST = "from sizes import parse\n\n\ndef test_a_size() -> None:\n    assert parse('12') == 12\n"
IGNORED = "__pycache__/\n*.egg-info/\n.venv/\n.pdm-python\nnode_modules/\ntarget/\nbuild/\n.gradle/\n"
SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
HATCHLING = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
PROJECT = '[project]\nname = "sizes"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies = ["toolz"]\n'


def _src(pyproject: str, **more: str) -> dict[str, str]:
    package = {"src/sizes/__init__.py": SIZES, "tests/test_sizes.py": PYTEST}
    return {"pyproject.toml": pyproject, ".gitignore": IGNORED, **package, **more}


HOOKS = """repos:
  - repo: local
    hooks:
      - id: parse
        name: parse
        entry: python -c 'import ast, sys; [ast.parse(open(name).read()) for name in sys.argv[1:]]'
        language: python
        types: [python]
"""
PYTHON = (
    SampleProject(
        name="src-extras",
        files=_src(
            SETUPTOOLS
            + PROJECT
            + '[project.optional-dependencies]\ntest = ["pytest"]\ndocs = ["no-such-package-of-ours"]\n'
        ),
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="groups",
        files=_src(
            HATCHLING
            + PROJECT
            + (
                '[dependency-groups]\ndev = ["pytest", "mypy"]\n[tool.mypy]\nfiles = ["src"]\n'
                'disable_error_code = ["import-untyped"]\n'
            )
        ),
        checks=("python3 -m pytest -q", "python3 -m mypy"),
    ),
    SampleProject(
        name="uv",
        files=_src(HATCHLING + PROJECT + '[dependency-groups]\ndev = ["pytest"]\n'),
        checks=("uv run --locked pytest -q",),
        locks=("uv.lock",),
    ),
    SampleProject(
        name="uv-extras",
        files=_src(HATCHLING + PROJECT + '[project.optional-dependencies]\ntest = ["pytest"]\n[tool.ruff]\n'),
        checks=("uv run --locked --extra test pytest -q", "ruff check ."),
        locks=("uv.lock",),
    ),
    SampleProject(
        name="poetry",
        files=_src(
            '[tool.poetry]\nname = "sizes"\nversion = "1.0"\ndescription = ""\nauthors = []\n'
            'packages = [{ include = "sizes", from = "src" }]\n'
            '[tool.poetry.dependencies]\npython = ">=3.11"\ntoolz = "*"\n'
            '[tool.poetry.group.dev.dependencies]\npytest = "*"\n'
            '[[tool.poetry.source]]\nname = "simple"\nurl = "https://pypi.org/simple/"\npriority = "primary"\n'
            '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n'
        ),
        checks=("poetry run pytest -q",),
        locks=("poetry.lock",),
    ),
    SampleProject(
        name="pdm",
        files=_src(
            '[build-system]\nrequires = ["pdm-backend"]\nbuild-backend = "pdm.backend"\n'
            + PROJECT
            + '[dependency-groups]\ntest = ["pytest"]\n[tool.pdm]\ndistribution = true\n'
        ),
        checks=("pdm run pytest -q",),
        locks=("pdm.lock",),
    ),
    SampleProject(
        name="tox",
        files=_src(
            HATCHLING + PROJECT,
            **{"tox.ini": "[tox]\nenv_list = py{311,313}\n[testenv]\ndeps = pytest\ncommands = pytest -q\n"},
        ),
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
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="setup-cfg",
        files={
            "setup.py": "from setuptools import setup\n\nsetup()\n",
            "setup.cfg": "[metadata]\nname = sizes\nversion = 1.0\n[options]\npackage_dir =\n    = src\n"
            "packages = sizes\ninstall_requires =\n    toolz\n"
            "[options.extras_require]\ntesting =\n    pytest\n[tool:pytest]\ntestpaths = tests\n",
            ".gitignore": IGNORED,
            "src/sizes/__init__.py": SIZES,
            "tests/test_sizes.py": PYTEST,
        },
        checks=("python3 -m pytest -q",),
    ),
    SampleProject(
        name="pre-commit",
        files={
            **_src(HATCHLING + PROJECT),
            ".pre-commit-config.yaml": HOOKS,
        },
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
        checks=("make test",),
    ),
)

# Node: the test needs a dependency from the registry.

NODE_TEST = (
    "import assert from 'node:assert'\nimport { test } from 'node:test'\n"
    "import ms from 'ms'\n\ntest('a minute', () => assert.equal(ms('1m'), 60000))\n"
)


def _package(**more: object) -> str:
    package = {
        "name": "sizes",
        "version": "1.0.0",
        "private": True,
        "type": "module",
        "scripts": {"test": "node --test"},
    }
    # Laid out as the package managers write it: Yarn 4 would do so, and change a tracked file.
    return json.dumps({**package, "devDependencies": {"ms": "2.1.3"}, **more}, indent=2) + "\n"


def _monorepo(root: dict[str, object], dependency: str) -> dict[str, str]:
    """Two packages, one of which needs the other."""
    shared = {
        "name": "shared",
        "version": "1.0.0",
        "type": "module",
        "exports": "./index.js",
        "dependencies": {"ms": "2.1.3"},
    }
    app = {
        "name": "app",
        "version": "1.0.0",
        "type": "module",
        "scripts": {"test": "node --test"},
        "dependencies": {"shared": dependency},
    }
    test = (
        "import assert from 'node:assert'\nimport { test } from 'node:test'\n"
        "import { minute } from 'shared'\n\ntest('a minute', () => assert.equal(minute, 60000))\n"
    )
    return {
        "package.json": json.dumps({"name": "whole", "version": "1.0.0", "private": True, **root}),
        "packages/shared/package.json": json.dumps(shared),
        "packages/shared/index.js": "import ms from 'ms'\n\nexport const minute = ms('1m')\n",
        "packages/app/package.json": json.dumps(app),
        "packages/app/minute.test.js": test,
        ".gitignore": IGNORED,
    }


NODE_FILES = {"package.json": _package(), "sizes.test.js": NODE_TEST, ".gitignore": IGNORED}
NODE = (
    SampleProject(name="npm", files=NODE_FILES, checks=("npm run test",), locks=("package-lock.json",)),
    SampleProject(
        name="npm-workspaces",
        files=_monorepo({"workspaces": ["packages/*"]}, "1.0.0"),
        checks=("npm run test --workspaces --if-present",),
        locks=("package-lock.json",),
    ),
    SampleProject(
        name="pnpm-monorepo",
        files={**_monorepo({}, "workspace:*"), "pnpm-workspace.yaml": "packages:\n  - packages/*\n"},
        checks=("pnpm --recursive --if-present run test",),
        locks=("pnpm-lock.yaml",),
    ),
    SampleProject(name="yarn", files=NODE_FILES, checks=("yarn run test",), locks=("yarn.lock",)),
    SampleProject(
        name="yarn-4",
        files={
            **NODE_FILES,
            "package.json": _package(packageManager="yarn@4.9.1"),
            ".yarnrc.yml": "nodeLinker: node-modules\n",
            ".gitignore": IGNORED + ".yarn/\n",
        },
        checks=("yarn run test",),
        locks=("yarn.lock",),
    ),
)

# Languages whose toolchain Debian has; their own registries are not asked for anything.

GO_TEST = (
    'package sizes\n\nimport "testing"\n\nfunc TestSize(t *testing.T) {\n'
    '\tif Parse("12") != 12 {\n\t\tt.Fatal("not 12")\n\t}\n}\n'
)
OTHERS = (
    SampleProject(
        name="go",
        files={
            "go.mod": "module example.invalid/sizes\n\ngo 1.21\n",
            "sizes.go": (
                'package sizes\n\nimport "strconv"\n\nfunc Parse(text string) int {\n'
                "\tsize, _ := strconv.Atoi(text)\n\treturn size\n}\n"
            ),
            "sizes_test.go": GO_TEST,
        },
        checks=("go test ./...", "go vet ./..."),
    ),
    SampleProject(
        name="cargo",
        files={
            "Cargo.toml": '[package]\nname = "sizes"\nversion = "1.0.0"\nedition = "2021"\n',
            "src/lib.rs": (
                "pub fn parse(text: &str) -> u32 {\n    text.parse().unwrap()\n}\n\n#[test]\n"
                'fn a_size() {\n    assert_eq!(parse("12"), 12);\n}\n'
            ),
            ".gitignore": IGNORED,
        },
        checks=("cargo test --quiet --locked",),
        locks=("Cargo.lock",),
    ),
    SampleProject(
        name="maven",
        files={
            # Debian's packages are its repository, and its versions of the plugins are not Maven's own.
            ".mvn/maven.config": "--offline\n-Dmaven.repo.local=/usr/share/maven-repo\n",
            "pom.xml": (
                '<project xmlns="http://maven.apache.org/POM/4.0.0">\n<modelVersion>4.0.0</modelVersion>\n'
                "<groupId>example</groupId><artifactId>sizes</artifactId><version>1.0</version>\n"
                "<properties><maven.compiler.release>17</maven.compiler.release></properties>\n"
                "<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version></dependency></dependencies>\n"
                "<build><plugins>\n"
                "<plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.1</version></plugin>\n"
                "<plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin>\n"
                "<plugin><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin>\n"
                "</plugins></build>\n</project>\n"
            ),
            "src/main/java/Size.java": (
                "public class Size {\n  static int parse(String text) {\n    return Integer.parseInt(text);\n  }\n}\n"
            ),
            "src/test/java/SizeTest.java": (
                "import org.junit.*;\n\npublic class SizeTest {\n"
                "  @Test public void size() {\n"
                '    Assert.assertEquals(12, Size.parse("12"));\n  }\n}\n'
            ),
            ".gitignore": IGNORED,
        },
        checks=("mvn --batch-mode --quiet test",),
        registry="maven-debian-helper libsurefire-java junit4",
    ),
    SampleProject(
        name="bundler",
        files={
            "Gemfile": 'source "https://rubygems.org"\ngem "toolz", path: "vendor/toolz"\n',
            "vendor/toolz/toolz.gemspec": (
                'Gem::Specification.new do |spec|\n  spec.name = "toolz"\n'
                '  spec.version = "1.0.0"\n'
                '  spec.summary = "Tools"\n  spec.authors = ["ada"]\n  spec.files = ["lib/toolz.rb"]\n'
                "end\n"
            ),
            "vendor/toolz/lib/toolz.rb": "module Toolz\n  def self.identity(value) = value\nend\n",
            "test/sizes_test.rb": 'require "toolz"\n\nabort "no size" unless Toolz.identity(12) == 12\n',
        },
        checks=(
            "bundle exec ruby -Ilib -Itest -e "
            "\"Dir['./test/**/{*_test,test_*}.rb'].sort.each { |file| require file }\"",
        ),
        locks=("Gemfile.lock",),
    ),
    SampleProject(
        name="gradle",
        files={"build.gradle": "plugins { id 'java' }\n", ".gitignore": IGNORED},
        checks=("gradle --no-daemon --quiet test",),
        unknown="Not known: which Gradle build.gradle needs, since the repository has no `gradlew`.",
    ),
)
LAYOUTS = (*PYTHON, *NODE, *OTHERS)
