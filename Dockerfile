# syntax=docker/dockerfile:1

# Two images from one build: the last stage has one static program, certificates and nothing else (no shell, no package manager, no
# root), and the stage `agents` has Node.js and git as well.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download && go mod verify
COPY . .
ARG VERSION=0.0.0-dev
ARG COMMIT=
# The same flags as `make build`, so that both give the same program.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /out/laneway ./cmd/laneway \
    && install -d -m 0700 /out/data
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*

# laneway:agents, for the coding agents that have a preset: they are programs of Node.js, and use git and a shell. Build it with
# `docker build --target agents`. AGENTS are packages of npm that it contains; others are installed at the first start of their agent.
FROM node:22-bookworm-slim AS agents
ARG AGENTS=@agentclientprotocol/claude-agent-acp@0
RUN for program in git rg curl; do command -v "$program" >/dev/null || missing=1; done; \
    if [ -n "${missing:-}" ]; then apt-get update && apt-get install --yes --no-install-recommends ca-certificates curl git ripgrep && rm -rf /var/lib/apt/lists/*; fi; \
    useradd --uid 65532 --user-group --home-dir /data/home --shell /usr/sbin/nologin laneway \
    && install -d -o 65532 -g 65532 -m 0700 /data /data/home \
    && install -d -o 65532 -g 65532 -m 0755 /work \
    && if [ -n "${AGENTS}" ]; then npm install --global --no-fund --no-audit ${AGENTS}; fi
COPY --from=build /out/laneway /usr/local/bin/laneway
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
# Logins, settings and caches of agents are in the home directory, which is in the volume. An agent without `dir` works in /work.
ENV LANEWAY_DATA=/data \
    HOME=/data/home
WORKDIR /work
VOLUME ["/data"]
EXPOSE 18790
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=20s --retries=3 CMD ["/usr/local/bin/laneway", "health"]
ENTRYPOINT ["/usr/local/bin/laneway"]
CMD ["serve"]

# laneway: the gateway alone, for models behind an endpoint and agents behind HTTP. No preset can start in it.
FROM scratch AS gateway
ARG VERSION=0.0.0-dev
ARG COMMIT=
LABEL org.opencontainers.image.title="laneway" \
      org.opencontainers.image.description="An agent gateway with lanes and jobs that start by the clock" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/laneway /usr/local/bin/laneway
# The data directory belongs to the user of the program, so that a named volume on it begins with the right owner and mode.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV LANEWAY_DATA=/data \
    PATH=/usr/local/bin
VOLUME ["/data"]
EXPOSE 18790
# A container stop must leave time for the turns that run: more than LANEWAY_DRAIN_TIMEOUT, which is 30 s by default.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=4s --start-period=20s --retries=3 CMD ["/usr/local/bin/laneway", "health"]
ENTRYPOINT ["/usr/local/bin/laneway"]
CMD ["serve"]
