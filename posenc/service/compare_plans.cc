#include "posenc/service/compare_plans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "posenc/base/fingerprint.h"
#include "posenc/base/interruption.h"
#include "posenc/mapping/field_differences.h"

namespace posenc::wire {
namespace {

constexpr double kReportedDistances[] = {4095, 32767, 131071};

void DigestTensors(google::protobuf::Message* message) {
  if (auto* tensor = dynamic_cast<v1::Tensor*>(message)) {
    if (!tensor->data().empty()) tensor->set_data(Fingerprint().Add(tensor->data()).Digest());
    return;
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() != nullptr && !field->is_repeated()) {
      DigestTensors(message->GetReflection()->MutableMessage(message, field));
    }
  }
}

// Rounds to float32, as the bias does, and turns -0 into 0: every zero in a bias is +0.
double AsInBias(double slope) { return static_cast<float>(slope) + 0.0; }

// `slopes`: FP64, as canonical settings have them.
void RoundSlopes(v1::Tensor* slopes) {
  std::string& data = *slopes->mutable_data();
  for (size_t at = 0; at < data.size(); at += sizeof(double)) {
    double slope;
    std::memcpy(&slope, &data[at], sizeof(slope));
    slope = AsInBias(slope);
    std::memcpy(&data[at], &slope, sizeof(slope));
  }
}

// Compares the slopes of the heads that both sides have. Slopes by batch row are compared only if both have as many.
void CompareSlopes(const v1::Plan& a, const v1::Plan& b, v1::LayerComparison* message) {
  const int64_t heads_a = a.bias().alibi().num_heads(), heads_b = b.bias().alibi().num_heads();
  const bool by_head = a.slopes_size() == heads_a && b.slopes_size() == heads_b;
  if (!by_head && (a.slopes_size() != b.slopes_size() || heads_a != heads_b)) return;
  v1::SlopeComparison slopes;
  double largest = 0;
  int64_t head_of_largest = 0;
  std::set<int64_t> differing;
  for (int n = 0; n < std::min(a.slopes_size(), b.slopes_size()); ++n) {
    InterruptionPointOfStep(n);
    const double difference = std::fabs(a.slopes(n) - b.slopes(n));
    if (difference == 0) continue;
    const int64_t head = n % heads_a;
    if (differing.empty()) {
      slopes.set_first_head(head);
      slopes.set_a_slope(a.slopes(n));
      slopes.set_b_slope(b.slopes(n));
    }
    differing.insert(head);
    if (difference > largest) {
      largest = difference;
      head_of_largest = head;
    }
  }
  if (differing.empty()) return;
  slopes.set_differing_heads(static_cast<int64_t>(differing.size()));
  for (const double distance : kReportedDistances) {
    v1::DistanceDifference* at = slopes.add_distances();
    at->set_distance(static_cast<int64_t>(distance));
    at->set_largest_difference(largest * distance);
    at->set_head(head_of_largest);
  }
  *message->mutable_slopes() = std::move(slopes);
}

// Clears learned weights unless both sides have them: a config.json does not hold any. Returns true if the method has
// weights and they were not on both sides.
bool ClearWeightsOfOne(v1::BiasMethod* a, v1::BiasMethod* b) {
  bool lacks = false;
  if ((a->has_t5() || a->has_swin() || a->has_beit()) && !(a->has_table() && b->has_table())) {
    lacks = true;
    for (v1::BiasMethod* side : {a, b}) {
      side->clear_table();
      side->clear_table_layout();
    }
  }
  if (a->has_swin_v2() && !(a->swin_v2().has_hidden_weight() && b->swin_v2().has_hidden_weight())) {
    lacks = true;
    for (v1::BiasMethod* side : {a, b}) {
      side->mutable_swin_v2()->clear_hidden_weight();
      side->mutable_swin_v2()->clear_hidden_bias();
      side->mutable_swin_v2()->clear_output_weight();
    }
  }
  return lacks;
}

// Replaces the choice of ALiBi's slopes by the slopes.
void ResolveSlopes(v1::Plan* plan) {
  if (!plan->bias().has_alibi()) return;
  plan->mutable_bias()->mutable_alibi()->clear_slopes();
  plan->mutable_bias()->mutable_alibi()->clear_alibi_bias_max();
}

bool CompareSizes(const std::string& method, const ComparedPlan& a, const ComparedPlan& b,
                  v1::LayerComparison* message) {
  bool same = true;
  for (const auto& [name, size] : a.sizes) {
    const auto other = b.sizes.find(name);
    if (other == b.sizes.end() || other->second == size) continue;
    same = false;
    AppendDifference(fmt::format("{}.{}", method, name), size, other->second, message->mutable_fields());
  }
  return same;
}

// Compares canonical settings.
bool CompareSettings(v1::Plan a, v1::Plan b, bool* lacks_weights, v1::LayerComparison* message) {
  *lacks_weights = a.has_relative() || a.has_learned();
  if (a.has_bias()) *lacks_weights = ClearWeightsOfOne(a.mutable_bias(), b.mutable_bias());
  const v1::Plan canonical_a = a, canonical_b = b;
  ResolveSlopes(&a);
  ResolveSlopes(&b);
  if (a.SerializeAsString() == b.SerializeAsString()) return true;
  auto* fields = message->mutable_fields();
  if (a.has_bias()) {
    AppendFieldDifferences(canonical_a.bias(), canonical_b.bias(), "", fields);
    if (a.bias().has_alibi()) CompareSlopes(a, b, message);
  } else if (a.has_relative()) {
    AppendFieldDifferences(canonical_a.relative(), canonical_b.relative(), "", fields);
  } else {
    AppendFieldDifferences(canonical_a, canonical_b, "", fields);
  }
  return false;
}

}  // namespace

std::map<std::string, std::string> SizesOfWeights(const ModelLayers& layers) {
  std::map<std::string, std::string> sizes;
  const auto add = [&sizes](const char* name, int64_t size) {
    if (size != 0) sizes[name] = fmt::format("{}", size);
  };
  if (layers.table) {
    add("rows", layers.table->rows);
    add("width", layers.table->width);
  }
  if (layers.terms) {
    add("rows", layers.terms->rows);
    add("width", layers.terms->width);
    add("head_dim", layers.terms->head_dim);
    // All heads share Shaw's tables and Inkling's.
    const RelativeMethod& method = layers.terms->settings;
    const bool shared = std::holds_alternative<ShawSettings>(method) || std::holds_alternative<InklingSettings>(method);
    if (!shared) add("heads", layers.terms->heads);
  }
  add("heads", layers.bias_heads);
  if (!layers.bias_table_heads.empty()) sizes["heads"] = fmt::format("{}", fmt::join(layers.bias_table_heads, ", "));
  return sizes;
}

void PrepareBiasPlan(v1::Plan* plan) {
  for (double& slope : *plan->mutable_slopes()) slope = AsInBias(slope);
  if (plan->bias().alibi().has_future_slopes()) {
    RoundSlopes(plan->mutable_bias()->mutable_alibi()->mutable_future_slopes());
  }
  DigestTensors(plan);
}

bool SameSoftmax(const v1::Plan& a, const v1::Plan& b) {
  v1::Plan cleared[] = {a, b};
  for (v1::Plan& plan : cleared) {
    if (!plan.bias().has_alibi() || plan.bias().alibi().form() == v1::ALIBI_FORM_ASYMMETRIC) return false;
    ResolveSlopes(&plan);
    plan.mutable_bias()->mutable_alibi()->clear_form();
  }
  return cleared[0].SerializeAsString() == cleared[1].SerializeAsString();
}

bool ComparePlans(const std::string& method, const ComparedPlan& a, const ComparedPlan& b, bool* lacks_weights,
                  v1::LayerComparison* message) {
  const bool same_settings = CompareSettings(a.plan, b.plan, lacks_weights, message);
  return CompareSizes(method, a, b, message) && same_settings;
}

}  // namespace posenc::wire
