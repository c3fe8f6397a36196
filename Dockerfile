# The image of posenc-server, for amd64 and arm64. Build it with BuildKit: docker build --tag posenc-server .
# It contains the server, the posenc command and their shared libraries, but no shell and no package manager.
# --target cuda adds the plugin for NVIDIA GPUs, for the build machine's own architecture only (docs/cuda.md).
# --build-arg BASE=debian:bookworm-slim@sha256:... fixes the system from which compiler and libraries come; SOURCE and
# REVISION are the URL and the commit of the source tree, for the image's labels. /usr/share/sbom/posenc-server.spdx.json
# is the image's bill of materials.
ARG BASE=debian:bookworm-slim

# Builds on the machine's own architecture: a cross compiler is faster than a compiler in an emulator.
FROM --platform=$BUILDPLATFORM $BASE AS build
ARG BUILDARCH
ARG TARGETARCH
WORKDIR /src
COPY scripts/install-dependencies scripts/
RUN if [ "$TARGETARCH" = "$BUILDARCH" ]; then scripts/install-dependencies; \
    else scripts/install-dependencies "$TARGETARCH"; fi
COPY . .
# usr/lib holds the systemd unit, which a container does not use.
RUN --mount=type=cache,target=/root/.cache/ccache \
    if [ "$TARGETARCH" = "$BUILDARCH" ]; then preset=release; else preset=$TARGETARCH; fi && \
    scripts/build --preset "$preset" && \
    export DESTDIR=/image && \
    cmake --install "build/$preset" --component server --prefix /usr --strip && \
    cmake --install "build/$preset" --component client --prefix /usr --strip && \
    rm -r /image/usr/lib && \
    deploy/add-libraries /image "$TARGETARCH" && \
    mkdir -p /image/usr/share/sbom && \
    version=$(sed -n 's/^project(posenc VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt) && \
    deploy/write-sbom image /image "$version" >/image/usr/share/sbom/posenc-server.spdx.json

# The plugin, and files for the NVIDIA driver, which the container runtime adds: the libraries that the driver links to,
# and debian_version, which tells the runtime where Debian keeps libraries.
FROM build AS build-cuda
ARG BUILDARCH
ARG TARGETARCH
RUN test "$TARGETARCH" = "$BUILDARCH" || { echo "the target cuda is not for other architectures" >&2; exit 1; }
RUN scripts/build-cuda --install && \
    install -D --mode=644 build/cuda/libposenc_cuda.so /plugin/usr/lib/posenc/libposenc_cuda.so && \
    cd /lib/*-linux-gnu && \
    cp --dereference --parents "$PWD/libm.so.6" "$PWD/libdl.so.2" "$PWD/libpthread.so.0" "$PWD/librt.so.1" \
      /etc/debian_version /plugin

# An empty base: little that could be exploited, and an image for another architecture needs no base of that architecture
# (in Docker's classic image store, one name holds one). A library that is loaded by name at run time is not found from
# what is linked: add its package in deploy/add-libraries.
FROM scratch AS server
COPY --from=build /image /
ENV POSENC_SERVER_LISTEN=0.0.0.0:50051
# gRPC, and the ports that the chart gives to --metrics-listen and --health-listen.
EXPOSE 50051 9464 9465
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["posenc-server"]
# If the server listens on another port, override this check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
  CMD ["posenc", "health", "--server", "127.0.0.1:50051", "--timeout", "3"]
ARG VERSION=0.1.0
ARG SOURCE=
ARG REVISION=
LABEL org.opencontainers.image.title="posenc-server" \
      org.opencontainers.image.description="Positional encodings for attention: exact, reproducible, over gRPC" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM server AS cuda
COPY --from=build-cuda /plugin /
# Some runtimes put the driver into /usr/lib64, as on Red Hat's systems.
ENV POSENC_SERVER_DEVICE_PLUGIN=/usr/lib/posenc/libposenc_cuda.so \
    LD_LIBRARY_PATH=/usr/lib64 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute

# The default target.
FROM server
