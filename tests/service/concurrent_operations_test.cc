// Every operation runs at once on one pool: each answer equals that of the operation alone.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/service/call.h"

namespace posenc::concurrent_operations_test {
namespace {

using Operation = std::function<std::string(WorkPool& pool)>;

template <class Request>
Operation Answer(Request request) {
  return [request](WorkPool& pool) {
    const auto response = Call(request, {}, &pool);
    EXPECT_THAT(response, IsOk());
    return response.ok() ? response->SerializeAsString() : "";
  };
}

// Besides the pool they share MPFR's caches, the choice of the CPU target, descriptors and lists of methods.
std::vector<Operation> Operations() {
  std::vector<Operation> operations;
  for (const char* rope_type : {"default", "yarn", "linear"}) {
    v1::RotarySource rotary;
    auto& settings = *rotary.mutable_settings();
    auto& parameters = *settings.mutable_rope_parameters();
    parameters.set_rope_type(rope_type);
    if (rope_type != std::string("default")) parameters.set_factor(8);
    if (rope_type == std::string("yarn")) parameters.set_original_max_position_embeddings(4096);
    settings.set_rotary_dim(128);
    settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);

    v1::GenerateTableRequest table;
    *table.mutable_rotary() = rotary;
    table.mutable_positions()->set_offset(100'000);
    table.set_count(600);
    table.set_dtype(v1::DATA_TYPE_FP64);
    table.set_form(v1::TABLE_FORM_HALF_WIDTH);
    operations.push_back(Answer(table));

    v1::ApplyRotaryRequest apply;
    *apply.mutable_rotary() = rotary;
    apply.mutable_positions()->set_offset(1000);
    apply.set_layout(v1::LAYOUT_BSHD);
    *apply.mutable_q()->mutable_tensor() =
        MakeTensor(DType::kFP16, {2, 300, 2, 128}, std::vector<double>(2 * 300 * 2 * 128, 1.5));
    operations.push_back(Answer(apply));
  }
  v1::GenerateBiasRequest bias;
  bias.mutable_method()->mutable_alibi()->set_num_heads(6);
  bias.mutable_method()->mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  bias.mutable_method()->mutable_alibi()->set_form(v1::ALIBI_FORM_CAUSAL);
  bias.mutable_geometry()->set_query_length(300);
  bias.mutable_geometry()->set_key_length(300);
  bias.mutable_geometry()->set_query_offset(0);
  bias.set_form(v1::BIAS_FORM_DENSE);
  bias.set_dtype(v1::DATA_TYPE_FP32);
  operations.push_back(Answer(bias));

  v1::RelativeScoresRequest scores;
  auto& xl = *scores.mutable_method()->mutable_transformer_xl();
  *xl.mutable_position()->mutable_weight() =
      MakeTensor(DType::kFP32, {2 * 16, 24}, std::vector<double>(2 * 16 * 24, 0.5));
  xl.mutable_position()->set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  scores.set_layout(v1::LAYOUT_BHSD);
  scores.set_content(true);
  scores.set_dtype(v1::DATA_TYPE_BF16);
  *scores.mutable_q() = MakeTensor(DType::kFP32, {1, 2, 100, 16}, std::vector<double>(2 * 100 * 16, 0.25));
  *scores.mutable_k() = scores.q();
  operations.push_back(Answer(scores));
  return operations;
}

TEST(ConcurrentOperations, AnswerAsAlone) {
  constexpr size_t kThreads = 4, kRounds = 4;
  const std::vector<Operation> operations = Operations();
  WorkPool pool(3);
  std::vector<std::string> alone;
  for (const Operation& operation : operations) alone.push_back(operation(pool));
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t n = 0; n < kRounds * operations.size(); ++n) {
        const size_t which = (n + thread) % operations.size();
        EXPECT_TRUE(operations[which](pool) == alone[which]) << which;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace posenc::concurrent_operations_test
