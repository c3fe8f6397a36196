#include "server/core/compression.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr int kGzipOrZlib = 32 + MAX_WBITS, kGzip = 16 + MAX_WBITS;
constexpr int kMemoryLevel = 8;  // zlib's default

absl::Status Malformed(std::string_view field) {
  return InvalidArgument("MALFORMED", field, "bytes that are not those of gzip", "must be one whole stream of gzip");
}

}  // namespace

bool IsGzip(absl::Span<const std::byte> bytes) {
  return bytes.size() > 1 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

absl::StatusOr<std::string> Inflate(google::protobuf::io::ZeroCopyInputStream* compressed, size_t most,
                                    std::string_view field, const std::function<absl::Status()>& go_on) {
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipOrZlib) != Z_OK) return Unavailable("OVERLOADED", "out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &inflateEnd);
  std::string text;
  size_t size = 0;  // of `text`, so far
  int state = Z_OK;
  const void* piece = nullptr;
  for (int bytes = 0; compressed->Next(&piece, &bytes);) {
    if (bytes == 0) continue;
    if (state == Z_STREAM_END) return Malformed(field);
    stream.next_in = static_cast<Bytef*>(const_cast<void*>(piece));
    stream.avail_in = static_cast<uInt>(bytes);
    while (stream.avail_in > 0 || stream.avail_out == 0) {
      if (stream.avail_out == 0) {
        if (size > most) {
          return TooLarge(field, absl::StrCat("more than ", most, " bytes once decompressed"),
                          absl::StrCat("must be at most ", most, " bytes (max_request_bytes)"));
        }
        POSENC_RETURN_IF_ERROR(go_on());
        // Doubled up to a MiB, so that a small message takes little.
        text.resize(size + std::min(std::max(size, size_t{4096}), std::min(kBlock, most + 1 - size)));
        stream.next_out = reinterpret_cast<Bytef*>(text.data() + size);
        stream.avail_out = static_cast<uInt>(text.size() - size);
      }
      state = inflate(&stream, Z_NO_FLUSH);
      size = text.size() - stream.avail_out;
      if (state == Z_STREAM_END) break;
      if (state == Z_BUF_ERROR && stream.avail_in == 0) break;  // needs more
      if (state != Z_OK) return Malformed(field);
    }
    if (state == Z_STREAM_END && stream.avail_in > 0) return Malformed(field);
  }
  if (state != Z_STREAM_END) return Malformed(field);
  if (size > most) {
    return TooLarge(field, absl::StrCat(size, " bytes once decompressed"),
                    absl::StrCat("must be at most ", most, " bytes (max_request_bytes)"));
  }
  text.resize(size);
  return text;
}

std::string Gzip(std::string text) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) return text;
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &deflateEnd);
  std::string compressed(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) return text;
  compressed.resize(compressed.size() - stream.avail_out);
  return compressed;
}

}  // namespace posenc::server
