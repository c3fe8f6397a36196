// Memory that the walker, protobuf and the reader of config.json take for a request is refused while they read it. The
// program counts it with server/core/counted_memory.cc.
#include <new>
#include <string>

#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/model/model.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/parse.h"
#include "server/core/signals.h"

namespace posenc::wire::parse_memory_test {
namespace {

// Links the server's operator new, also where AddressSanitizer has one.
[[maybe_unused]] const bool kCounted = (server::CountGmpMemory(), true);

constexpr int64_t kAllowed = 4 << 20, kOverrun = 1 << 20;  // bytes

// An account that may charge kAllowed.
class Account {
 public:
  MemoryAccount* get() { return &account_; }

 private:
  int64_t left_ = kAllowed;
  MemoryAccount account_{[this](int64_t bytes) { return (left_ -= bytes) >= 0; }};
};

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int n = 0; n < count; ++n) all += text;
  return all;
}

void ExpectEarlyEnd(const std::string& bytes) {
  Account account;
  const MemoryScope scope(account.get());
  v1::GenerateTableRequest request;
  EXPECT_THROW((void)ParseStripped(bytes, &request), std::bad_alloc);
  EXPECT_GT(account.get()->held(), kAllowed / 2) << "the request holds what was read";
  EXPECT_LT(account.get()->held(), kAllowed + kOverrun);
}

TEST(ParseStripped, EndsWhereMemoryWasRefused) {
  ExpectEarlyEnd(Times(1000, "\x7b" + Times(1000, std::string("\x7a\0", 2)) + "\x7c"));  // groups of unknown fields

  v1::GenerateTableRequest one;  // protobuf merges its repetitions
  auto& grid = *one.mutable_positions()->mutable_segments()->add_segment()->mutable_grid();
  for (int n = 0; n < 2040; ++n) grid.add_size(1);
  ExpectEarlyEnd(Times(1000, one.SerializeAsString()));
}

TEST(Strip, EndsWhereMemoryIsRefused) {
  v1::GenerateTableRequest one;
  one.mutable_positions()->mutable_ids()->set_data("x");
  const std::string bytes = Times(500'000, one.SerializeAsString());
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  const Stripper stripper(one.GetDescriptor());
  Account account;
  const MemoryScope scope(account.get());
  EXPECT_THROW((void)stripper.Strip(&stream, kMaxStrippedBytes), std::bad_alloc);
}

ModelSource Config(const std::string& fields) { return {.config_json = R"({"model_type": "llama")" + fields + "}"}; }

TEST(ConfigJson, EndsWhereSmallBlocksWereRefused) {
  std::string fields;
  for (int n = 0; n < 80'000; ++n) fields += ",\"" + std::to_string(n) + "\":0";
  ModelSource source = Config(fields);
  Account account;
  const MemoryScope scope(account.get());
  int64_t held = 0;
  const Cancellation cancelled = [&] {
    held = account.get()->held();
    return account.get()->refused() ? absl::UnavailableError("refused") : absl::OkStatus();
  };
  const absl::Status status = RunInterruptibly(cancelled, [&] { return Parse(Limits(), &source); });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(held, kAllowed + kOverrun);
}

TEST(ConfigJson, ALargeBlockIsRefused) {
  ModelSource source = Config(R"(, "zeros": [0)" + Times(400'000, ",0") + "]");
  Account account;
  const MemoryScope scope(account.get());
  EXPECT_THROW((void)Parse(Limits(), &source), std::bad_alloc);
}

// nlohmann's destructor would move the values of each array into another block first.
TEST(ConfigJson, TakesNoMemoryWhenItIsFreed) {
  const std::string mebibyte = "[0" + Times((1 << 16) - 1, ",0") + "]";
  ModelSource source = Config(R"(, "a": )" + mebibyte + R"(, "b": )" + mebibyte + R"(, "c": )" + mebibyte);
  Account account;
  const MemoryScope scope(account.get());
  ASSERT_TRUE(Parse(Limits(), &source).ok());
  EXPECT_GT(account.get()->held(), 3 << 20);
  source.parsed.reset();
  EXPECT_FALSE(account.get()->refused());
}

}  // namespace
}  // namespace posenc::wire::parse_memory_test
