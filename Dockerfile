# context-proxy in Debian's own Python, with the extras `compression` and `redis`. All Python packages come from the lock
# files, checked by their hashes; at run time nothing is downloaded, nothing is written outside /data, and nothing runs as
# root.
#
#   docker build -t context-proxy .
#   docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:8787:8787 -v context-proxy:/data \
#     -e CONTEXT_PROXY_UPSTREAM__BASE_URL=https://api.openai.com/v1 context-proxy
#
# A digest may be pinned with --build-arg BASE=debian@sha256:…; Debian's security updates then need another digest.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
# hadolint ignore=DL3008 # versions of Debian packages follow its security updates
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv ca-certificates binutils
WORKDIR /source
COPY requirements/image.lock requirements/dev.lock requirements/
# Two environments: one that builds the wheel and is thrown away, and the one that is shipped, without pip.
RUN python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.lock \
    && python3 -m venv --without-pip /opt/context-proxy \
    && /build/bin/pip --python /opt/context-proxy install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes \
        -r requirements/image.lock
COPY pyproject.toml context_proxy.py README.md LICENSE NOTICE ./
COPY tools/build_hooks.py tools/
COPY proxy proxy
# The wheel carries the vocabularies of the tokenizers. Debug symbols of compiled packages go: 29 MB that nobody reads.
RUN /build/bin/pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation -w /wheel . \
    && /build/bin/pip --python /opt/context-proxy install --no-cache-dir --disable-pip-version-check --no-deps --no-index \
        /wheel/*.whl \
    && find /opt/context-proxy -name '*.so' -exec strip --strip-unneeded {} +

FROM ${BASE}
LABEL org.opencontainers.image.title="context-proxy" \
      org.opencontainers.image.description="Fits OpenAI chat requests into the model's context window" \
      org.opencontainers.image.licenses="MIT"
# hadolint ignore=DL3008 # as above
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log \
    && install -d -o 10001 -g 10001 -m 0700 /data /data/tool-output
COPY --from=build /opt/context-proxy /opt/context-proxy
ENV PATH=/opt/context-proxy/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TMPDIR=/dev/shm \
    CONTEXT_PROXY_DATA_DIR=/data \
    CONTEXT_PROXY_SERVER__HOST=0.0.0.0
# Numbers, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8787
# Not urllib, which would ask a forward proxy (HTTP_PROXY) about this container. Another port is set by its variable.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ.get('CONTEXT_PROXY_SERVER__PORT') or 8787), timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
# As process 1 it gets the signals itself: SIGTERM lets running answers end, for up to server.shutdown_grace_seconds.
ENTRYPOINT ["context-proxy"]
CMD ["serve"]
