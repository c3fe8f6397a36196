// Equal fingerprints mean equal bytes.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/escaping.h"
#include "posenc/base/fingerprint.h"
#include "posenc/mapping/message_fingerprint.h"
#include "tests/mapping/full_messages.h"
#include "tests/service/call.h"

namespace posenc::fingerprint_test {
namespace {

// Everything that changes a table changes the fingerprint.
TEST(Fingerprint, DiffersWithEverySetting) {
  const auto fingerprint = [](const auto& change) {
    v1::ExplainRequest request;
    auto* p = request.mutable_rotary()->mutable_rope_parameters();
    p->set_rope_type("yarn");
    p->set_factor(4);
    p->set_original_max_position_embeddings(4096);
    request.mutable_rotary()->set_rotary_dim(64);
    request.mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
    change(request, *p);
    const auto response = Call(request);
    EXPECT_THAT(response, IsOk());
    return response->layers(0).info().plan_fingerprint();
  };
  std::set<std::string> seen;
  seen.insert(fingerprint([](auto&, auto&) {}));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_rope_theta(10001); }));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_factor(5); }));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_attention_factor(1); }));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_truncate(false); }));
  seen.insert(fingerprint([](auto& r, auto&) { r.mutable_rotary()->set_rotary_dim(32); }));
  seen.insert(fingerprint([](auto& r, auto&) { r.mutable_rotary()->set_input_pairing(v1::PAIRING_INTERLEAVED); }));
  seen.insert(fingerprint([](auto& r, auto&) { r.mutable_rotary()->set_output_pairing(v1::PAIRING_INTERLEAVED); }));
  for (auto preset : {v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_HF_EAGER, v1::PRECISION_PRESET_VLLM,
                      v1::PRECISION_PRESET_FLUX}) {
    seen.insert(fingerprint([preset](auto& r, auto&) { r.mutable_precision()->set_preset(preset); }));
  }
  EXPECT_EQ(seen.size(), 12u);
}

// The fingerprint of an added bias depends on its roundings; a bias alone is always rounded once.
TEST(Fingerprint, OfAnAddedBiasDiffersWithItsRounding) {
  const auto fingerprint = [](v1::PrecisionPreset preset, bool added) {
    v1::AddBiasRequest add;
    *add.mutable_method() = FullMethod("kerple");
    add.mutable_precision()->set_preset(preset);
    *add.mutable_scores() = MakeTensor(DType::kFP32, {1, 2, 1, 1}, {0, 0});
    v1::GenerateBiasRequest generate;
    *generate.mutable_method() = add.method();
    *generate.mutable_precision() = add.precision();
    generate.mutable_geometry()->set_query_length(1);
    generate.mutable_geometry()->set_key_length(1);
    generate.set_form(v1::BIAS_FORM_DENSE);
    generate.set_dtype(v1::DATA_TYPE_FP32);
    return added ? Call(add)->info().plan_fingerprint() : Call(generate)->info().plan_fingerprint();
  };
  std::set<std::string> added, alone;
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_HF_EAGER,
                      v1::PRECISION_PRESET_VLLM, v1::PRECISION_PRESET_FLUX}) {
    added.insert(fingerprint(preset, true));
    alone.insert(fingerprint(preset, false));
  }
  EXPECT_EQ(added.size(), 5u);
  EXPECT_EQ(alone.size(), 3u);
}

// A message is hashed in pieces, and other parts at once.
TEST(Fingerprint, OfAMessageIsThatOfItsText) {
  v1::Tensor tensor;
  for (const size_t size : {size_t{0}, size_t{100}, size_t{300'000}}) {
    tensor.set_data(std::string(size, 'x'));
    Fingerprint of_message, of_text;
    wire::AddMessage(tensor, of_message);
    EXPECT_EQ(of_message.Add(7.0).Digest(), of_text.Add(tensor.SerializeAsString()).Add(7.0).Digest());
  }
  // XXH3_128bits() of all parts at once.
  EXPECT_EQ(absl::BytesToHexString(Fingerprint().Add("bias").Add(int64_t{3}).Digest()),
            "de6673825a1a913d8115c5029a23c8ac");
}

}  // namespace
}  // namespace posenc::fingerprint_test
