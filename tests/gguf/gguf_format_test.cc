// The GGUF format: what is kept of a file, and what hostile files give.
#include <gtest/gtest.h>

#include "posenc/base/gguf.h"
#include "posenc/base/status.h"
#include "tests/gguf/gguf_file.h"
#include "tests/service/call.h"

namespace posenc::gguf_format_test {
namespace {

using gguf_file::Bytes;
using gguf_file::Text;

// The header's counts, and what follows them.
std::string File(uint64_t tensors, uint64_t pairs, const std::string& rest, uint32_t version = 3) {
  return "GGUF" + Bytes(version) + Bytes(tensors) + Bytes(pairs) + rest;
}
std::string Pair(const std::string& key, GgufValueType type, const std::string& value) {
  return Text(key) + Bytes(type) + value;
}
std::string TensorOf(const std::string& name, uint64_t count, uint64_t offset, uint32_t type = 0) {
  return Text(name) + Bytes<uint32_t>(1) + Bytes(count) + Bytes(type) + Bytes(offset);
}

TEST(GgufFormat, KeepsMetadataAndFactors) {
  Gguf gguf = gguf_file::Model("llama", {gguf_file::Float("llama.rope.freq_base", 5e5f)});
  gguf.pairs.push_back(gguf_file::String("tokenizer.chat_template", std::string(100000, 'x')));
  gguf.pairs.push_back(gguf_file::String("general.description", std::string(100000, 'x')));
  gguf.factors = {{std::string(kRopeFreqs), {1, 2, 4, 8}}, {std::string(kRopeFactorsLong), {3}}};
  const auto read = ReadGguf(WriteGguf(gguf));
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->pairs.size(), 6);  // neither the tokenizer nor the long description
  EXPECT_EQ(read->pairs[5].key, "llama.rope.freq_base");
  EXPECT_EQ(read->pairs[5].value, Bytes(5e5f));
  ASSERT_EQ(read->factors.size(), 2);
  EXPECT_EQ(read->factors[0].name, kRopeFreqs);
  EXPECT_EQ(read->factors[0].values, (std::vector<float>{1, 2, 4, 8}));
  EXPECT_EQ(read->factors[1].values, std::vector<float>{3});
  EXPECT_EQ(WriteGguf(*read), WriteGguf(*ReadGguf(WriteGguf(*read))));
}

TEST(GgufFormat, ReadsLittleOfALargeFile) {
  constexpr uint64_t kSize = uint64_t{1} << 40, kPlace = uint64_t{1} << 39;
  std::string tokens = Bytes(GgufValueType::kString) + Bytes<uint64_t>(200000);
  for (int n = 0; n < 200000; ++n) tokens += Text("token");
  const std::string header =
      File(2, 2,
           Pair("tokenizer.ggml.tokens", GgufValueType::kArray, tokens) +
               Pair("general.alignment", GgufValueType::kUint32, Bytes<uint32_t>(64)) +
               TensorOf("token_embd.weight", uint64_t{1} << 60, 0, 99) + TensorOf(std::string(kRopeFreqs), 2, kPlace));
  const uint64_t data = (header.size() + 63) / 64 * 64;
  uint64_t fetched = 0;
  const GgufSource source{kSize, [&](uint64_t offset, uint64_t count) -> absl::StatusOr<std::string> {
                            fetched += count;
                            std::string bytes(count, '\0');
                            if (offset < header.size()) {
                              const std::string known = header.substr(offset, count);
                              bytes.replace(0, known.size(), known);
                            }
                            if (offset == data + kPlace) bytes = Bytes(2.0f) + Bytes(3.0f);
                            return bytes;
                          }};
  const auto read = ReadGguf(source);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->factors.size(), 1);
  EXPECT_EQ(read->factors[0].values, (std::vector<float>{2, 3}));
  EXPECT_LT(fetched, header.size() + (uint64_t{1} << 20));
}

TEST(GgufFormat, FilesThatEndEarly) {
  Gguf gguf = gguf_file::Model("llama", {gguf_file::List("llama.rope.dimension_sections", {1, 2, 3, 4})});
  gguf.factors = {{std::string(kRopeFreqs), {1, 2}}};
  const std::string file = WriteGguf(gguf);
  for (size_t size = 0; size < file.size(); ++size) {
    const auto read = ReadGguf(std::string_view(file).substr(0, size));
    ASSERT_FALSE(read.ok()) << size;
    const ErrorDetails details = DetailsOf(read.status());
    EXPECT_TRUE(details.field.starts_with("gguf.")) << size << ": " << read.status();
    EXPECT_TRUE(details.limit.starts_with("must ")) << size << ": " << read.status();
  }
}

struct Hostile {
  std::string name, file, reason, field;
};

TEST(GgufFormat, HostileFiles) {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  const std::string aligned = Pair("general.alignment", GgufValueType::kUint32, Bytes<uint32_t>(3));
  const std::string freqs(kRopeFreqs);
  const Hostile cases[] = {
      {"magic", "GGML" + Bytes<uint32_t>(3) + std::string(16, '\0'), "MALFORMED", "gguf.magic"},
      {"version 1", File(0, 0, "", 1), "UNSUPPORTED", "gguf.version"},
      {"version 4", File(0, 0, "", 4), "UNSUPPORTED", "gguf.version"},
      {"big-endian", File(0, 0, "", 3 << 24), "UNSUPPORTED", "gguf.version"},
      {"2^60 tensors", File(kHuge, 0, ""), "OUT_OF_RANGE", "gguf.tensor_count"},
      {"2^60 pairs", File(0, kHuge, ""), "OUT_OF_RANGE", "gguf.metadata_kv_count"},
      {"a key of 2^60 bytes", File(0, 1, Bytes(kHuge)), "MALFORMED", "gguf.metadata_kv"},
      {"a string of 2^60 bytes", File(0, 1, Pair("a", GgufValueType::kString, Bytes(kHuge))), "MALFORMED", "gguf.a"},
      {"a list of 2^60 numbers",
       File(0, 1, Pair("a", GgufValueType::kArray, Bytes(GgufValueType::kUint64) + Bytes(kHuge))), "MALFORMED",
       "gguf.a"},
      {"a list of 2^60 strings",
       File(0, 1, Pair("a", GgufValueType::kArray, Bytes(GgufValueType::kString) + Bytes(kHuge))), "MALFORMED",
       "gguf.a"},
      {"a list of lists",
       File(0, 1, Pair("a", GgufValueType::kArray, Bytes(GgufValueType::kArray) + Bytes<uint64_t>(1))), "UNSUPPORTED",
       "gguf.a"},
      {"a type that there is not", File(0, 1, Pair("a", static_cast<GgufValueType>(13), "")), "MALFORMED", "gguf.a"},
      {"a long value", File(0, 1, Pair("llama.x", GgufValueType::kString, Text(std::string(70000, 'x')))),
       "OUT_OF_RANGE", "gguf.llama.x"},
      {"a boolean of 2", File(0, 1, Pair("a", GgufValueType::kBool, "\2")), "MALFORMED", "gguf.a"},
      {"a key given twice", File(0, 2, Pair("a", GgufValueType::kInt8, "1") + Pair("a", GgufValueType::kInt8, "1")),
       "MALFORMED", "gguf.a"},
      {"a long key given twice",
       File(0, 2,
            Pair(std::string(1024, 'k'), GgufValueType::kInt8, "1") +
                Pair(std::string(1024, 'k'), GgufValueType::kInt8, "1")),
       "MALFORMED", "gguf." + std::string(61, 'k') + "..."},
      {"a key that is not UTF-8, given twice",
       File(0, 2, Pair("k\xff", GgufValueType::kInt8, "1") + Pair("k\xff", GgufValueType::kInt8, "1")), "MALFORMED",
       "gguf.k\\xff"},
      {"an alignment of 3", File(0, 1, aligned), "OUT_OF_RANGE", "gguf.general.alignment"},
      {"five dimensions", File(1, 0, Text("t") + Bytes<uint32_t>(5)), "MALFORMED", "gguf.t"},
      {"factors beyond the file", File(1, 0, TensorOf(freqs, 4, 320)), "MALFORMED", "gguf.rope_freqs.weight"},
      {"an offset of 2^63", File(1, 0, TensorOf(freqs, 4, uint64_t{1} << 63)), "MALFORMED", "gguf.rope_freqs.weight"},
      {"an offset between", File(1, 0, TensorOf(freqs, 4, 1)), "MALFORMED", "gguf.rope_freqs.weight"},
      {"2^60 factors", File(1, 0, TensorOf(freqs, kHuge, 0)), "OUT_OF_RANGE", "gguf.rope_freqs.weight"},
      {"no factors", File(1, 0, TensorOf(freqs, 0, 0)), "OUT_OF_RANGE", "gguf.rope_freqs.weight"},
      {"float16 factors", File(1, 0, TensorOf(freqs, 4, 0, 1)), "UNSUPPORTED", "gguf.rope_freqs.weight"},
      {"factors given twice", File(2, 0, TensorOf(freqs, 1, 0) + TensorOf(freqs, 1, 0) + std::string(100, '\0')),
       "MALFORMED", "gguf.rope_freqs.weight"},
  };
  for (const Hostile& hostile : cases) {
    const absl::Status status = ReadGguf(hostile.file).status();
    EXPECT_THAT(status, IsInvalid(hostile.reason, hostile.field)) << hostile.name;
    EXPECT_THAT(std::string(status.message()), testing::EndsWith(DetailsOf(status).limit)) << hostile.name;
  }
}

}  // namespace
}  // namespace posenc::gguf_format_test
