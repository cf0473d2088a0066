# One service as a static program on Alpine, run by nobody in particular.
# Usage: docker build --build-arg SERVICE=grab --build-arg VERSION=v1.2.3 -t doorbuster-grab .
# SERVICE is a folder of services/: grab, order, reconciler, admin, doorbuster.

# The same version as in go.mod; a test holds the two together.
ARG GO_VERSION=1.26.8

FROM golang:${GO_VERSION}-alpine AS build
WORKDIR /src
# The modules have a layer of their own, which changes to the code leave alone.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
# All services at once: the images of one release share this layer.
RUN mkdir /out && CGO_ENABLED=0 go build -buildvcs=false -trimpath \
    -ldflags "-s -w -X github.com/doorbuster/doorbuster/pkg/config.version=${VERSION}" \
    -o /out/ ./services/...

# Alpine rather than scratch: health checks need wget, TLS needs certificates, time zones their names.
FROM alpine:3.22
RUN apk add --no-cache ca-certificates tzdata
ARG SERVICE=doorbuster
COPY --from=build /out/${SERVICE} /usr/local/bin/service
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/service"]
