# docker build --build-arg VERSION="$(git describe --tags --always)" --build-arg COMMIT="$(git rev-parse HEAD)" -t lockproxy .
# docker run -p 7379:7379 -e LOCKPROXY_UPSTREAM=redis:6379 lockproxy
# docker run -p 7379:7379 lockproxy --embedded
#
# Configure a container by environment variables rather than flags: the health check reads them too.

FROM docker.io/library/golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /lockproxy ./cmd/lockproxy

FROM scratch
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
