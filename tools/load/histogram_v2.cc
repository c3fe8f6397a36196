#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <zlib.h>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/load/histogram.h"

namespace posenc::load {
namespace {

// Two headers of big-endian words, the second compressed together with the counts:
//   cookie, length of what follows
//   cookie, length of the counts, index offset, significant figures, lowest value (8 bytes), highest value (8 bytes),
//   ratio of doubles to integers (8 bytes)
constexpr uint32_t kCompressedCookie = 0x1c849314;
constexpr uint32_t kCookie = 0x1c849313;
constexpr uint32_t kCookieKind = ~uint32_t{0xf0};  // the other bits give the word width of the counts
constexpr size_t kOuterSize = 8, kInnerSize = 40;
constexpr uint64_t kOne = 0x3ff0000000000000;  // bits of the double 1.0

template <typename T>
void Append(T value, std::string* out) {
  for (int shift = 8 * (sizeof(T) - 1); shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

// Removes the first big-endian word from `text` and returns it. Precondition: `text` is long enough.
template <typename T>
T Take(std::string_view* text) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = value << 8 | static_cast<uint8_t>((*text)[i]);
  text->remove_prefix(sizeof(T));
  return value;
}

// ZigZag LEB128 of at most nine bytes, the ninth with eight bits: a count, or the negated length of a run of zeros.
void AppendVarint(int64_t value, std::string* out) {
  uint64_t rest = static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
  for (int i = 0; i < 8 && rest >= 0x80; ++i, rest >>= 7) out->push_back(static_cast<char>(rest | 0x80));
  out->push_back(static_cast<char>(rest));
}

// Removes the first varint from `text`. Returns false if there is none.
bool TakeVarint(std::string_view* text, int64_t* value) {
  uint64_t bits = 0;
  for (int i = 0; i < 9; ++i) {
    if (text->empty()) return false;
    const uint64_t byte = Take<uint8_t>(text);
    bits |= (i < 8 ? byte & 0x7f : byte) << 7 * i;
    if (i == 8 || byte < 0x80) break;
  }
  *value = static_cast<int64_t>(bits >> 1 ^ -(bits & 1));
  return true;
}

std::string EncodeCounts(const Histogram& histogram) {
  std::string encoded;
  int32_t next = 0;
  for (const auto& [index, count] : histogram.counts()) {
    // A single zero is written as a count of 0.
    if (const int32_t zeros = index - next; zeros > 0) AppendVarint(zeros == 1 ? 0 : -zeros, &encoded);
    AppendVarint(count, &encoded);
    next = index + 1;
  }
  if (histogram.counts().empty()) AppendVarint(0, &encoded);
  return encoded;
}

absl::StatusOr<Histogram> DecodeCounts(std::string_view encoded) {
  constexpr int64_t kIndices = 54 << 10;  // upper bound for any histogram of 64-bit values
  Histogram histogram;
  int64_t index = 0, count;
  while (!encoded.empty()) {
    if (!TakeVarint(&encoded, &count)) return absl::InvalidArgumentError("is truncated within a count");
    const int64_t zeros = count < 0 ? count : -1;
    if (index - kIndices > zeros) return absl::InvalidArgumentError("has counts beyond the last bucket");
    if (count > std::numeric_limits<int64_t>::max() - histogram.Count()) {
      return absl::InvalidArgumentError("has more than 2^63 values");
    }
    histogram.Record(Histogram::Lowest(static_cast<int32_t>(index)), count);
    index -= zeros;
  }
  return histogram;
}

absl::StatusOr<std::string> Decompress(std::string_view compressed) {
  // Largest possible size: every bucket with a count of nine bytes.
  std::string bytes(kInnerSize + 9 * (Histogram::Index(Histogram::kHighest) + 1024), '\0');
  uLongf size = bytes.size();
  const int result = uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                                reinterpret_cast<const Bytef*>(compressed.data()), compressed.size());
  if (result == Z_BUF_ERROR)
    return absl::InvalidArgumentError("is truncated, or decompresses to more than a histogram");
  if (result != Z_OK) return absl::InvalidArgumentError("is not compressed by zlib");
  bytes.resize(size);
  return bytes;
}

}  // namespace

std::string ToV2(const Histogram& histogram) {
  const std::string counts = EncodeCounts(histogram);
  std::string inner;
  Append(kCookie, &inner);
  Append(static_cast<uint32_t>(counts.size()), &inner);
  Append(uint32_t{0}, &inner);
  Append(uint32_t{3}, &inner);
  Append(uint64_t{1}, &inner);
  Append(static_cast<uint64_t>(Histogram::kHighest), &inner);
  Append(kOne, &inner);
  inner += counts;

  uLongf size = compressBound(inner.size());
  std::string compressed(size, '\0');
  // Cannot fail except for lack of memory, which throws before.
  compress(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(inner.data()),
           inner.size());
  std::string outer;
  Append(kCompressedCookie, &outer);
  Append(static_cast<uint32_t>(size), &outer);
  return absl::Base64Escape(outer.append(compressed, 0, size));
}

absl::StatusOr<Histogram> FromV2(std::string_view text) {
  std::string bytes;
  if (!absl::Base64Unescape(std::string(text), &bytes)) return absl::InvalidArgumentError("is not base64");
  std::string_view outer = bytes;
  if (outer.size() < kOuterSize || (Take<uint32_t>(&outer) & kCookieKind) != (kCompressedCookie & kCookieKind)) {
    return absl::InvalidArgumentError("is not a compressed histogram in HdrHistogram's version 2");
  }
  if (const uint32_t length = Take<uint32_t>(&outer); length != outer.size()) {
    return absl::InvalidArgumentError(absl::StrCat("has ", outer.size(), " bytes, but its header says ", length));
  }
  POSENC_ASSIGN_OR_RETURN(const std::string decompressed, Decompress(outer));
  std::string_view inner = decompressed;
  if (inner.size() < kInnerSize || (Take<uint32_t>(&inner) & kCookieKind) != (kCookie & kCookieKind)) {
    return absl::InvalidArgumentError("holds no histogram of HdrHistogram's version 2");
  }
  const auto length = Take<uint32_t>(&inner), offset = Take<uint32_t>(&inner), figures = Take<uint32_t>(&inner);
  const auto lowest = Take<uint64_t>(&inner);
  Take<uint64_t>(&inner);  // highest value: does not affect the buckets
  const auto ratio = Take<uint64_t>(&inner);
  if (offset != 0 || figures != 3 || lowest != 1 || ratio != kOne) {
    return absl::InvalidArgumentError(absl::StrCat("has ", figures, " significant figures from ", lowest,
                                                   " on; must have 3 from 1 on, for unshifted integers"));
  }
  if (length != inner.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", inner.size(), " bytes of counts, but its header says ", length));
  }
  return DecodeCounts(inner);
}

}  // namespace posenc::load
