# A model behind HTTP:
#   docker build -t contradpp .
#   docker run -p 8000:8000 -v "$PWD/shop.safetensors:/models/model.safetensors:ro" contradpp
# Another port: docker run -e CONTRADPP_PORT=9000 -p 9000:9000 ...
# A base that cannot change: docker build --build-arg BASE=python:3.11-slim@sha256:... (`docker buildx imagetools inspect
# python:3.11-slim` prints the digest). None is written here: an old one would lack the security updates of its system.
ARG BASE=python:3.11-slim
FROM ${BASE} AS build
WORKDIR /source
COPY requirements-core.lock ./
RUN python -m venv /opt/contradpp \
 && /opt/contradpp/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement requirements-core.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/contradpp/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/contradpp/bin/pip uninstall --yes editables hatchling

FROM ${BASE}
RUN useradd --create-home --uid 10001 shop
COPY --from=build /opt/contradpp /opt/contradpp
ENV PATH=/opt/contradpp/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/home/shop/kernels CONTRADPP_PORT=8000
USER shop
WORKDIR /home/shop
# Kernels are compiled now, so that the first answer does not wait for them; a processor of another kind compiles its own.
RUN contradpp warm
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"CONTRADPP_PORT\"]}/healthz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["contradpp", "serve", "--host", "0.0.0.0"]
CMD ["/models/model.safetensors"]
