"""Projects with a `package.json`, whose tests need a dependency from the registry."""

from __future__ import annotations

import json

from tests.e2e.layouts.sample import IGNORED, SampleProject

NODE_TEST = (
    "import assert from 'node:assert'\nimport { test } from 'node:test'\n"
    "import ms from 'ms'\n\ntest('a minute', () => assert.equal(ms('1m'), 60000))\n"
)


def _json(document: object) -> str:
    """Lay it out as the package managers write it: Yarn 4 would do so, and change a tracked file."""
    return json.dumps(document, indent=2) + "\n"


def _package(**more: object) -> str:
    package = {
        "name": "sizes",
        "version": "1.0.0",
        "private": True,
        "type": "module",
        "scripts": {"test": "node --test"},
    }
    return _json({**package, "devDependencies": {"ms": "2.1.3"}, **more})


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
        "package.json": _json({"name": "whole", "version": "1.0.0", "private": True, **root}),
        "packages/shared/package.json": _json(shared),
        "packages/shared/index.js": "import ms from 'ms'\n\nexport const minute = ms('1m')\n",
        "packages/app/package.json": _json(app),
        "packages/app/minute.test.js": test,
    }


FAULT = ("sizes.test.js", "60000", "60001")
SHARED_FAULT = ("packages/shared/index.js", "1m", "2m")
NODE_FILES = {"package.json": _package(), "sizes.test.js": NODE_TEST}
NODE = (
    SampleProject(name="npm", files=NODE_FILES, fault=FAULT, checks=("npm run test",), locks=("package-lock.json",)),
    SampleProject(
        name="npm-workspaces",
        fault=SHARED_FAULT,
        files=_monorepo({"workspaces": ["packages/*"]}, "1.0.0"),
        checks=("npm run test --workspaces --if-present",),
        locks=("package-lock.json",),
    ),
    SampleProject(
        name="pnpm-monorepo",
        fault=SHARED_FAULT,
        files={**_monorepo({}, "workspace:*"), "pnpm-workspace.yaml": "packages:\n  - packages/*\n"},
        checks=("pnpm --recursive --if-present run test",),
        locks=("pnpm-lock.yaml",),
    ),
    SampleProject(name="yarn", files=NODE_FILES, fault=FAULT, checks=("yarn run test",), locks=("yarn.lock",)),
    SampleProject(
        name="yarn-4",
        fault=FAULT,
        files={
            **NODE_FILES,
            "package.json": _package(packageManager="yarn@4.9.1"),
            ".yarnrc.yml": "nodeLinker: node-modules\n",
            ".gitignore": IGNORED + ".yarn/\n",
        },
        checks=("yarn run test",),
        locks=("yarn.lock",),
    ),
    SampleProject(
        name="yarn-workspaces",
        files=_monorepo({"workspaces": ["packages/*"], "packageManager": "yarn@1.22.22"}, "1.0.0"),
        fault=SHARED_FAULT,
        checks=("npm run test --workspaces --if-present",),
    ),
    SampleProject(
        name="yarn-4-workspaces",
        files={
            **_monorepo({"packageManager": "yarn@4.9.1", "workspaces": ["packages/*"]}, "workspace:*"),
            ".yarnrc.yml": "nodeLinker: node-modules\n",
            ".gitignore": IGNORED + ".yarn/\n",
        },
        fault=SHARED_FAULT,
        checks=("yarn workspaces foreach --all run test",),
        locks=("yarn.lock",),
    ),
    SampleProject(
        name="pnpm-unlocked",
        files={**NODE_FILES, "package.json": _package(packageManager="pnpm@9.15.0")},
        fault=FAULT,
        checks=("pnpm run test",),
    ),
    SampleProject(
        name="pnpm-member",
        files={**_monorepo({}, "workspace:*"), "pnpm-workspace.yaml": "packages:\n  - packages/*\n"},
        folder="packages/app",
        fault=("minute.test.js", "60000", "60001"),
        checks=("pnpm run test",),
        locks=("pnpm-lock.yaml",),
    ),
    SampleProject(
        name="bun",
        files={
            "package.json": _package(scripts={"test": "bun test"}),
            "sizes.test.js": (
                "import { expect, test } from 'bun:test'\nimport ms from 'ms'\n\n"
                "test('a minute', () => { expect(ms('1m')).toBe(60000) })\n"
            ),
        },
        fault=FAULT,
        checks=("bun run test",),
        locks=("bun.lock",),
    ),
    SampleProject(
        name="npm-placeholder",
        files={
            **NODE_FILES,
            "package.json": _package(scripts={"test": 'echo "Error: no test specified" && exit 1'}),
        },
        fault=FAULT,
        checks=("node --test",),
    ),
    SampleProject(
        name="npm-echo",
        files={**NODE_FILES, "package.json": _package(scripts={"test": "echo ok"})},
        fault=FAULT,
        checks=("node --test",),
    ),
    SampleProject(
        name="npm-of-windows",
        files={
            **NODE_FILES,
            "package.json": _package(scripts={"test:unit": "node --test"}).replace("\n", "\r\n").encode("utf-8-sig"),
        },
        fault=FAULT,
        checks=("npm run test:unit",),
    ),
    SampleProject(
        name="vitest",
        files={
            "package.json": _package(scripts={"test": "vitest"}, devDependencies={"ms": "2.1.3", "vitest": "^3"}),
            "sizes.test.js": NODE_TEST.replace("node:test", "vitest"),
        },
        fault=FAULT,
        checks=("npm run test",),
    ),
    SampleProject(
        name="jest",
        files={
            "package.json": _package(type="commonjs", scripts={}, devDependencies={"ms": "2.1.3", "jest": "^30"}),
            "sizes.test.js": "const ms = require('ms')\n\ntest('a minute', () => expect(ms('1m')).toBe(60000))\n",
        },
        fault=FAULT,
        checks=("npx --no-install jest",),
    ),
    SampleProject(
        name="mocha",
        files={
            "package.json": _package(scripts={"test": "mocha"}, devDependencies={"ms": "2.1.3", "mocha": "^11"}),
            "test/sizes.test.js": (
                "import assert from 'node:assert'\nimport ms from 'ms'\n\n"
                "it('is a minute', () => assert.equal(ms('1m'), 60000))\n"
            ),
        },
        fault=("test/sizes.test.js", "60000", "60001"),
        checks=("npm run test",),
    ),
    SampleProject(
        name="deno",
        files={
            "deno.json": "{}\n",
            "sizes.ts": "export const parse = (text: string): number => Number.parseInt(text)\n",
            "sizes_test.ts": (
                "import { parse } from './sizes.ts'\n\n"
                "Deno.test('a size', () => {\n  if (parse('12') !== 12) throw new Error('not 12')\n})\n"
            ),
        },
        fault=("sizes.ts", "=> Number", "=> -Number"),
        checks=("deno test", "deno lint"),
    ),
)
