"""Languages whose toolchain Debian has; their own registries are not asked for anything."""

from __future__ import annotations

from tests.e2e.layouts.sample import SampleProject

GO_TEST = (
    'package sizes\n\nimport "testing"\n\nfunc TestSize(t *testing.T) {\n'
    '\tif Parse("12") != 12 {\n\t\tt.Fatal("not 12")\n\t}\n}\n'
)
GO = (
    'package sizes\n\nimport "strconv"\n\nfunc Parse(text string) int {\n'
    "\tsize, _ := strconv.Atoi(text)\n\treturn size\n}\n"
)
GO_FAULT = ("sizes.go", "return size", "return -size")
RUBY = "def parse(text) = Integer(text)\n"
RUBY_FAULT = ("lib/sizes.rb", "= Integer", "= -Integer")
C = '#include <stdlib.h>\nint main(void) { return atoi("12") == 12 ? 0 : 1; }\n'
C_FAULT = ("test.c", "== 12", "== 13")
PHP_TEST = (
    "<?php\nrequire_once __DIR__ . '/../src/sizes.php';\n\n"
    "final class SizesTest extends PHPUnit\\Framework\\TestCase\n{\n"
    "    public function testASize(): void\n    {\n        $this->assertSame(12, parse('12'));\n    }\n}\n"
)
PHP = {
    "src/sizes.php": "<?php\nfunction parse(string $text): int\n{\n    return (int) $text;\n}\n",
    "tests/SizesTest.php": PHP_TEST,
    "phpunit.xml": (
        '<phpunit><testsuites><testsuite name="all"><directory>tests</directory></testsuite></testsuites></phpunit>\n'
    ),
    ".gitignore": ".phpunit*\nvendor/\n",
}
PHP_FAULT = ("src/sizes.php", "(int) $text", "-(int) $text")
LANGUAGES = (
    SampleProject(
        name="go",
        fault=GO_FAULT,
        files={
            "go.mod": "module example.invalid/sizes\n\ngo 1.21\n",
            "sizes.go": GO,
            "sizes_test.go": GO_TEST,
        },
        checks=("go test ./...", "go vet ./..."),
    ),
    SampleProject(
        name="cargo",
        fault=("src/lib.rs", "text.parse().unwrap()", "text.parse::<u32>().unwrap() + 1"),
        files={
            "Cargo.toml": '[package]\nname = "sizes"\nversion = "1.0.0"\nedition = "2021"\n',
            "src/lib.rs": (
                "pub fn parse(text: &str) -> u32 {\n    text.parse().unwrap()\n}\n\n#[test]\n"
                'fn a_size() {\n    assert_eq!(parse("12"), 12);\n}\n'
            ),
        },
        checks=("cargo test --quiet --locked",),
        locks=("Cargo.lock",),
    ),
    SampleProject(
        name="maven",
        fault=("src/main/java/Size.java", "return ", "return -"),
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
        },
        checks=("mvn --batch-mode --quiet test",),
        registry="maven-debian-helper libsurefire-java junit4",
    ),
    SampleProject(
        name="bundler",
        fault=("test/sizes_test.rb", "== 12", "== 13"),
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
        fault=("", "", ""),
        files={"build.gradle": "plugins { id 'java' }\n"},
        checks=("gradle --no-daemon --quiet test",),
        unknown="Not known: which Gradle build.gradle needs, since the repository has no `gradlew`.",
    ),
    SampleProject(
        name="go-work",
        fault=("sizes/sizes.go", *GO_FAULT[1:]),
        files={
            "go.work": "go 1.21\n\nuse (\n\t./sizes\n\t./shapes\n)\n",
            "sizes/go.mod": "module example.invalid/sizes\n\ngo 1.21\n",
            "sizes/sizes.go": GO,
            "sizes/sizes_test.go": GO_TEST,
            "shapes/go.mod": "module example.invalid/shapes\n\ngo 1.21\n",
            "shapes/shapes.go": "package shapes\n",
        },
        checks=("go test ./sizes/... ./shapes/...", "go vet ./sizes/... ./shapes/..."),
    ),
    SampleProject(
        name="cargo-workspace",
        fault=("crates/sizes/src/lib.rs", "text.parse().unwrap()", "text.parse::<u32>().unwrap() + 1"),
        files={
            "Cargo.toml": (
                '[workspace]\nmembers = ["crates/*"]\n[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n'
            ),
            "src/lib.rs": "",
            "crates/sizes/Cargo.toml": '[package]\nname = "sizes"\nversion = "1.0.0"\nedition = "2021"\n',
            "crates/sizes/src/lib.rs": (
                "pub fn parse(text: &str) -> u32 {\n    text.parse().unwrap()\n}\n\n#[test]\n"
                'fn a_size() {\n    assert_eq!(parse("12"), 12);\n}\n'
            ),
            ".gitignore": "target/\nCargo.lock\n",
        },
        checks=("cargo test --quiet --workspace",),
    ),
    SampleProject(
        name="rspec",
        fault=RUBY_FAULT,
        files={
            "lib/sizes.rb": RUBY,
            "spec/sizes_spec.rb": (
                "require 'sizes'\n\nRSpec.describe 'parse' do\n"
                "  it('reads a size') { expect(parse('12')).to eq(12) }\nend\n"
            ),
            ".rspec": "--color\n",
        },
        checks=("rspec",),
    ),
    SampleProject(
        name="rake",
        fault=RUBY_FAULT,
        files={
            "lib/sizes.rb": RUBY,
            "test/sizes_test.rb": (
                "require 'minitest/autorun'\nrequire 'sizes'\n\nclass SizesTest < Minitest::Test\n"
                "  def test_a_size = assert_equal(12, parse('12'))\nend\n"
            ),
            "Rakefile": (
                "require 'rake/testtask'\n\nRake::TestTask.new(:test) do |task|\n"
                "  task.pattern = 'test/**/*_test.rb'\nend\n"
            ),
        },
        checks=("rake test",),
    ),
    SampleProject(
        name="minitest",
        fault=RUBY_FAULT,
        files={
            "lib/sizes.rb": RUBY,
            "test/test_sizes.rb": (
                "require 'minitest/autorun'\nrequire 'sizes'\n\nclass SizesTest < Minitest::Test\n"
                "  def test_a_size = assert_equal(12, parse('12'))\nend\n"
            ),
        },
        checks=("ruby -Ilib -Itest -e \"Dir['./test/**/{*_test,test_*}.rb'].sort.each { |file| require file }\"",),
    ),
    SampleProject(name="phpunit", fault=PHP_FAULT, files=PHP, checks=("phpunit",)),
    SampleProject(
        name="composer",
        fault=PHP_FAULT,
        files={
            **PHP,
            "composer.json": '{"name": "example/sizes", "scripts": {"test": "phpunit"}, "config": {"lock": false}}\n',
        },
        checks=("composer test",),
        registry="phpunit",
    ),
    SampleProject(
        name="cmake",
        fault=C_FAULT,
        files={
            "CMakeLists.txt": (
                "cmake_minimum_required(VERSION 3.10)\nproject(sizes C)\nenable_testing()\n"
                "add_executable(sizes test.c)\nadd_test(NAME sizes COMMAND sizes)\n"
            ),
            "test.c": C,
        },
        checks=(
            'build=$(mktemp -d) && cmake -S . -B "$build" && cmake --build "$build"'
            ' && ctest --test-dir "$build" --output-on-failure --no-tests=error',
        ),
    ),
    SampleProject(
        name="meson",
        fault=C_FAULT,
        files={"meson.build": "project('sizes', 'c')\ntest('sizes', executable('sizes', 'test.c'))\n", "test.c": C},
        checks=('build=$(mktemp -d) && meson setup "$build" && meson test -C "$build" --print-errorlogs',),
    ),
    SampleProject(
        name="perl",
        fault=("lib/Sizes.pm", "return ", "return -"),
        files={
            "lib/Sizes.pm": "package Sizes;\nsub parse { return int($_[0]) }\n1;\n",
            "t/sizes.t": "use Test::More tests => 1;\nuse Sizes;\nis(Sizes::parse('12'), 12);\n",
        },
        checks=("prove -lr t",),
    ),
    SampleProject(
        name="bats",
        fault=("sizes.sh", 'echo "$1"', 'echo "-$1"'),
        files={
            "sizes.sh": 'echo "$1"\n',
            "test/sizes.bats": '@test "a size" {\n  [ "$(sh sizes.sh 12)" = 12 ]\n}\n',
        },
        checks=("bats --recursive test",),
    ),
    SampleProject(
        name="mix",
        fault=("lib/sizes.ex", "String", "-String"),
        files={
            "mix.exs": (
                "defmodule Sizes.MixProject do\n  use Mix.Project\n"
                '  def project, do: [app: :sizes, version: "1.0.0", deps: []]\nend\n'
            ),
            "lib/sizes.ex": "defmodule Sizes do\n  def parse(text), do: String.to_integer(text)\nend\n",
            "test/test_helper.exs": "ExUnit.start()\n",
            "test/sizes_test.exs": (
                'defmodule SizesTest do\n  use ExUnit.Case\n  test "a size", do: assert(Sizes.parse("12") == 12)\nend\n'
            ),
            ".gitignore": "_build/\ndeps/\n",
        },
        checks=("mix test",),
    ),
)
