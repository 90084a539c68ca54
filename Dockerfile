# A model behind HTTP:
#   docker build -t contradpp .
#   docker run -p 8000:8000 -v "$PWD/shop.safetensors:/models/model.safetensors:ro" contradpp
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src ./src
RUN python -m venv /opt/contradpp \
 && /opt/contradpp/bin/pip install --no-cache-dir --constraint requirements.lock ".[serve]"

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 shop
COPY --from=build /opt/contradpp /opt/contradpp
ENV PATH=/opt/contradpp/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/home/shop/kernels
USER shop
WORKDIR /home/shop
# Kernels are compiled now, so that the first answer does not wait for them; a processor of another kind compiles its own.
RUN contradpp warm
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["contradpp", "serve", "--host", "0.0.0.0"]
CMD ["/models/model.safetensors"]
