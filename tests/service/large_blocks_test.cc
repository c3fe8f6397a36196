// A call that gets less memory than it needs ends before it holds much more (docs/adr/0019-counted-memory.md). The
// program is linked with the server's operator new.
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/arena.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "server/core/signals.h"
#include "tests/service/call.h"

namespace posenc::large_blocks_test {
namespace {

// Links the server's operator new, also where AddressSanitizer has one.
[[maybe_unused]] const bool kCounted = (server::CountGmpMemory(), true);

// Elements, of which a copy takes 4 bytes or more each, and bytes: a thread's own tables take less.
constexpr int64_t kMany = 1 << 20, kLarge = 2 << 20;

// A call's account, which charges at most `limit` bytes. The server's operator new counts the call's blocks for it.
class Memory {
 public:
  explicit Memory(int64_t limit) : limit_(limit) {}
  MemoryAccount* account() { return &account_; }
  int64_t charged() const { return account_.charged(); }

 private:
  const int64_t limit_;
  MemoryAccount account_{[this](int64_t bytes) { return account_.charged() + bytes <= limit_; }};
};

// Prepares the call and runs its job, with at most `limit` bytes. The answer is in an arena, as a server's.
template <class Request>
absl::Status Run(const Request& request, Memory& memory, bool run) {
  const wire::InMessage payloads;
  WorkPool pool(1);
  std::vector<std::vector<std::byte>> outputs;
  std::vector<std::byte*> buffers;
  const Cancellation cancelled = [&] {
    return memory.account()->refused() ? absl::ResourceExhaustedError("refused") : absl::OkStatus();
  };
  google::protobuf::Arena arena;
  decltype(ResponseTo(request)) prototype;
  auto* response = prototype.New(&arena);
  try {
    return RunInterruptibly(cancelled, [&]() -> absl::Status {
      absl::StatusOr<wire::Job> job;
      {
        const MemoryScope scope(memory.account());
        job = wire::Prepare(request, payloads, {}, response);
      }
      if (!job.ok() || !run) return job.status();
      for (const wire::Output& output : job->outputs) buffers.push_back(outputs.emplace_back(output.bytes).data());
      const MemoryScope scope(memory.account());
      if (job->decide) return job->decide(pool, cancelled);
      return job->run ? job->run(payloads, buffers, pool, cancelled) : absl::OkStatus();
    });
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("refused");
  }
}

// Expects that a call ends with its own status if it gets the memory it needs, and otherwise without holding much more
// than it gets.
template <class Request>
absl::Status Watched(const Request& request, bool run = true) {
  Memory first(int64_t{1} << 40), unlimited(int64_t{1} << 40);
  static_cast<void>(Run(request, first, run));  // caches what later ones find
  const absl::Status status = Run(request, unlimited, run);
  const int64_t needed = unlimited.charged();
  EXPECT_GE(needed, kLarge);
  for (int64_t limit = needed / 8; limit < needed; limit += needed / 8) {
    Memory limited(limit);
    EXPECT_TRUE(absl::IsResourceExhausted(Run(request, limited, run))) << limit << " of " << needed;
    EXPECT_LT(limited.account()->peak(), limit + kLarge) << limit << " of " << needed;
  }
  return status;
}

v1::Tensor Zeros(DType dtype, const std::vector<int64_t>& shape) {
  v1::Tensor tensor;
  tensor.set_dtype(Wire(dtype));
  int64_t bytes = static_cast<int64_t>(SizeOf(dtype));
  for (const int64_t size : shape) {
    tensor.add_shape(size);
    bytes *= size;
  }
  tensor.set_data(std::string(bytes, '\0'));
  return tensor;
}

v1::RotarySettings OfTable(v1::TableForm form) {
  v1::RotarySettings settings;
  settings.set_rotary_dim(64);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  v1::GivenTable& table = *settings.mutable_given_table();
  table.set_form(form);
  const int64_t width = form == v1::TABLE_FORM_HALF_WIDTH ? 32 : 64;
  *table.mutable_cos() = *table.mutable_sin() = Zeros(DType::kFP32, {kMany / 32, width});
  return settings;
}

v1::GenerateEmbeddingRequest Embedding() {
  v1::GenerateEmbeddingRequest request;
  request.set_dtype(v1::DATA_TYPE_BF16);
  request.mutable_sinusoidal()->set_dim(4);
  request.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_INTERLEAVED);
  return request;
}

v1::Shaw OfShaw(int64_t rows, int64_t width) {
  v1::Shaw shaw;
  shaw.set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  shaw.set_clip(true);
  *shaw.mutable_table() = Zeros(DType::kBF16, {rows, width});
  return shaw;
}

v1::BiasGeometry Positions(int64_t queries, int64_t keys) {
  v1::BiasGeometry geometry;
  *geometry.mutable_query_positions() = Zeros(DType::kINT32, {queries});
  *geometry.mutable_key_positions() = Zeros(DType::kINT32, {keys});
  return geometry;
}

v1::GenerateBiasRequest Bias() {
  v1::GenerateBiasRequest request;
  request.set_dtype(v1::DATA_TYPE_BF16);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.mutable_method()->mutable_nope();
  request.mutable_geometry()->set_query_length(1);
  request.mutable_geometry()->set_key_length(1);
  request.mutable_mask()->set_causal(true);
  request.mutable_mask()->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
  request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  return request;
}

TEST(LargeBlocks, OfPositionsOfEmbeddings) {
  v1::GenerateEmbeddingRequest request = Embedding();
  *request.mutable_positions()->mutable_ids() = Zeros(DType::kINT32, {kMany});
  EXPECT_THAT(Watched(request), IsOk());
}

TEST(LargeBlocks, OfPositionsThatAMaskGives) {
  v1::GenerateEmbeddingRequest request = Embedding();
  request.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_FAIRSEQ);
  request.mutable_sinusoidal()->set_padding_idx(1);
  *request.mutable_sinusoidal()->mutable_token_valid() = Zeros(DType::kBOOL, {1, kMany});
  EXPECT_THAT(Watched(request), IsOk());
}

TEST(LargeBlocks, OfTablesThatAreCompared) {
  for (const v1::TableForm form : {v1::TABLE_FORM_HALF_WIDTH, v1::TABLE_FORM_DUPLICATED}) {
    v1::CompareRequest request;
    *request.mutable_a()->mutable_rotary() = OfTable(form);
    *request.mutable_b()->mutable_rotary() = OfTable(v1::TABLE_FORM_HALF_WIDTH);
    EXPECT_THAT(Watched(request), IsOk());
  }
}

TEST(LargeBlocks, OfReturnedPlans) {
  v1::GenerateTableRequest table;
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  table.set_dtype(v1::DATA_TYPE_FP32);
  table.set_count(1);
  table.mutable_positions()->set_offset(0);
  *table.mutable_rotary()->mutable_settings() = OfTable(v1::TABLE_FORM_HALF_WIDTH);
  table.mutable_hints()->set_return_plan(true);
  EXPECT_THAT(Watched(table), IsOk());

  v1::ApplyRotaryRequest rotation;
  rotation.set_layout(v1::LAYOUT_BSHD);
  *rotation.mutable_q()->mutable_tensor() = Zeros(DType::kFP32, {1, 1, 1, 64});
  *rotation.mutable_positions() = table.positions();
  *rotation.mutable_rotary() = table.rotary();
  rotation.mutable_hints()->set_return_plan(true);
  EXPECT_THAT(Watched(rotation), IsOk());
}

TEST(LargeBlocks, OfPositionsOfScores) {
  for (const auto& [queries, keys] : {std::pair{kMany, int64_t{1}}, {int64_t{1}, kMany}}) {
    v1::RelativeScoresRequest request;
    request.set_layout(v1::LAYOUT_BHSD);
    request.set_content(false);
    request.set_dtype(v1::DATA_TYPE_BF16);
    *request.mutable_method()->mutable_shaw() = OfShaw(3, 1);
    *request.mutable_geometry() = Positions(queries, keys);
    request.mutable_geometry()->set_key_length(keys);
    *request.mutable_q() = Zeros(DType::kBF16, {1, 1, queries, 1});
    EXPECT_THAT(Watched(request, /*run=*/false), IsOk());  // a loop states what its rows of keys take
  }
}

TEST(LargeBlocks, OfPositionsAndTablesOfValues) {
  v1::RelativeValuesRequest request;
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_dtype(v1::DATA_TYPE_BF16);
  *request.mutable_shaw() = OfShaw(3, 1);
  *request.mutable_geometry() = Positions(kMany, 1);
  *request.mutable_probabilities() = Zeros(DType::kBF16, {1, 1, kMany, 1});
  EXPECT_THAT(Watched(request), IsOk());

  // The message is small enough to be copied: on a server it has no tensors' bytes.
  constexpr int64_t kRows = 6000;
  *request.mutable_shaw() = OfShaw(2 * kRows + 1, 64);
  request.clear_geometry();
  *request.mutable_geometry()->mutable_query_positions() =
      MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, kRows});
  *request.mutable_geometry()->mutable_key_positions() = MakeTensor(DType::kINT32, {2}, std::vector<int32_t>{0, kRows});
  *request.mutable_probabilities() = Zeros(DType::kBF16, {1, 1, 2, 2});
  request.mutable_hints()->set_return_plan(true);
  EXPECT_THAT(Watched(request), IsOk());
}

TEST(LargeBlocks, OfPositionsOfEvidence) {
  v1::DiagnoseRequest request;
  request.set_layout(v1::LAYOUT_BSHD);
  v1::BeforeAndAfter& q = *request.mutable_rotation()->mutable_q();
  *q.mutable_before() = *q.mutable_after() = Zeros(DType::kFP16, {1, kMany, 1, 2});
  *request.mutable_positions()->mutable_ids() = Zeros(DType::kINT32, {kMany});
  EXPECT_THAT(Watched(request), IsInvalid("OUT_OF_RANGE", "rotation.q.before")) << "zeros say nothing";
}

TEST(LargeBlocks, OfLists) {
  v1::GenerateBiasRequest offsets = Bias();
  offsets.mutable_geometry()->mutable_query_offsets()->mutable_offset()->Resize(kMany / 4, 1);
  EXPECT_THAT(Watched(offsets), IsOk());

  v1::GenerateBiasRequest prefixes = Bias();
  prefixes.mutable_mask()->mutable_prefix_length()->Resize(kMany / 4, 1);
  EXPECT_THAT(Watched(prefixes), IsOk());

  v1::GenerateBiasRequest numbers = Bias();
  auto& kerple = *numbers.mutable_method()->mutable_kerple();
  kerple.set_kernel(v1::KERPLE_KERNEL_POWER);
  kerple.mutable_a()->Resize(kMany / 4, 1);
  kerple.mutable_p()->Resize(kMany / 4, 1);
  EXPECT_THAT(Watched(numbers), IsInvalid("OUT_OF_RANGE", "method.kerple.a"));

  v1::ApplyRotaryRequest shape;
  shape.set_layout(v1::LAYOUT_BSHD);
  *shape.mutable_rotary()->mutable_settings() = OfTable(v1::TABLE_FORM_HALF_WIDTH);
  shape.mutable_positions()->set_offset(0);
  *shape.mutable_q()->mutable_tensor() = Zeros(DType::kFP32, {});
  shape.mutable_q()->mutable_tensor()->mutable_shape()->Resize(kMany / 4, 1);
  EXPECT_THAT(Watched(shape), IsInvalid("OUT_OF_RANGE", "q.tensor.shape"));
}

}  // namespace
}  // namespace posenc::large_blocks_test
