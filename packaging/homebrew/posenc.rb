# Homebrew's formula of what computes in process: C++ and C library, and the command.
# Replace the URL and the SHA-256 by those of the release's source archive.
class Posenc < Formula
  desc "Positional encodings for attention, exact and reproducible"
  homepage "https://git.example/posenc"
  url "https://git.example/posenc/archive/v0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on "abseil"
  depends_on "fmt"
  depends_on "gmp"
  depends_on "highway"
  depends_on :linux
  depends_on "mpfr"
  depends_on "protobuf"
  depends_on "xxhash"

  def install
    system "cmake", "-G", "Ninja", "-S", ".", "-B", "build", "-DPOSENC_SERVER=OFF", "-DPOSENC_GRPC=OFF",
           "-DPOSENC_BUILD_TESTS=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
    man1.mkpath
    system bin/"posenc", "help", "--man-pages", man1
    generate_completions_from_executable(bin/"posenc", "completion", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/posenc --version")
    (testpath/"test.c").write <<~C
      #include <posenc/c_api/posenc.h>
      #include <stdio.h>
      int main(void) { return puts(posenc_version()) < 0; }
    C
    system ENV.cc, "test.c", "-I#{include}", "-L#{lib}", "-lposenc", "-o", "test"
    assert_match version.to_s, shell_output("./test")
  end
end
