# `postroom serve` in a container. The room lies in the volume /data.
#
#   docker build -t postroom .
#   docker run --rm --network host -v postroom:/data postroom
#
# HTTP listens on the host's loopback then. For other machines, bring a certificate:
#
#   docker run --rm -p 4650:4650 -v postroom:/data -v "$PWD/tls:/tls:ro" postroom \
#     --http 0.0.0.0:4650 --http-name mail.example.com --tls-cert /tls/cert.pem --tls-key /tls/key.pem

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /postroom && /postroom/bin/pip install --no-cache-dir ".[serve,mcp]"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --create-home postroom && install -d -o postroom -m 0700 /data
COPY --from=build /postroom /postroom
ENV PATH=/postroom/bin:$PATH POSTROOM_STORE=/data/room.db
USER 10001
VOLUME /data
HEALTHCHECK --interval=30s CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 4650), 3)"]
ENTRYPOINT ["postroom", "serve", "--socket", "/data/postroom.sock"]
CMD ["--http", "127.0.0.1:4650"]
