# posenc-server's image, for amd64 and arm64, by BuildKit: docker build --tag posenc-server .
# It holds the server, the posenc command and the shared libraries of both, and neither a shell nor a package manager.

# Always on the machine's own architecture: for the other one, a cross compiler is quicker than an emulated compiler.
FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS build
ARG BUILDARCH
ARG TARGETARCH
WORKDIR /src
COPY scripts/install-dependencies scripts/
RUN if [ "$TARGETARCH" = "$BUILDARCH" ]; then scripts/install-dependencies; \
    else scripts/install-dependencies "$TARGETARCH"; fi
COPY . .
# What is installed for systemd is of no use here.
RUN --mount=type=cache,target=/root/.cache/ccache \
    if [ "$TARGETARCH" = "$BUILDARCH" ]; then preset=release; else preset=$TARGETARCH; fi && \
    scripts/build --preset "$preset" && \
    export DESTDIR=/image && \
    cmake --install "build/$preset" --component server --prefix /usr --strip && \
    cmake --install "build/$preset" --component client --prefix /usr --strip && \
    rm -r /image/usr/lib && \
    deploy/add-libraries /image "$TARGETARCH"

FROM scratch
COPY --from=build /image /
ENV POSENC_SERVER_LISTEN=0.0.0.0:50051
EXPOSE 50051
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["posenc-server"]
# Who moves the server to another port asks there.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
  CMD ["posenc", "health", "--server", "127.0.0.1:50051", "--timeout", "3"]
LABEL org.opencontainers.image.title="posenc-server" \
      org.opencontainers.image.description="Positional encodings for attention: exact, reproducible, over gRPC" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
