# Builds for 64-bit Arm on another Debian machine, against Debian's arm64 packages (scripts/install-dependencies arm64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# Without this, pkg-config finds this machine's own libraries, e.g. OpenSSL and re2, which gRPC needs.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# Tests run in an emulator, which has all instruction sets and vectors of 512 bits unless QEMU_CPU says otherwise.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
