#include "tools/load/histogram.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "absl/strings/escaping.h"
#include "tests/tools/load/histogram_golden.h"

namespace posenc::load::histogram_text_test {
namespace {

using testing::HasSubstr;

Histogram Many() {
  Histogram histogram = Squares();
  histogram.Record(777, 5'000'000'000);
  return histogram;
}

// The header and counts in a V2 text. Its compressed bytes may differ between zlib releases.
std::string Inside(std::string_view text) {
  std::string bytes, inside(1 << 20, '\0');
  EXPECT_TRUE(absl::Base64Unescape(std::string(text), &bytes));
  uLongf size = inside.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(inside.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()) + 8,
                       bytes.size() - 8),
            Z_OK);
  inside.resize(size);
  return inside;
}

// Makes a V2 text with these bytes.
std::string Holding(std::string_view inside) {
  std::string compressed(compressBound(inside.size()), '\0');
  uLongf size = compressed.size();
  compress(reinterpret_cast<Bytef*>(compressed.data()), &size, reinterpret_cast<const Bytef*>(inside.data()),
           inside.size());
  compressed.resize(size);
  std::string length(4, '\0');
  for (int i = 0; i < 4; ++i) length[i] = static_cast<char>(size >> 8 * (3 - i));
  return absl::Base64Escape("\x1c\x84\x93\x14" + length + compressed);
}

std::string ErrorOf(std::string_view text) { return std::string(FromV2(text).status().message()); }

TEST(HistogramV2, ReadsWhatHdrHistogramWrote) {
  EXPECT_EQ(FromV2(kSquares).value(), Squares());
  EXPECT_EQ(FromV2(kMany).value(), Many());
  EXPECT_EQ(FromV2(kNothing).value(), Histogram());
}

TEST(HistogramV2, WritesWhatHdrHistogramWrote) {
  EXPECT_EQ(Inside(ToV2(Squares())), Inside(kSquares));
  EXPECT_EQ(Inside(ToV2(Many())), Inside(kMany));
  EXPECT_EQ(Inside(ToV2(Histogram())), Inside(kNothing));
  EXPECT_EQ(ToV2(Squares()).substr(0, 5), "HISTF");
}

TEST(HistogramV2, ReadsBackTheLargestCount) {
  Histogram histogram;
  histogram.Record(12345, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(FromV2(ToV2(histogram)).value(), histogram);
}

TEST(HistogramV2, TellsWhatIsNoHistogram) {
  EXPECT_EQ(ErrorOf("?"), "is not base64");
  EXPECT_THAT(ErrorOf(""), HasSubstr("is not a compressed histogram"));
  EXPECT_THAT(ErrorOf("aGVsbG8gd29ybGQ="), HasSubstr("is not a compressed histogram"));
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(std::string(kSquares), &bytes));
  EXPECT_THAT(ErrorOf(absl::Base64Escape(bytes.substr(0, bytes.size() - 1))), HasSubstr("its header says"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(FromV2(absl::Base64Escape(bytes.substr(0, size))).ok()) << size;
  }
  bytes[12] = static_cast<char>(~bytes[12]);
  EXPECT_EQ(ErrorOf(absl::Base64Escape(bytes)), "is not compressed by zlib");
}

TEST(HistogramV2, TellsWhatDoesNotFit) {
  const std::string good = Inside(kSquares);
  const auto with = [&](size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    return ErrorOf(Holding(bad));
  };
  ASSERT_EQ(ErrorOf(Holding(good)), "");
  EXPECT_THAT(with(0, 0), HasSubstr("holds no histogram"));
  EXPECT_THAT(with(7, 1), HasSubstr("bytes of counts, but its header says"));
  EXPECT_THAT(with(11, 1), HasSubstr("unshifted"));
  EXPECT_EQ(with(15, 2), "has 2 significant figures from 1 on; must have 3 from 1 on, for unshifted integers");
  EXPECT_THAT(with(23, 8), HasSubstr("from 8 on"));
  EXPECT_THAT(with(33, 0), HasSubstr("integers"));
  EXPECT_THAT(ErrorOf(Holding(std::string(1 << 20, '\0'))), HasSubstr("decompresses to more than a histogram"));
}

// Makes a histogram with these bytes as counts.
std::string WithCounts(std::string_view counts) {
  std::string inside = Inside(kNothing).substr(0, 40);
  inside[7] = static_cast<char>(counts.size());
  return Holding(inside.append(counts));
}

TEST(HistogramV2, TellsCountsThatCannotBe) {
  EXPECT_EQ(FromV2(WithCounts("\x02")).value().Count(), 1);
  EXPECT_EQ(ErrorOf(WithCounts("\x82")), "is truncated within a count");
  const std::string most = "\xfe\xff\xff\xff\xff\xff\xff\xff\xff";  // 2^63 - 1
  EXPECT_EQ(FromV2(WithCounts(most)).value().Count(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ErrorOf(WithCounts(most + "\x02")), "has more than 2^63 values");
  const std::string least = "\xff\xff\xff\xff\xff\xff\xff\xff\xff";  // -2^63
  EXPECT_EQ(ErrorOf(WithCounts(least)), "has counts beyond the last bucket");
  const std::string far = "\xff\xdf\x06";  // -(54 << 10)
  EXPECT_EQ(FromV2(WithCounts(far)).value().Count(), 0);
  EXPECT_EQ(ErrorOf(WithCounts(far + "\x02")), "has counts beyond the last bucket");
  // This is the last bucket of a histogram whose highest value exceeds ours.
  EXPECT_EQ(FromV2(WithCounts("\xfd\xdf\x06\x02")).value().Max(), 3600809983);
}

}  // namespace
}  // namespace posenc::load::histogram_text_test
