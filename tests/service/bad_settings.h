// A valid request for a table, and changes that make it invalid: refused settings and tables.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/service/call.h"

namespace posenc::bad_settings {

// A yarn table of one row, so that every kind of field is read.
inline v1::GenerateTableRequest Valid() {
  v1::GenerateTableRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  auto* p = settings->mutable_rope_parameters();
  p->set_rope_type("yarn");
  p->set_factor(4);
  p->set_original_max_position_embeddings(4096);
  settings->set_head_dim(8);
  settings->set_input_pairing(v1::PAIRING_INTERLEAVED);
  request.mutable_positions()->set_offset(0);
  request.set_count(1);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}

using R = v1::GenerateTableRequest;
inline v1::RotarySettings& S(R& r) { return *r.mutable_rotary()->mutable_settings(); }
inline v1::RopeParameters& P(R& r) { return *S(r).mutable_rope_parameters(); }

// Sets another rope_type, without yarn's fields.
inline void As(R& r, const char* rope_type) {
  S(r).clear_rope_parameters();
  P(r).set_rope_type(rope_type);
}
inline void Llama3(R& r) {
  As(r, "llama3");
  P(r).set_factor(8);
  P(r).set_original_max_position_embeddings(8192);
  P(r).set_low_freq_factor(1);
  P(r).set_high_freq_factor(4);
}
inline void Typed(R& r, const char* rope_type, double factor) {
  As(r, rope_type);
  P(r).set_factor(factor);
}
// The width is 8, as everywhere here: four pairs.
inline void Mrope(R& r, std::vector<int64_t> sections, v1::MropeOrder order = v1::MROPE_ORDER_CONTIGUOUS) {
  As(r, "default");
  P(r).mutable_mrope_section()->Assign(sections.begin(), sections.end());
  P(r).set_mrope_order(order);
}
inline void Dynamic(R& r) {
  As(r, "dynamic");
  P(r).set_factor(2);
  S(r).set_max_position_embeddings(2048);
}

struct Case {
  const char* what;
  std::function<void(R&)> change;
  const char* reason;
  const char* field;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.what; }

class BadSettings : public testing::TestWithParam<Case> {};

// Field prefixes in errors.
#define SETTINGS "rotary.settings."
#define ROPE SETTINGS "rope_parameters."

}  // namespace posenc::bad_settings
