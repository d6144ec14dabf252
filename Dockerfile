# docker build --build-arg VERSION="$(git describe --tags --always)" --build-arg COMMIT="$(git rev-parse HEAD)" -t lockproxy .
# docker run --read-only -p 7379:7379 -e LOCKPROXY_UPSTREAM=redis:6379 lockproxy
# docker run --read-only -p 7379:7379 lockproxy --embedded
#
# Configure a container by environment variables rather than flags: the health check reads them too. `make image` makes the same image without
# a daemon. The image needs no file system that can be written to, and no rights.

# Go 1.26.7. The digest is that of the index of all platforms; a new one is in the same commit as a new tag.
FROM docker.io/library/golang:1.26-bookworm@sha256:38f30937ff0751bd8c202e53556168b9093302ee6d591e7e65a9d1b84a9d360c AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /lockproxy ./cmd/lockproxy

FROM scratch
LABEL org.opencontainers.image.title="lockproxy" \
      org.opencontainers.image.description="A Redis proxy that adds distributed locks" \
      org.opencontainers.image.licenses="MIT"
# Certificate authorities, for an upstream over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/LICENSE /LICENSE
COPY --from=build /lockproxy /lockproxy
USER 65532:65532
# The default, 127.0.0.1, is not reachable from outside a container. `docker stop` kills after 10 s: drain in less.
ENV LOCKPROXY_LISTEN=0.0.0.0:7379 \
    LOCKPROXY_DRAIN_TIMEOUT=8s
EXPOSE 7379
HEALTHCHECK --interval=10s --timeout=6s --start-period=5s --retries=3 CMD ["/lockproxy", "--health"]
ENTRYPOINT ["/lockproxy"]
