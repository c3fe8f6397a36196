#include "server/core/compression.h"

#include <zlib.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "posenc/base/status.h"

namespace posenc::server::compression_test {
namespace {

const auto kGoOn = [] { return absl::OkStatus(); };

// Reads the text in pieces of so many bytes.
absl::StatusOr<std::string> InflateIn(const std::string& text, int piece, size_t most) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()), piece);
  return Inflate(&stream, most, "body", kGoOn);
}

std::string Zlib(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  EXPECT_EQ(
      compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()), text.size()),
      Z_OK);
  out.resize(size);
  return out;
}

std::string Varied(size_t size) {
  std::string text;
  for (size_t n = 0; text.size() < size; ++n) text += std::to_string(n * 2654435761u % 1000003);
  text.resize(size);
  return text;
}

TEST(Compression, ReadsWhatItWrites) {
  for (const size_t size : {0, 1, 100, 4096, 4097, 100'000, 3'000'000}) {
    const std::string text = Varied(size);
    for (const std::string& packed : {*Gzip(text), Zlib(text)}) {
      for (const int piece : {1, 7, 4096, 1 << 30}) {
        if (size > 100'000 && piece < 4096) continue;
        const auto read = InflateIn(packed, piece, size);
        ASSERT_TRUE(read.ok()) << size << " " << read.status();
        EXPECT_EQ(*read, text) << size;
      }
    }
  }
}

TEST(Compression, ALimitIsExact) {
  for (const size_t size : {1, 4095, 4096, 4097, 1 << 20, (1 << 20) + 1, 2'500'000}) {
    const std::string packed = *Gzip(Varied(size));
    EXPECT_TRUE(InflateIn(packed, 1000, size).ok()) << size;
    const absl::Status status = InflateIn(packed, 1000, size - 1).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << size << " " << status;
    EXPECT_EQ(DetailsOf(status).reason, "TOO_LARGE");
    EXPECT_EQ(DetailsOf(status).field, "body");
  }
}

TEST(Compression, DamagedBytesAreMalformed) {
  const std::string packed = *Gzip(Varied(1000));
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_EQ(DetailsOf(InflateIn(packed.substr(0, size), 100, 1000).status()).reason, "MALFORMED") << size;
  }
  for (const std::string& more : {std::string("x"), packed}) {
    for (const int piece : {1, 1 << 30}) EXPECT_FALSE(InflateIn(packed + more, piece, 2000).ok());
  }
  for (size_t at = 0; at < packed.size(); ++at) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    const auto read = InflateIn(damaged, 100, 1000);
    EXPECT_TRUE(!read.ok() || *read == Varied(1000)) << at;  // its header has bytes that say nothing
  }
}

TEST(Compression, AsksWhetherToGoOn) {
  const std::string packed = *Gzip(std::string(10 << 20, ' '));
  google::protobuf::io::ArrayInputStream stream(packed.data(), static_cast<int>(packed.size()));
  int asked = 0;
  const auto read = Inflate(&stream, 64 << 20, "body",
                            [&asked] { return ++asked < 9 ? absl::OkStatus() : absl::CancelledError("gone"); });
  EXPECT_TRUE(absl::IsCancelled(read.status())) << read.status();
  EXPECT_EQ(asked, 9);
}

// Blocks of deflate without any bytes: their reading takes time all the same.
TEST(Compression, AsksWhileThereIsNoOutput) {
  std::string packed = *Gzip("");
  packed.resize(10);
  for (int n = 0; n < 100'000; ++n) packed.append("\x00\x00\x00\xff\xff", 5);
  google::protobuf::io::ArrayInputStream stream(packed.data(), static_cast<int>(packed.size()));
  int asked = 0;
  const auto read = Inflate(&stream, 100, "body", [&asked] {
    ++asked;
    return absl::OkStatus();
  });
  EXPECT_FALSE(read.ok());
  EXPECT_GE(asked, 500'000 / 65'536);
}

TEST(Compression, KnowsGzip) {
  const auto is_gzip = [](const std::string& text) {
    return IsGzip({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  };
  EXPECT_TRUE(is_gzip(*Gzip("")));
  for (const std::string text : {"", "\x1f", "\x8b\x1f", "a"}) EXPECT_FALSE(is_gzip(text));
  EXPECT_FALSE(is_gzip(Zlib("a")));
}

}  // namespace
}  // namespace posenc::server::compression_test
