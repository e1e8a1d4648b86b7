# syntax=docker/dockerfile:1

# The build needs a Go toolchain; the image that runs has one static program, certificates and nothing else: no shell, no package
# manager, no root.
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

FROM scratch
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
