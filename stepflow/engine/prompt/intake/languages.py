"""The languages that a fence may name. The page does not show what a fence names, so any other word is removed."""

from __future__ import annotations

import re

LANGUAGES = frozenset(
    re.findall(
        r"\S+",
        """
        abap abnf actionscript ada adoc apache apacheconf apex apl applescript arduino armasm asciidoc asm asp
        aspnet astro awk bash basic bat batch bazel bibtex bicep bnf brainfuck c c# c++ caddyfile cairo cfg clj
        cljs clojure cmake cmd cobol coffee coffeescript common-lisp conf console cpp crystal cs csh csharp
        cshtml cson csproj css csv cu cuda cue cxx cypher cython d dart delphi dhall diff docker docker-compose
        dockerfile dos dosbatch dot dotenv ebnf ejs elisp elixir elm emacs-lisp env erb erl erlang ex excel exs
        f# f90 fennel fish fix flow forth fortran fs fsharp ftl gams gap gawk gcode gd gdscript gherkin git
        gitattributes gitcommit gitconfig gitignore gleam glsl gn go go-html-template go.mod godot golang gotmpl
        gql gradle graphql graphviz groovy h hack haml handlebars haskell haxe hbs hcl heex help hjson hlsl hpp
        hs html html+erb htmlbars htmldjango http hx idris ini io ipynb ipython irb isabelle j java javascript
        javascriptreact jinja jinja2 jl js json json5 jsonc jsonl jsonnet jsp jsx julia just justfile kconfig
        kotlin kql kt kts kusto latex ldif lean less lhs liquid lisp livescript llvm log logql logs logtalk lua
        luau m4 make makefile markdown math mathematica matlab md mdx mediawiki meson metal mips mjs mk ml mojo
        mongodb move mts mustache mysql nasm ndjson nginx nginxconf nim nimrod nix nohighlight none nroff nu
        numpy nunjucks nushell objc objective-c objective-c++ objectivec objectivec++ objectpascal ocaml octave
        odin opencl openscad org output pascal patch pcre perl perl6 pgsql php phtml pine pkl pl plain plaintext
        plantuml plpgsql plsql po pony posix postcss postgres postgresql postscript pot powershell prisma
        procfile prolog promql properties proto protobuf ps1 psm1 pug puml puppet purescript pwsh py py3 pycon
        pyi pypy pyrex pytb python python-repl python-traceback python2 python3 q qml r racket raku razor rb rd
        re reason reasonml red regex regexp rego rescript rest rkt rmarkdown rmd robot robotframework ron rs rst
        ruby rust sas sass sbt scala scheme scss sed sh sh-session shell shell-session shellscript shellsession
        slim smali smalltalk smarty sml snippet sol solidity sparql sql sqlite squirrel ssh-config ssh_config
        starlark stata stderr stdout stylus suggestion sv svelte svg swift systemd systemverilog tap tcl tcsh
        templ terminal terraform tex text textile textproto tf tfvars thrift tla toml traceback ts tsql tsv tsx
        twig txt typescript typescriptreact typst unity v vala vb vb.net vba vbnet vbs vbscript verilog vhdl vim
        viml vimscript vue vyper wasm wat wgsl wolfram xhtml xml xpath xquery xs xsd xsl xslt yaml
        yaml+jinja yang yml zig zsh
        """,
    )
)
