#include "server/core/compression.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr int kRead = 64 << 10;
constexpr int kGzipOrZlib = 32 + MAX_WBITS, kGzip = 16 + MAX_WBITS;
constexpr int kMemoryLevel = 8;  // zlib's default

absl::Status Malformed(std::string_view field) {
  return InvalidArgument("MALFORMED", field, "bytes that are not those of gzip", "must be one whole stream of gzip");
}

absl::Status TooLong(std::string_view field, size_t most) {
  return TooLarge(field, absl::StrCat("more than ", most, " bytes once decompressed"),
                  absl::StrCat("must be at most ", most, " bytes (max_request_bytes)"));
}

// Reads all of the stream's input, to the end of its data at most. *size: bytes of *text so far, the rest is space.
// Returns zlib's state.
absl::StatusOr<int> InflateSome(z_stream* stream, size_t most, std::string_view field,
                                const std::function<absl::Status()>& go_on, std::string* text, size_t* size) {
  for (;;) {
    if (stream->avail_out == 0) {
      if (*size > most) return TooLong(field, most);
      POSENC_RETURN_IF_ERROR(go_on());
      // Doubled up to a MiB, so that a small message takes little.
      text->resize(*size + std::min(std::max(*size, size_t{4096}), std::min(kBlock, most + 1 - *size)));
      stream->next_out = reinterpret_cast<Bytef*>(text->data() + *size);
      stream->avail_out = static_cast<uInt>(text->size() - *size);
    }
    const int state = inflate(stream, Z_NO_FLUSH);
    *size = text->size() - stream->avail_out;
    if (state == Z_STREAM_END || (state == Z_BUF_ERROR && stream->avail_in == 0)) return state;
    if (state != Z_OK) return Malformed(field);
    if (stream->avail_in == 0 && stream->avail_out > 0) return state;
  }
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
    const auto* at = static_cast<const Bytef*>(piece);
    for (int left = bytes; left > 0;) {
      if (state == Z_STREAM_END) return Malformed(field);
      POSENC_RETURN_IF_ERROR(go_on());
      const int some = std::min(left, kRead);
      stream.next_in = const_cast<Bytef*>(at);
      stream.avail_in = static_cast<uInt>(some);
      POSENC_ASSIGN_OR_RETURN(state, InflateSome(&stream, most, field, go_on, &text, &size));
      if (state == Z_STREAM_END && stream.avail_in > 0) return Malformed(field);
      at += some;
      left -= some;
    }
  }
  if (state != Z_STREAM_END) return Malformed(field);
  if (size > most) return TooLong(field, most);
  text.resize(size);
  return text;
}

std::optional<std::string> Gzip(const std::string& text) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &deflateEnd);
  std::string compressed(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) return std::nullopt;
  compressed.resize(compressed.size() - stream.avail_out);
  return compressed;
}

}  // namespace posenc::server
